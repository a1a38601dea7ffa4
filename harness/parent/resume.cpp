#include "harness/parent/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <system_error>

#include "harness/engines/plugin_file.h"
#include "harness/parent/build_info.h"
#include "harness/parent/option_values.h"
#include "harness/parent/recompute.h"
#include "harness/parent/run_folder.h"
#include "harness/report/render.h"
#include "harness/wire/build_id.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Options that say what is printed and where; a resumed run may have others.
constexpr std::array<std::string_view, 10> kFree = {"out",     "resume",       "output",  "junit",
                                                    "plot",    "parity-table", "dry-run", "quiet",
                                                    "verbose", "list-devices"};
// Options that take effect before the report is read, and so must be given again.
constexpr std::array<std::string_view, 2> kEarly = {"python", "in-process"};

template <size_t N>
bool is_among(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string text_at(const json& object, const std::vector<const char*>& path) {
  return json_text(object, path, "nothing");
}

}  // namespace

json describe_identity(const Options& options) {
  json files = json::object();
  for (const std::string& engine : options.engines) {
    if (is_file_engine(engine)) files[engine] = sha256_file(engine);
  }
  return {{"command", options.command == nullptr ? "" : std::string(options.command->name)},
          {"build_id", build_id() + (build_info().dirty ? " dirty" : "")},
          {"engine_sha256", files}};
}

Resumption::Resumption(const Options& given) : folder_(given.resume), options_(given) {
  if (!fs::is_directory(folder_)) {
    refuse("DIR", fs::exists(folder_) ? "a file" : "nothing", "the folder of an interrupted run");
  }
  const fs::path file = folder_ / "report.json";
  if (!fs::exists(file)) refuse("report.json", "nothing", "the report of an interrupted run");
  before_ = read_sound_report(file, "--resume " + given.resume);
  for (int i = 1; kept_name_.empty() || fs::exists(folder_ / kept_name_); ++i)
    kept_name_ = fmt::format("report.{}.json", i);
  if (finished()) return;
  check_identity();
  merge_options();
}

void Resumption::refuse(const std::string& what, const std::string& found,
                        const std::string& wanted) const {
  throw Error(ErrorKind::kBadInput, fmt::format("--resume {}: {}: found {}, wanted {}",
                                                options_.resume, what, found, wanted));
}

void Resumption::check_identity() const {
  const json now = describe_identity(options_);
  for (const char* name : {"command", "build_id"}) {
    const std::string found = text_at(now, {name}), wanted = text_at(before_.meta, {name});
    if (found != wanted) refuse(name, found, wanted + " as in the interrupted run");
  }
}

// An option that is given must have the recorded value; one that is not given gets it.
void Resumption::merge_options() {
  const json recorded = before_.meta.contains("options") ? before_.meta["options"] : json::object();
  for (const Flag& flag : flag_table()) {
    const std::string name(flag.name);
    if ((flag.group & options_.command->flags) == 0 || is_among(flag.name, kFree)) continue;
    const auto given = std::find_if(options_.values.begin(), options_.values.end(),
                                    [&](const OptionValue& v) { return v.name == name; });
    const bool recorded_here = recorded.contains(name) && recorded[name].is_object();
    const std::string wanted = recorded_here ? json_text(recorded[name], {"value"}) : "";
    const bool is_given = given != options_.values.end() && given->source != "default";
    const std::string found = given != options_.values.end() ? given->text : "";
    if (is_given || is_among(flag.name, kEarly)) {
      if (found != wanted) {
        refuse("--" + name, found.empty() ? "nothing" : found,
               (wanted.empty() ? "nothing" : wanted) + " as in the interrupted run");
      }
      continue;
    }
    if (wanted.empty()) continue;
    flag.apply(options_, wanted);
    const OptionValue value{name, wanted, json_text(recorded[name], {"source"})};
    if (given != options_.values.end()) {
      *given = value;
    } else {
      options_.values.push_back(value);
    }
  }
  options_.max_blocks =
      std::max(options_.max_blocks,
               options_.blocks.value_or(std::max(kDefaultBlocks, options_.processes.value_or(1))));
  const json prompt_seed = before_.meta.value("prompt_seed", json());
  if (!prompt_seed.is_number_unsigned())
    refuse("meta.prompt_seed", json_fields::shown(prompt_seed), "a whole number");
  options_.prompt_seed = prompt_seed.get<uint64_t>();
  const json files = before_.meta.value("engine_sha256", json::object());
  const json now = describe_identity(options_);
  for (const auto& [engine, sha256] : now["engine_sha256"].items()) {
    if (files.value(engine, json()) != sha256) {
      refuse("sha256 of " + engine, sha256.get<std::string>(),
             text_at(files, {engine.c_str()}) + " as in the interrupted run");
    }
  }
}

