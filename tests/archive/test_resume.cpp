// --resume and --save-baseline: what may differ from the interrupted run, and which ends of a run are kept.
#include <algorithm>
#include <functional>
#include <vector>

#include "harness/archive/baselines.h"
#include "harness/archive/collector.h"
#include "harness/archive/resume.h"
#include "references/base/json_strict.h"
#include "tests/support/catch2.h"
#include "tests/support/command_line.h"
#include "tests/support/micro_model.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/sound_report.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;

// A job whose case is that of sound_report(), or one of another depth. Its weights come from a folder.
CaseJob job_of(int depth, const std::string& model = "synthetic") {
  CaseJob job;
  job.model.name = model;
  job.depth = depth;
  job.n_gen = kTokens;
  job.engines = {{.name = "eager", .asked = "", .judges = true, .yardstick = true},
                 {.name = "graph", .asked = "megakernel", .yardstick = true},
                 {.name = "ring", .asked = "megakernel", .candidate = true}};
  return job;
}

std::string text_of(const fs::path& file) { return read_small_file(file, 1 << 24); }

// The folder of a run that was interrupted before its second case.
struct InterruptedRun {
  TemporaryFolder temporary;
  const fs::path folder = temporary.path() / "run", engine = temporary.path() / "engine.py";
  Report report = sound_report();

  InterruptedRun() {
    fs::create_directory(folder);
    write_file(engine, "one version");
    report.meta.update(describe_identity("run", {engine.string(), "ring"}));
    report.meta.update({{"started", "at 1"}, {"finished", "at 2"}, {"warnings", {"warm"}}});
    report.meta["resumed"] = {"an earlier one"};
    report.meta["options"]["only"] = option("ring");
    report.environment["gpu"]["uuid"] = "GPU-1";
    report.environment["cpu"]["name"] = "a CPU";
    report.cases[0].engines[1].parity->failed_step.emplace().command = "mkbench parity --only";
    CaseCollector left(job_of(64));
    left.finish(true);
    left.report().interrupted = true;
    left.report().weights_sha256 = "not compared";
    left.report().memory = memory_bound({.shape = kQwen3_0_6B}, 64, kTokens, 0, 1600, 50'000'000);
    report.cases.push_back(left.report());
    sum_up(report, report.cases[1]);
    end(true);
  }
  // Writes the report as that of a run that was interrupted, or was not.
  void end(bool interrupted) {
    report.interrupted = report.cases.back().interrupted = interrupted;
    report.verdict = Verdict::kPass;
    report.reasons.clear();
    conclude(report);
    write_file(folder / "report.json", to_json(report).dump());
  }
  Resumption resumption(const std::string& out = "", const std::string& command = "run") const {
    return {folder.string(), out, command};
  }
  std::string refusal(const std::string& field, const std::string& found,
                      const std::string& wanted) const {
    return fmt::format("--resume {}: {}: found {}, wanted {} as in the interrupted run",
                       folder.string(), field, found, wanted);
  }
};

const Resumption::LoadWeights kSameWeights = [](const CaseJob&, int) {
  return std::string(64, 'b');
};

}  // namespace

TEST_CASE("what was proven of an engine before an interruption stands") {
  for (const bool interrupted : {false, true}) {
    for (const Verdict proven : {Verdict::kPass, Verdict::kFailToken, Verdict::kNondeterministic}) {
      CaseCollector left(job_of(64));
      ParityReport parity;
      parity.verdict = proven;
      parity.reason = "1 of 12 tokens wrong";
      left.take(ParityJudged{"ring", parity});
      left.finish(interrupted);
      const EngineReport& ring = left.report().engines.back();
      const bool stands = interrupted && proven != Verdict::kPass;
      CHECK(ring.verdict == (stands ? proven : Verdict::kSkipped));
      CHECK((ring.reasons.back() == parity.reason) == stands);
    }
  }
}

