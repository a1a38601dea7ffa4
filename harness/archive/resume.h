// --resume: continues an interrupted run. Its finished cases are taken over, the others are run.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/flow/job.h"
#include "harness/report/report.h"

namespace mkbench {

// A run's command, build and hashes of its engines' files, for the report's meta. They must be the
// same when the run is resumed.
nlohmann::json describe_identity(const std::string& command,
                                 const std::vector<std::string>& engines);

class Resumption {
 public:
  // Reads the report of --resume; `out`: --out. Throws Error(kBadInput) for a folder without report
  // and if command or build differ from the interrupted run's; Error(kIntegrity) if the report's
  // values do not follow from its samples.
  Resumption(const std::string& folder, const std::string& out, const std::string& command);

  // True if the run ended without an interrupt.
  bool finished() const { return !before_.interrupted; }
  const Report& before() const { return before_; }
  // Throws Error(kBadInput) if an engine's file differs from the interrupted run's.
  void check_files(const std::vector<std::string>& engines) const;
  // Throws Error(kBadInput): `what` differs from the interrupted run.
  [[noreturn]] void refuse(const std::string& what, const std::string& found,
                           const std::string& wanted) const;

  // Throws Error(kBadInput) if the machine, or the weights of a finished case, differ from the
  // interrupted run's; names what differs. `load` gives the sha256 of a job's weights; weights that
  // mkbench makes in memory follow from the build and are not compared.
  using LoadWeights = std::function<std::string(const CaseJob& job, int depth)>;
  void check_same(const nlohmann::json& environment, const std::vector<CaseJob>& jobs,
                  const LoadWeights& load) const;
  // The finished report of a job's case; nullopt if the case must still be run.
  std::optional<CaseReport> take_over(const CaseJob& job) const;

  // The jobs whose cases must still be run.
  std::vector<CaseJob> left_of(const std::vector<CaseJob>& jobs) const;

  // The report's folder, or --out; locked. Throws Error(kBadInput) if another run writes to it.
  std::filesystem::path output_folder() const;
  // meta.resumed with an entry for this resumption.
  nlohmann::json describe() const;
  // Keeps the interrupted report under a new name, beside the one that will replace it. With
  // --out, copies only the files that its reasons name (tracebacks, hangs). Throws Error(kRuntime).
  void keep_old(const std::filesystem::path& folder) const;

 private:
  void check_identity(const std::string& command) const;
  void check_weights(const std::vector<CaseJob>& jobs, const LoadWeights& load) const;
  bool in_place() const;

  std::filesystem::path folder_;
  Report before_;
  std::string out_;
  std::string kept_name_;  // new name of the old report.json: report.1.json
};

}  // namespace mkbench
