// Options of gate, of a run's baselines, and of the history.
#include "tests/support/command_line.h"

using namespace mkbench;
using namespace mkbench::testing;

TEST_CASE("flags of two versions: gate, baselines of a run, and the history") {
  const std::vector<std::string> given =
      words("gate a b --max-regress 0.03 --fail-on inconclusive -o json --junit j.xml");
  CHECK(settings_of<CommandSettings>(given).arguments == std::vector<std::string>{"a", "b"});
  const auto gate = settings_of<GateLimits>(given),
             plain = settings_of<GateLimits>({"gate", "a", "b"});
  CHECK((gate.max_regress == 0.03 && gate.fails_inconclusive));
  CHECK((value_of(given, "output") == "json" && value_of(given, "junit") == "j.xml"));
  CHECK_FALSE((plain.max_regress || plain.fails_inconclusive));
  CHECK(holds(refusal({"gate", "a"}), "gate: found 1 reports, wanted two"));
  CHECK(holds(refusal({"gate", "a", "b", "-o", "csv"}), "'csv' is not one of md, json"));
  CHECK(holds(refusal({"gate", "a", "b", "--max-regress", "-1"}), "a share of at least 0"));

  const RunSettings run =
      settings_of({"--baseline", "main-1.2_x", "--save-baseline", "y", "--history", "--max-regress",
                   "0.1", "--fail-on", "regression"});
  CHECK((run.baseline == "main-1.2_x" && run.save_baseline == "y" && run.history));
  for (const char* name : {"../x", "a/b", "a b", ".x", ""})
    CHECK_FALSE(refusal({"--save-baseline", name}).empty());
  CHECK(holds(refusal({"--baseline", "a/b"}), "--baseline: 'a/b' is no name; wanted letters"));
  CHECK(holds(refusal({"--baseline", std::string(101, 'x')}), "is no name"));
  CHECK(holds(refusal({"--max-regress", "0.1"}), "--max-regress goes with --baseline"));
  CHECK(holds(refusal({"--fail-on", "inconclusive"}), "--fail-on goes with --baseline"));
  for (const char* flag : {"--baseline", "--save-baseline"})
    CHECK(holds(refusal({"--tune", flag, "v1"}), "--tune gives each run a pace of its own"));
  CHECK(settings_of<RunSettings>({"--tune"}).tune);
  // A variable that is set for all of a user's gates does not end a run without one.
  CHECK(settings_of({}, {{"MKBENCH_MAX_REGRESS", "0.1"}}).max_regress == 0.1);

  const std::vector<std::string> add = {"history", "add", "r", "--label", "v 1"};
  CHECK(settings_of<CommandSettings>(add).arguments == std::vector<std::string>{"add", "r"});
  CHECK((value_of(add, "label") == "v 1" && value_of({"history", "--plot"}, "plot") == "true"));
  CHECK_FALSE(settings_of({}).history);
  CHECK(holds(refusal({"history", "add"}), "found no report"));
  CHECK(holds(refusal({"history", "drop"}),
              "found 'drop', wanted no argument, or 'add' and reports"));
  CHECK(holds(refusal({"history", "--label", "x"}), "--label goes with history add"));
  CHECK(holds(refusal({"history", "add", "r", "--plot"}), "--plot goes with history alone"));
  CHECK(parse({"history", "add", "r"}, {{"MKBENCH_PLOT", "on"}}).command->name == "history");
}