TEST_CASE("a run is resumed by the same command and build, with the same files of engines") {
  InterruptedRun run;
  CHECK(error_line([&] { run.resumption("", "parity"); }) ==
        run.refusal("command", "parity", "run"));
  const Resumption resumption = run.resumption();
  const std::vector<std::string> engines = {"ring", run.engine.string()};
  CHECK_NOTHROW(resumption.check_files(engines));
  const std::string before = sha256_file(run.engine);
  write_file(run.engine, "another version");
  CHECK(error_line([&] { resumption.check_files(engines); }) ==
        run.refusal("sha256 of " + run.engine.string(), sha256_file(run.engine), before));
  const fs::path other = run.temporary.path() / "other.so";
  write_file(other, "");
  CHECK(error_line([&] { resumption.check_files({other.string()}); }) ==
        run.refusal("sha256 of " + other.string(), sha256_file(other), "nothing"));
  const std::string build = run.report.meta["build_id"];
  run.report.meta["build_id"] = "another";
  run.end(true);
  CHECK(error_line([&] { run.resumption(); }) == run.refusal("build_id", build, "another"));
  run.end(false);  // nothing is left to do, by whatever build
  CHECK(run.resumption("", "parity").finished());
}

TEST_CASE("a run is resumed on the same machine, and each field of it is compared") {
  const InterruptedRun run;
  const Resumption resumption = run.resumption();
  CHECK_FALSE(resumption.finished());
  const json here = run.report.environment, flat = here.flatten();
  std::vector<std::string> compared;
  for (const auto& [place, value] : flat.items()) {
    const json::json_pointer at(place);
    std::string field = "env" + place;
    std::replace(field.begin(), field.end(), '/', '.');
    json other = here;
    other[at] = "another";
    const std::string line =
        error_line([&] { resumption.check_same(other, {job_of(kDepth)}, kSameWeights); });
    if (line == "accepted") continue;
    CHECK(line == run.refusal(field, "another", value));
    compared.push_back(field);
  }
  CHECK(compared == std::vector<std::string>{"env.cpu.name", "env.device", "env.gpu.driver",
                                             "env.gpu.uuid", "env.libtorch.version"});
}

TEST_CASE("a run that was interrupted before it had looked at its machine goes on anywhere") {
  InterruptedRun run;
  const json here = run.report.environment;
  run.report.environment.erase("device");
  run.report.cases.erase(run.report.cases.begin());
  run.report.cases[0].memory = memory_bound({.shape = kQwen3_0_6B}, 64, kTokens, 0, 0, 0);
  run.end(true);
  CHECK_NOTHROW(run.resumption().check_same(here, {job_of(kDepth)}, kSameWeights));
}

TEST_CASE("a run is resumed with the same weights of each finished case") {
  InterruptedRun run;
  std::vector<std::string> loaded;
  const auto line = [&](const std::vector<CaseJob>& jobs, const std::string& sha256) {
    loaded.clear();
    return error_line([&] {
      run.resumption().check_same(run.report.environment, jobs, [&](const CaseJob& job, int depth) {
        loaded.push_back(fmt::format("{} {}", job.model.name, depth));
        return sha256;
      });
    });
  };
  using Loaded = std::vector<std::string>;
  const std::string is(64, 'b');
  const std::vector<CaseJob> jobs = {job_of(kDepth, "tiny"), job_of(64)};
  CHECK(line(jobs, "other") == run.refusal("weights of synthetic", "other", is));
  CHECK(line(jobs, is) == "accepted");
  CHECK(loaded == Loaded{"synthetic 512"});
  CHECK(line({jobs[0]}, "other") == "accepted");
  CaseJob analytic = job_of(kDepth);
  analytic.model.row = find_model("synthetic");
  CHECK(line({analytic}, "other") == "accepted");
  CHECK(loaded.empty());
  run.report.cases.insert(run.report.cases.begin(), run.report.cases[0]);
  run.end(true);
  CHECK(line(jobs, is) == "accepted");
  CHECK(loaded.size() == 1);  // once for each model
  for (CaseReport& c : run.report.cases) c.weights_sha256.clear();
  run.end(true);
  CHECK(line(jobs, "other") == "accepted");
}

