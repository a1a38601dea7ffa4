// --resume: an interrupted run goes on. Its finished cases are taken over, the others are run.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "harness/parent/options.h"
#include "harness/report/report.h"

namespace mkbench {

// What the report of a run says of its build, its engines' files and its card, compared by name when
// the run goes on.
nlohmann::json describe_identity(const Options& options);

class Resumption {
 public:
  // Reads the report of --resume. Throws Error(kBadInput) for a folder without one, and where a
  // given option, the command, the build or the file of an engine is not the interrupted run's;
  // Error(kIntegrity) where the report does not hold what its samples give.
  explicit Resumption(const Options& given);

  // The run had ended by itself.
  bool finished() const { return !before_.interrupted; }
  const Report& before() const { return before_; }
  // The given options, with the recorded values of those that were not given.
  const Options& options() const { return options_; }

  // Throws Error(kBadInput) naming what of the machine, or of the weights that finished cases loaded,
  // is not the interrupted run's. `load` gives the sha256 of a job's weights; weights that mkbench
  // makes in memory follow from the build.
  using LoadWeights = std::function<std::string(const CaseJob& job, int depth)>;
  void check_same(const nlohmann::json& environment, const std::vector<CaseJob>& jobs,
                  const LoadWeights& load) const;
  // The finished report of a job's case; absent where the case is to be run.
  std::optional<CaseReport> take_over(const CaseJob& job) const;

  // The jobs whose cases are to be run.
  std::vector<CaseJob> left_of(const std::vector<CaseJob>& jobs) const;

  // The report's folder, or --out.
  std::filesystem::path output_folder() const;
  // What meta.resumed says of this resumption.
  nlohmann::json describe(int taken_over) const;
  // Keeps the interrupted report under its new name, beside the one that replaces it; with --out,
  // copies what reasons name: tracebacks. Throws Error(kRuntime).
  void keep_old(const std::filesystem::path& folder) const;

 private:
  void merge_options();
  void check_identity() const;
  void check_weights(const std::vector<CaseJob>& jobs, const LoadWeights& load) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& found,
                           const std::string& wanted) const;
  bool in_place() const;

  std::filesystem::path folder_;
  Report before_;
  Options options_;
  std::string kept_name_;  // of the old report.json: report.1.json
};

}  // namespace mkbench
