// The command line: every flag, its environment variable, lists, and refusals.
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "harness/cli/commands/selftest_case.h"
#include "harness/cli/outlook.h"
#include "harness/cli/progress.h"
#include "harness/settings/values.h"
#include "tests/support/command_line.h"

namespace mkbench {
namespace {

using namespace testing;

TEST_CASE("an empty command line is the main job with the documented defaults") {
  const RunSettings o = settings_of({});
  CHECK(o.command == "run");
  CHECK(o.compare == std::vector<std::string>{"eager"});
  CHECK(o.engines.empty());
  CHECK(o.models.empty());
  CHECK(o.device == DeviceChoice::kAuto);
  CHECK(o.gpu == 0);
  CHECK(o.n_prompt == std::vector<int>{0});
  CHECK(o.n_gen == std::vector<int>{128});
  CHECK(o.n_depth == std::vector<int>{0});
  CHECK(o.ids.empty());
  CHECK_FALSE(o.blocks.has_value());  // the device's default
  CHECK_FALSE(o.processes.has_value());
  CHECK(o.max_blocks == 30);
  CHECK(o.target_rel_ci == 0);
  CHECK_FALSE(o.time_anyway);
  CHECK_FALSE(o.warmup.has_value());
  CHECK_FALSE(o.random_order);
  CHECK(o.seed == 1);
  CHECK(o.confidence == 0.95);
  CHECK_FALSE(o.parity_table);
  CHECK_FALSE(o.require_reference);
  CHECK(o.format == "md");
  CHECK(o.junit.empty());
  CHECK(o.plot);
  CHECK(o.nvtx == NvtxMode::kBlock);
  CHECK(o.timeout_s == 300);
  CHECK_FALSE(o.ablations);
  CHECK_FALSE(o.in_process);
  CHECK(o.fault == PlantedFault::kNone);
}

TEST_CASE("every flag reaches its option") {
  const RunSettings o = settings_of(
      words("run --compare eager --engine ring,plain,host-twin --model tiny,synthetic:deep "
            "--device cpu --gpu 1 -p 16 -n 8,16 -d 0-4*2 --blocks 3 --max-blocks 5 "
            "--target-rel-ci 0.01 --time-anyway --warmup 0 --order random --seed "
            "18446744073709551615 --confidence 0.9 --parity prompt --parity-table "
            "--reference refs --require-reference -o csv --out folder --no-plot --nvtx off "
            "--timeout 1.5 --in-process --ablations --list-devices --dry-run -q -v "
            "--plant-fault rope_theta"));
  CHECK(o.engines == std::vector<std::string>{"ring", "plain", "host-twin"});
  CHECK(o.models == std::vector<std::string>{"tiny", "synthetic:deep"});
  CHECK(o.device == DeviceChoice::kCpu);
  CHECK(o.gpu == 1);
  CHECK(o.n_prompt == std::vector<int>{16});
  CHECK(o.n_gen == std::vector<int>{8, 16});
  CHECK(o.n_depth == std::vector<int>{0, 1, 2, 4});
  CHECK(o.blocks == 3);
  CHECK(o.max_blocks == 5);
  CHECK(o.target_rel_ci == 0.01);
  CHECK(o.time_anyway);
  CHECK(o.warmup == 0);
  CHECK(o.random_order);
  CHECK(o.seed == 18446744073709551615ull);
  CHECK(o.confidence == 0.9);
  CHECK(o.parity_table);
  CHECK(o.reference_dir == "refs");
  CHECK(o.require_reference);
  CHECK(o.format == "csv");
  CHECK(o.out == "folder");
  CHECK_FALSE(o.plot);
  CHECK(o.nvtx == NvtxMode::kOff);
  CHECK(o.timeout_s == 1.5);
  CHECK(o.ablations);
  CHECK(o.in_process);
  CHECK(o.list_devices);
  CHECK(o.dry_run);
  CHECK(o.quiet);
  CHECK(o.verbose);
  CHECK(o.fault == PlantedFault::kRopeTheta);
  CHECK(settings_of({"--junit", "a/b.xml"}).junit == "a/b.xml");
  CHECK(settings_of({"--ids", "1,2,3"}).ids == std::vector<int32_t>{1, 2, 3});
  CHECK(settings_of({"--model", "tiny", "--model", "tiny-untied"}).models.size() == 2);
}

TEST_CASE("--only names a prompt, a step, or the file of one") {
  CHECK(settings_of({"parity", "--only", "corpus-17"}).only_prompt == "corpus-17");
  CHECK_FALSE(settings_of({"parity", "--only", "corpus-17"}).only.has_value());
  const RunSettings step = settings_of({"parity", "--only", "a:b:12"});
  CHECK(step.only_prompt.empty());
  REQUIRE(step.only.has_value());
  CHECK(step.only->prompt == "a:b");
  CHECK(step.only->position == 12);
  CHECK(holds(refusal({"parity", "--only", ":12"}), "names no prompt"));
}

TEST_CASE("report's --out is a file or the folder of pictures, not that of a report") {
  const auto help = [](const std::string& command) {
    const auto none = [](const std::string&) { return std::nullopt; };
    return parse_command_line({command, "--help"}, none, {}).early_exit->text;
  };
  CHECK(holds(help("report"), "or folder of pictures"));
  CHECK_FALSE(holds(help("report"), "mkbench-report-"));
  CHECK(holds(help("run"), "[mkbench-report-<time>]"));
  CHECK(value_of({"report", "r.json", "--out", "p"}, "out") == "p");
}

TEST_CASE("the first variable of the locale that is set says whether UTF-8 is shown") {
  struct Row {
    Variables variables;
    bool utf8;
  };
  for (const Row& row : {Row{{}, false}, Row{{{"LANG", "en_GB.UTF-8"}}, true},
                         Row{{{"LC_CTYPE", "C"}, {"LANG", "en_GB.UTF-8"}}, false},
                         Row{{{"LC_ALL", ""}, {"LC_CTYPE", "C.utf8"}}, true},
                         Row{{{"LC_ALL", "C"}, {"LC_CTYPE", "C.UTF-8"}}, false}}) {
    const EnvironmentLookup lookup = [&](const std::string& name) -> std::optional<std::string> {
      const auto found = row.variables.find(name);
      return found != row.variables.end() ? std::optional(found->second) : std::nullopt;
    };
    CHECK(locale_is_utf8(lookup) == row.utf8);
  }
}

TEST_CASE("a duration is told in the unit that fits it") {
  for (const auto& [seconds, text] :
       {std::pair{0.84, "0.8 s"}, {85.4, "85 s"}, {720.0, "12 min"}, {12'240.0, "3.4 h"}})
    CHECK(duration_text(seconds) == text);
}

TEST_CASE("the environment stands between the command line and the defaults, for every flag") {
  const Variables variables = {
      {"MKBENCH_N_GEN", "64"}, {"MKBENCH_DEVICE", "cpu"}, {"MKBENCH_PLOT", "off"}};
  const RunSettings o = settings_of({"-n", "7"}, variables);
  CHECK(o.n_gen == std::vector<int>{7});
  CHECK(o.device == DeviceChoice::kCpu);
  CHECK_FALSE(o.plot);
  CHECK(settings_of({}, {{"MKBENCH_N_GEN", ""}}).n_gen == std::vector<int>{128});
  const nlohmann::json meta = options_to_json(o);
  CHECK(meta["n-gen"]["source"] == "command line");
  CHECK(meta["n-gen"]["value"] == "7");
  CHECK(meta["device"]["source"] == "environment");
  CHECK(meta["blocks"]["source"] == "default");
  // A value that no flag takes shows that each variable is read.
  const std::set<std::string> free_text = {"model", "python",    "reference", "out",
                                           "junit", "libraries", "only",      "resume",
                                           "label", "kernel",    "original"};
  const std::map<std::string_view, std::vector<std::string>> arguments = {
      {"inspect", {"tiny"}},   {"fleet", {"plan.toml"}},  {"gate", {"a", "b"}},
      {"compare", {"a", "b"}}, {"report", {"r"}},         {"verify", {"r"}},
      {"fetch", {"a/b"}},      {"new-engine", {"e", "c"}}};
  for (const CommandRow& row : command_rows()) {
    for (const FlagWords& flag : row.flags) {
      if (free_text.count(std::string(flag.name)) != 0) continue;
      INFO(row.name << " " << flag.env());
      std::vector<std::string> command = {std::string(row.name)};
      if (const auto more = arguments.find(row.name); more != arguments.end())
        command.insert(command.end(), more->second.begin(), more->second.end());
      CHECK(holds(refusal(command, {{flag.env(), "no such value,"}}), flag.env()));
    }
  }
}

TEST_CASE("engines that are files are taken by their path; one in Python is not in this process") {
  const RunSettings o =
      settings_of({"--engine", "./mine.so,ring,./mine.py", "--python", "venv/python"});
  CHECK(o.engines == std::vector<std::string>{"./mine.so", "ring", "./mine.py"});
  CHECK(o.python == "venv/python");
  CHECK(settings_of({"parity"}, {{"MKBENCH_PYTHON", "python3.14"}}).python == "python3.14");
  CHECK(settings_of({}).python.empty());
  CHECK_THROWS_WITH(settings_of({"--engine", "ring,./mine.py", "--in-process"}),
                    ContainsText("--in-process: ./mine.py is an engine in Python"));
  for (const char* flag : {"--engine", "--compare"})
    CHECK_THROWS_WITH(settings_of({flag, "graph,hf", "--in-process"}),
                      ContainsText("--in-process: hf is an engine in Python"));
  CHECK(settings_of({"--engine", "./mine.so", "--in-process"}).in_process);
}

TEST_CASE("an unknown MKBENCH_* variable causes a warning, other variables do not") {
  const ParsedCommandLine parsed =
      parse({}, {{"MKBENCH_N_GENN", "1"}, {"MKBENCH_DATA_DIR", "x"}, {"MKBENCH_SEED", "2"}});
  REQUIRE(parsed.warnings.size() == 1);
  CHECK(holds(parsed.warnings[0], "MKBENCH_N_GENN"));
  CHECK(holds(parsed.warnings[0], "MKBENCH_N_GEN?"));
}

TEST_CASE("lists of numbers and words are parsed") {
  CHECK(parse_int_list("d", "16,32", 0) == std::vector<int>{16, 32});
  CHECK(parse_int_list("d", "0-16*2", 0) == std::vector<int>{0, 1, 2, 4, 8, 16});
  CHECK(parse_int_list("d", "128-512+128", 0) == std::vector<int>{128, 256, 384, 512});
  CHECK(parse_int_list("d", "5,1-4+1,5", 0) == std::vector<int>{5, 1, 2, 3, 4});
  CHECK(parse_int_list("d", "0-4096*2", 0).back() == 4096);
  CHECK(parse_int_list("d", "3-20*3", 0) == std::vector<int>{3, 9});
  CHECK(parse_int_list("d", "3-3+1", 0) == std::vector<int>{3});
  CHECK_THROWS_WITH(parse_int_list("d", "1-5*1", 0), ContainsText("a whole number of at least 2"));
  for (const std::string bad :
       {"", ",", "1,", ",1", "x", "1-5", "5-1+1", "1-5*1", "1-5+0", "-1", "1.5", "1-5*",
        "0-1000000+1", "99999999999", "1-2-3+1", "+1", " 1", "0x10"}) {
    INFO(bad);
    CHECK_THROWS_AS(parse_int_list("n-depth", bad, 0), Error);
  }
  CHECK_THROWS_AS(parse_int_list("n-gen", "0", 1), Error);
}

TEST_CASE("a switch takes true, 1, on, yes and their opposites") {
  for (const char* text : {"true", "1", "on", "yes"}) CHECK(parse_switch("plot", text));
  for (const char* text : {"false", "0", "off", "no"}) CHECK_FALSE(parse_switch("plot", text));
  for (const char* text : {"", "2", "On", "maybe"})
    CHECK_THROWS_AS(parse_switch("plot", text), Error);
}

TEST_CASE("usage errors name the flag, and the nearest known one") {
  struct Row {
    std::vector<std::string> args;
    std::string part, other;
  };
  const std::vector<Row> rows = {
      {{"--bloks", "3"}, "--bloks", "--blocks"},
      {{"--n-gne=3"}, "--n-gne", "--n-gen"},
      {{"-x"}, "-x", "unknown"},
      {{"--compare", "eager,compilde"}, "compilde", ""},
      {{"--compare", "eagr"}, "eagr", "eager"},
      {{"--compare", "none,eager"}, "none", "excludes other names"},
      {{"--compare", "./other.so"}, "other.so", "unknown"},
      {{"--engine", "hosttwin"}, "hosttwin", "host-twin"},
      {{"--parity", "all"}, "all", "prompt"},
      {{"--nvtx", "token"}, "token", ""},
      {{"--parity", "off"}, "--parity", "off"},
      {{"--device", "gpu"}, "--device", "auto, cuda, cpu"},
      {{"--order", "baab"}, "--order", "abba"},
      {{"-o", "xml"}, "--output", "jsonl"},
      {{"-n", "0"}, "--n-gen", "0"},
      {{"-n"}, "n-gen", ""},
      {{"-n", ""}, "--n-gen", "empty"},
      {{"--blocks", "0"}, "--blocks", "0"},
      {{"--blocks", "ten"}, "--blocks", "ten"},
      {{"--blocks", "3", "--blocks", "4"}, "--blocks: found 2 times", "wanted once"},
      {{"--blocks", "8", "--max-blocks", "4"}, "--max-blocks", "--blocks"},
      {{"--max-blocks", "4"}, "--max-blocks", "--blocks 10"},
      {{"--blocks", "4", "--processes", "5"}, "--blocks 4", "--processes 5"},
      {{"--processes", "0"}, "--processes", "0"},
      {{"--processes", "2", "--in-process"}, "--in-process", "--processes"},
      {{"--confidence", "1"}, "--confidence", "1"},
      {{"--timeout", "0"}, "--timeout", "0"},
      {{"--timeout", "nan"}, "--timeout", "nan"},
      {{"--target-rel-ci", "2"}, "--target-rel-ci", "2"},
      {{"--ids", "1,-2"}, "--ids", "-2"},
      {{"--ids", "1,,2"}, "--ids", "empty item"},
      {{"--ids", "1", "--ids", ""}, "--ids", "empty item"},
      {{"-n", "8,"}, "--n-gen", "empty item"},
      {{"tune", "--blocks", "3"}, "--blocks", "tune"},
      {{"--ids", "1,2", "-d", "4"}, "--ids", "--n-depth"},
      {{"--seed", "-1"}, "--seed", "-1"},
      {{"--plant-fault", "none"}, "--plant-fault", "rope_theta"},
      {{"endure"}, "endure", ""},
      {{"docter"}, "docter", "doctor"},
      {{"run", "stray"}, "stray", "unexpected"},
      {{"report"}, "report", "folder"},
      {{"report", "a", "b"}, "html of 2 reports", "a file by --out"},
      {{"report", "a", "b", "-o", "svg"}, "svg of 2 reports", "a folder by --out"},
      {{"gate", "a", "b", "-o", "csv"}, "--output", "annotations"},
      {{"list", "fruits"}, "mkbench list: 'fruits'", "engines"},
      {{"doctor", "--blocks", "3"}, "--blocks", "doctor"},
      {{"doctor", "-o", "csv"}, "--output", "md, json"},
      {{"doctor", "--strict=maybe"}, "strict", ""},
      {{"--strict"}, "--strict", "run"},
      {{"--resume", "x", "--dry-run"}, "--resume and --dry-run exclude", ""},
      {{"parity", "--resume", "x", "--only", "a"}, "--resume and --only exclude", ""},
      {{"profile"}, "profile: wanted --tool nsys", "--timeline"},
      {{"profile", "--tool", "gdb"}, "--tool: 'gdb'", "nsys, ncu"},
      {{"profile", "--tool", "ncu", "--blocks", "2"}, "--blocks 2", "the launch of one block"},
      {{"profile", "--tool", "nsys", "--kernel", "a"}, "--kernel: it chooses", "--tool ncu"},
      {{"profile", "--timeline", "--launch", "1"}, "--launch: it chooses", "--tool ncu"},
      {{"profile", "--tool", "nsys", "--nvtx", "off"}, "--nvtx: 'off'", "block, token"},
      {{"profile", "--tool", "nsys", "--compare", "eager"}, "'--compare'", "mkbench profile"},
      {{"profile", "--tool", "nsys", "--in-process"}, "--in-process: the tool", "one engine"},
      {{"profile", "--timeline", "--tool", "ncu"}, "--timeline: no tool runs", "found --tool"},
      {{"profile", "--timeline", "--print"}, "--timeline", "command to --print"},
      {{"profile", "--timeline", "--nvtx", "token"}, "--timeline", "found --nvtx token"},
      {{"audit", "--tiles", "0"}, "--tiles", "'0'"},
      {{"audit", "--tiles", "many"}, "--tiles", "many"},
      {{"audit", "--method", "guess"}, "--method", "guess"},
      {{"audit", "-n", "0"}, "--n-gen", "'0'"},
      {{"audit", "-d", "-1"}, "--n-depth", "-1"},
      {{"audit", "--seed", "x"}, "--seed", "'x'"},
      {{"audit", "--blocks", "3"}, "--blocks", "audit"},
      {{"soak", "--engine", "host-twin,compiled"}, "found 2 names", "wanted one"},
      {{"soak", "--context", "5"}, "--context", "a whole number of at least 128"},
      {{"soak", "--resume", "x", "--step", "3"}, "--step: ", "without --resume"},
      {{"soak", "--resume", "x", "--out", "y"}, "--out: ", "its own folder"},
  };
  for (const Row& row : rows) {
    INFO(row.args[0] << " " << (row.args.size() > 1 ? row.args[1] : ""));
    const std::string message = refusal(row.args);
    INFO(message);
    CHECK(holds(message, row.part));
    CHECK(holds(message, row.other));
    CHECK(message.find('\n') == std::string::npos);
  }
}

TEST_CASE("help shows the flags of its command, and hides the flags for tests") {
  const ParsedCommandLine parsed = parse({"--help"});
  REQUIRE(parsed.early_exit.has_value());
  CHECK(parsed.early_exit->exit_code == 0);
  std::set<std::string_view> of_run;
  for (const FlagWords& flag : command_rows().front().flags) {
    if (!flag.hidden) of_run.insert(flag.name);
  }
  for (const CommandRow& row : command_rows()) {
    for (const FlagWords& flag : row.flags) {
      INFO(flag.name);
      // The command list at the top may name flags that this command does not take.
      const std::string name = "--" + std::string(flag.name), &text = parsed.early_exit->text;
      const auto shown = [&](const std::string& before) {
        const std::string word = before + name;
        size_t at = text.find(word);
        while (at != std::string::npos && text[at + word.size()] == '-')  // --require-reference
          at = text.find(word, at + 1);
        return at != std::string::npos;
      };
      CHECK((shown("  ") || shown(",")) == (of_run.count(flag.name) != 0));
    }
  }
}

TEST_CASE("version and commands") {
  CHECK(holds(parse({"--version"}).early_exit->text, "mkbench "));
  const auto command = [](const std::vector<std::string>& args) {
    return parse(args).command->name;
  };
  CHECK(command({"doctor", "--device", "cpu"}) == "doctor");
  const auto report = settings_of<CommandSettings>({"report", "a", "b", "--out", "c"});
  CHECK(report.command == "report");
  CHECK(report.arguments == std::vector<std::string>{"a", "b"});
  CHECK(parse({"report", "a", "b", "-o", "csv"}).command != nullptr);  // text needs no --out
  for (const auto& [words, text] : {std::pair{std::vector<std::string>{"help"}, "mkbench [run]"},
                                    {{"help", "soak"}, "mkbench soak"}})
    CHECK(holds(parse(words).early_exit->text, text));
  CHECK(holds(refusal({"help", "soke"}), "did you mean 'soak'?"));
  CHECK(command({"list"}) == "list");
  CHECK(command({"tune", "--gpu", "1"}) == "tune");
  CHECK(settings_of<CardSettings>({"tune", "--gpu", "1"}).gpu == 1);
  CHECK(settings_of<CommandSettings>({"tune", "--in-process"}).in_process);
  const auto selftest = settings_of<SelftestSettings>({"selftest", "--faults", "--libraries", "x"});
  CHECK((selftest.command == "selftest" && selftest.faults && selftest.libraries == "x"));
  CHECK_FALSE(settings_of<SelftestSettings>({"selftest"}).faults);
  CHECK(settings_of<SelftestSettings>({"selftest", "--timing"}).timing);
  CHECK(settings_of({"parity"}).whole_parity);
  CHECK_FALSE(settings_of({}).whole_parity);
  CHECK_FALSE(settings_of({"parity"}).keep_going);
  CHECK(settings_of({"parity", "--keep-going"}).keep_going);
  CHECK(holds(refusal({"run", "--keep-going"}), "--keep-going"));
  CHECK(settings_of({"--compare", "none"}).compare == std::vector<std::string>{"none"});
}

}  // namespace
}  // namespace mkbench