void Resumption::check_same(const json& environment, const std::vector<CaseJob>& jobs,
                            const LoadWeights& load) const {
  const std::vector<std::vector<const char*>> kMachine = {
      {"device"}, {"cpu", "name"}, {"gpu", "uuid"}, {"gpu", "driver"}, {"libtorch", "version"}};
  for (const std::vector<const char*>& path : kMachine) {
    const std::string found = text_at(environment, path),
                      wanted = text_at(before_.environment, path);
    if (found != wanted)
      refuse(fmt::format("env.{}", fmt::join(path, ".")), found,
             wanted + " as in the interrupted run");
  }
  check_weights(jobs, load);
}

void Resumption::check_weights(const std::vector<CaseJob>& jobs, const LoadWeights& load) const {
  std::set<std::string> seen;
  for (const CaseReport& c : before_.cases) {
    if (c.interrupted || c.weights_sha256.empty() || is_analytic(find_model(c.model))) continue;
    const auto job = std::find_if(jobs.begin(), jobs.end(),
                                  [&](const CaseJob& one) { return one.model == c.model; });
    if (job == jobs.end() || !seen.insert(c.model).second) continue;
    const std::string found = load(*job, c.depth);
    if (found != c.weights_sha256)
      refuse("weights of " + c.model, found, c.weights_sha256 + " as in the interrupted run");
  }
}

std::optional<CaseReport> Resumption::take_over(const CaseJob& job) const {
  const std::string name = case_name(job);
  const auto found = std::find_if(before_.cases.begin(), before_.cases.end(),
                                  [&](const CaseReport& c) { return c.name == name; });
  if (found == before_.cases.end() || found->interrupted) return std::nullopt;
  CaseReport taken = *found;
  for (EngineReport& e : taken.engines) {
    const auto engine =
        std::find_if(job.engines.begin(), job.engines.end(), [&](const CaseEngine& one) {
          return (one.asked.empty() ? one.name : one.asked) == e.name &&
                 one.candidate == (e.role == "candidate");
        });
    if (engine != job.engines.end()) e.flow_name = engine->name;
    // The file of the failed step is written anew.
    if (e.parity && e.parity->failed_step) e.parity->failed_step->command.clear();
  }
  return taken;
}

std::vector<CaseJob> Resumption::left_of(const std::vector<CaseJob>& jobs) const {
  std::vector<CaseJob> left;
  std::copy_if(jobs.begin(), jobs.end(), std::back_inserter(left),
               [&](const CaseJob& job) { return !take_over(job); });
  return left;
}

bool Resumption::in_place() const {
  std::error_code error;
  return options_.out.empty() || fs::equivalent(options_.out, folder_, error);
}

fs::path Resumption::output_folder() const {
  return in_place() ? folder_ : make_output_folder(options_.out);
}

json Resumption::describe(int taken_over) const {
  json all = before_.meta.value("resumed", json::array());
  all.push_back({{"report", in_place() ? fs::path(kept_name_).string()
                                       : (folder_.filename() / "report.json").string()},
                 {"started", text_at(before_.meta, {"started"})},
                 {"interrupted", text_at(before_.meta, {"finished"})},
                 {"cases_taken_over", taken_over},
                 {"cases", before_.cases.size()},
                 {"warnings", before_.meta.value("warnings", json::array())}});
  return all;
}

void Resumption::keep_old(const fs::path& folder) const {
  std::error_code error;
  fs::path copying;
  const auto copy = [&](const fs::path& from, const fs::path& to) {
    if (error) return;
    copying = from;
    fs::copy_file(from, to, fs::copy_options::none, error);
  };
  if (in_place()) {
    copy(folder_ / "report.json", folder_ / kept_name_);
  } else {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder_)) {
      const std::string name = entry.path().filename().string();
      const bool named = name.starts_with("traceback-") || name.starts_with("hang");
      if (named && !fs::exists(folder / name)) copy(entry.path(), folder / name);
    }
  }
  if (error) {
    throw Error(ErrorKind::kRuntime,
                fmt::format("--resume: cannot copy {}: {}", copying.string(), error.message()));
  }
}

}  // namespace mkbench