TEST_CASE("finished cases are taken over, and the others are left") {
  const InterruptedRun run;
  const Resumption resumption = run.resumption();
  const std::vector<CaseJob> jobs = {job_of(kDepth), job_of(64), job_of(7)};
  const std::optional<CaseReport> taken = resumption.take_over(jobs[0]);
  REQUIRE(taken);
  CHECK((taken->engines[0].flow_name == "eager" && taken->engines[1].flow_name == "ring"));
  CHECK(taken->engines[1].parity->failed_step->command.empty());
  const std::vector<CaseJob> left = resumption.left_of(jobs);
  REQUIRE(left.size() == 2);
  CHECK((left[0].depth == 64 && left[1].depth == 7));
}

TEST_CASE("every option that a resumed run is given must be that of the interrupted run") {
  const InterruptedRun run;
  const Resumption resumption = run.resumption();
  const auto line = [&](const OptionValue& value) {
    return error_line([&] {
      RunSettings given;
      given.command = "run";
      given.values = {value};
      resumed_settings(given, resumption);
    });
  };
  std::string free;
  for (const CommandRow& row : command_rows()) {
    if (row.name != "run") continue;
    for (const Flag<CommandSettings>& flag : row.flags) {
      const std::string name(flag.name);
      const json& recorded = run.report.meta["options"];
      const std::string wanted = recorded.contains(name) ? recorded[name]["value"] : "nothing";
      for (const char* source : {"command line", "environment"}) {
        const std::string found = line({name, "another", source});
        if (found != "accepted") CHECK(found == run.refusal("--" + name, "another", wanted));
        if (found == "accepted" && *source == 'c') free += name + " ";
      }
    }
  }
  CHECK(free == "parity-table output out resume junit dry-run plot list-devices quiet verbose ");
  CHECK(line({"confidence", "0.95", "command line"}) == "accepted");
  CHECK(line({"confidence", "0.9", "default"}) == "accepted");
  RunSettings given;
  given.command = "run";
  const RunSettings resumed = resumed_settings(given, resumption);
  CHECK((resumed.confidence == 0.95 && resumed.prompt_seed == kPromptSeed));
  given.engines = {run.engine.string()};
  write_file(run.engine, "another version");
  CHECK_THAT(error_line([&] { resumed_settings(given, resumption); }), ContainsText("sha256 of"));
}

TEST_CASE("the interrupted report is kept beside the one that replaces it") {
  const InterruptedRun run;
  const std::string old = text_of(run.folder / "report.json");
  for (const char* name : {"report.1.json", "report.2.json"}) {
    const Resumption in_place = run.resumption(name[7] == '1' ? "" : run.folder.string());
    if (name[7] == '1') {
      CHECK(in_place.output_folder() == run.folder);
    } else {
      CHECK(error_line([&] { in_place.output_folder(); }) ==
            fmt::format("--resume {}: another run is writing to it; wait until that has ended, or "
                        "name another folder",
                        run.folder.string()));
    }
    in_place.keep_old(run.folder);
    CHECK(text_of(run.folder / name) == old);
    CHECK(in_place.describe()[0] == "an earlier one");
    CHECK(in_place.describe()[1] == json({{"report", name},
                                          {"started", "at 1"},
                                          {"interrupted", "at 2"},
                                          {"cases_taken_over", 1},
                                          {"cases", 2},
                                          {"warnings", {"warm"}}}));
    CHECK_THAT(error_line(ErrorKind::kRuntime, [&] { in_place.keep_old(run.folder); }),
               ContainsText("--resume: cannot copy "));
  }
  // Elsewhere: with the files that its reasons name, and none of them over another.
  for (const char* name : {"traceback-x.txt", "hang.json", "gate.md"})
    write_file(run.folder / name, "old");
  const fs::path out = run.temporary.path() / "out";
  const Resumption elsewhere = run.resumption(out.string());
  CHECK(elsewhere.output_folder() == out);
  CHECK(elsewhere.describe()[1]["report"] == "run/report.json");
  write_file(out / "hang.json", "new");
  elsewhere.keep_old(out);
  CHECK(text_of(out / "hang.json") == "new");
  CHECK(text_of(out / "traceback-x.txt") == "old");
  CHECK(std::distance(fs::directory_iterator(out), {}) == 2);
}

