#include "harness/archive/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <system_error>

#include "harness/archive/build_info.h"
#include "harness/archive/recompute.h"
#include "harness/archive/run_folder.h"
#include "harness/engines/plugin_file.h"
#include "harness/report/render.h"
#include "harness/wire/build_id.h"
#include "references/base/error.h"
#include "references/base/sha256.h"
#include "references/model_row.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

std::string text_at(const json& object, const std::vector<const char*>& path) {
  return json_text(object, path, "nothing");
}

}  // namespace

json describe_identity(const std::string& command, const std::vector<std::string>& engines) {
  json files = json::object();
  for (const std::string& engine : engines) {
    if (is_file_engine(engine)) files[engine] = sha256_file(engine_path(engine));
  }
  return {{"command", command},
          {"build_id", build_id() + (build_info().dirty ? " dirty" : "")},
          {"engine_sha256", files}};
}

Resumption::Resumption(const std::string& folder, const std::string& out,
                       const std::string& command)
    : folder_(folder), out_(out) {
  if (!fs::is_directory(folder_)) {
    refuse("DIR", fs::exists(folder_) ? "a file" : "nothing", "the folder of an interrupted run");
  }
  const fs::path file = folder_ / "report.json";
  if (!fs::exists(file)) {
    refuse("report.json", "nothing",
           "the report of an interrupted run (one that was killed before its first report has "
           "measured nothing: start it again)");
  }
  before_ = read_sound_report(file, "--resume " + folder);
  for (int i = 1; kept_name_.empty() || fs::exists(folder_ / kept_name_); ++i)
    kept_name_ = fmt::format("report.{}.json", i);
  if (finished()) return;
  check_identity(command);
}

void Resumption::refuse(const std::string& what, const std::string& found,
                        const std::string& wanted) const {
  throw Error(ErrorKind::kBadInput, fmt::format("--resume {}: {}: found {}, wanted {}",
                                                folder_.string(), what, found, wanted));
}

void Resumption::check_identity(const std::string& command) const {
  const json now = describe_identity(command, {});
  for (const char* name : {"command", "build_id"}) {
    const std::string found = text_at(now, {name}), wanted = text_at(before_.meta, {name});
    if (found != wanted) refuse(name, found, wanted + " as in the interrupted run");
  }
}

void Resumption::check_files(const std::vector<std::string>& engines) const {
  const json files = before_.meta.value("engine_sha256", json::object());
  const json now = describe_identity("", engines);
  for (const auto& [engine, sha256] : now["engine_sha256"].items()) {
    if (files.value(engine, json()) != sha256) {
      refuse("sha256 of " + engine, sha256.get<std::string>(),
             text_at(files, {engine.c_str()}) + " as in the interrupted run");
    }
  }
}

void Resumption::check_same(const json& environment, const std::vector<CaseJob>& jobs,
                            const LoadWeights& load) const {
  // A run that was interrupted before it had looked at its machine has measured nothing there.
  if (!before_.environment.contains("device")) return;
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
    if (c.interrupted || c.weights_sha256.empty()) continue;
    const auto job = std::find_if(jobs.begin(), jobs.end(),
                                  [&](const CaseJob& one) { return one.model.name == c.model; });
    if (job == jobs.end() || is_analytic(job->model.row) || !seen.insert(c.model).second) continue;
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
    // The run writes the file of the failed step, and its command, again.
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
  return out_.empty() || fs::equivalent(out_, folder_, error);
}

fs::path Resumption::output_folder() const {
  if (!in_place()) return make_output_folder(out_);
  lock_folder(folder_, "--resume");
  return folder_;
}

json Resumption::describe() const {
  const auto taken_over = std::count_if(before_.cases.begin(), before_.cases.end(),
                                        [](const CaseReport& c) { return !c.interrupted; });
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
    if (fs::exists(to)) error = std::make_error_code(std::errc::file_exists);
    if (error) return;
    const fs::path partial = to.string() + std::string(kPartialEnding);
    fs::copy_file(from, partial, fs::copy_options::overwrite_existing, error);
    if (!error) return fs::rename(partial, to, error);
    std::error_code ignored;
    fs::remove(partial, ignored);
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