TEST_CASE("what is no interrupted run is refused by name") {
  InterruptedRun run;
  const auto line = [&](ErrorKind kind) { return error_line(kind, [&] { run.resumption(); }); };
  const std::string start = "--resume " + run.folder.string() + ": ";
  json edited = to_json(run.report);
  edited["cases"][0]["engines"][1]["tok_per_s"] = 1.5;
  write_file(run.folder / "report.json", edited.dump());
  CHECK_THAT(line(ErrorKind::kIntegrity), ContainsText("cases[0].engines[1].tok_per_s: found 1.5"));
  fs::remove(run.folder / "report.json");
  CHECK(line(ErrorKind::kBadInput) ==
        start +
            "report.json: found nothing, wanted the report of an interrupted run (one that was "
            "killed before its first report has measured nothing: start it again)");
  fs::remove(run.folder);
  CHECK(line(ErrorKind::kBadInput) ==
        start + "DIR: found nothing, wanted the folder of an interrupted run");
  write_file(run.folder, "");
  CHECK(line(ErrorKind::kBadInput) ==
        start + "DIR: found a file, wanted the folder of an interrupted run");
}

TEST_CASE("a report becomes a baseline only if the run and its gate have passed") {
  const TemporaryFolder data;
  const ScopedVariable home("XDG_DATA_HOME", data.path().c_str());
  const fs::path run = data.path() / "run";
  fs::create_directory(run);
  const auto kept_at = [](const char* name) { return baseline_file("", name); };
  const Report base = sound_report();
  fs::create_directories(kept_at("main").parent_path());
  write_file(kept_at("main"), to_json(base).dump());

  struct Ending {
    const char* name;
    std::function<void(Report&)> change;
    int codes[3];                // without a baseline, against one, --fail-on inconclusive
    std::string alone, against;  // why it is not kept without a baseline, and against one
  };
  const auto candidate = [](const std::function<void(EngineReport&)>& change) {
    return [change](Report& r) { change(r.cases[0].engines[1]); };
  };
  const auto ends_as = [&](Verdict verdict) {
    return candidate([verdict](EngineReport& e) { e.verdict = verdict, e.reasons = {"because"}; });
  };
  const auto takes = [&](double factor) {
    return candidate([factor](EngineReport& e) {
      for (Sample& s : e.samples) s.times.host_ms *= factor, s.times.event_ms *= factor;
    });
  };
  const std::string failed = "the run is FAIL_TOKEN", incomplete = "the run is INCOMPLETE";
  const std::vector<Ending> endings = {
      {"the same", takes(1), {0, 0, 0}, "", ""},
      {"slower", takes(2), {0, 4, 4}, "", "the gate is REGRESSION"},
      {"one process",
       candidate([](EngineReport& e) {
         for (Sample& s : e.samples) s.process = 0;
       }),
       {0, 0, 5},
       "",
       "the gate is INCONCLUSIVE"},
      {"wrong", ends_as(Verdict::kFailToken), {3, 3, 3}, failed, "the gate is FAIL_TOKEN"},
      {"incomplete",
       ends_as(Verdict::kIncomplete),
       {5, 5, 5},
       incomplete,
       "the gate is INCOMPLETE"},
      {"another case fails",
       [](Report& r) {
         r.cases.push_back(r.cases[0]);
         r.cases[1].depth = 7;
         r.cases[1].engines.clear();
         r.cases[1].verdict = Verdict::kFailToken;
       },
       {3, 3, 3},
       failed,
       failed},
      {"interrupted", [](Report& r) { r.interrupted = true; }, {130, 130, 130}, "-", "-"},
  };
  for (const Ending& end : endings) {
    for (const int how : {0, 1, 2}) {
      INFO(end.name << ", " << how);
      Report head = sound_report();
      end.change(head);
      sum_up(head, head.cases[0]);
      head.reasons.clear();
      conclude(head);
      write_file(run / "report.json", end.name);
      for (const char* file : {"gate.md", "gate.json", "gate-junit.xml"}) fs::remove(run / file);
      fs::remove(kept_at("new"));
      BaselineSettings settings;
      settings.fails_inconclusive = how == 2;
      settings.baseline = how > 0 ? "main" : "";
      settings.save_baseline = "new";
      std::vector<std::string> said;
      const int code = RunBaselines(settings, {}, false)
                           .conclude(head, run, head.exit_code,
                                     [&](const std::string& text) { said.push_back(text); });
      CHECK(code == end.codes[how]);
      const std::string& unfit = how == 0 ? end.alone : end.against;
      CHECK(fs::exists(kept_at("new")) == unfit.empty());
      if (unfit.empty()) CHECK(text_of(kept_at("new")) == end.name);
      for (const char* file : {"gate.md", "gate.json", "gate-junit.xml"})
        CHECK(fs::exists(run / file) == (how > 0 && unfit != "-"));
      if (unfit == "-") {
        CHECK(said.empty());
      } else {
        const std::string last =
            unfit.empty() ? "kept: " + kept_at("new").string() : "not kept: " + unfit;
        CHECK(said.back() == "baseline new: " + last);
        CHECK(said.size() == (how > 0 && unfit.starts_with("the gate") ? 2 : 1));
      }
    }
  }
}

TEST_CASE("a run that could not be compared with its baseline is refused before it starts") {
  const TemporaryFolder data;
  const ScopedVariable home("XDG_DATA_HOME", data.path().c_str());
  const fs::path folder = baseline_file("", "main").parent_path().parent_path();
  BaselineSettings settings;
  settings.baseline = "other";
  const auto open = [&] { return RunBaselines(settings, {}, false); };
  const std::string nothing = "--baseline other: found nothing in " + (folder / "other").string();
  CHECK(error_line(open) == nothing + "; there is none yet");
  const Report base = sound_report();
  for (const char* name : {"next", "main"}) {
    fs::create_directories(folder / name);
    write_file(baseline_file("", name), to_json(base).dump());
  }
  fs::create_directory(folder / "empty");
  CHECK(error_line(open) == nothing + "; there are main, next");

  settings.baseline = "main";
  const auto plan = [&](const CaseJob& job, const char* confidence = "0.95",
                        const std::vector<std::string>& builds = {}) {
    return error_line([&] {
      RunBaselines(settings, builds, false)
          .check_plan(base, {{"confidence", option(confidence)}}, {job});
    });
  };
  const std::string differs = "gate: baseline main and this run cannot be compared: ";
  CaseJob longer = job_of(kDepth);
  longer.n_gen = 12;
  CHECK(plan(job_of(kDepth)) == "accepted");
  CHECK(plan(longer) == differs + "case 'synthetic d=512 n=4': axes.n_gen: BASE '4', HEAD '12'");
  CHECK(plan(job_of(kDepth), "0.9") ==
        differs + "meta.options.confidence: BASE '0.95', HEAD '0.9'");
  settings.max_regress = 0.001;
  const std::string least = "--max-regress: found 0.001, wanted at least 0.012";
  CHECK_THAT(plan(job_of(kDepth)), ContainsText(least));
  settings.baseline = "";
  CHECK(plan(longer) == "accepted");
  CHECK_THAT(plan(longer, "0.95", {"old", "new"}), ContainsText(least));

  json edited = to_json(base);
  edited["cases"][0]["engines"][1]["tok_per_s"] = 1.5;
  write_file(baseline_file("", "main"), edited.dump());
  settings.baseline = "main";
  CHECK_THAT(error_line(ErrorKind::kIntegrity, open), ContainsText("--baseline main: "));
  // What cannot be kept is an error of a run that else has passed.
  settings = {};
  settings.save_baseline = "new";
  write_file(folder / "new", "a file in its way");
  std::string said;
  const auto say = [&](const std::string& text) { said += text; };
  CHECK(open().conclude(base, data.path(), 0, say) == 1);
  CHECK_THAT(said, ContainsText("error: --save-baseline: cannot make "));
  const ScopedVariable none("XDG_DATA_HOME", nullptr), no_home("HOME", nullptr);
  CHECK_THAT(error_line(ErrorKind::kRuntime, open), ContainsText("--save-baseline: no folder"));
}

}  // namespace mkbench::testing
