// What is printed of bad data: wrong tokens, failed prompts, numbers that are not there.
#include <algorithm>
#include <sstream>

#include "harness/report/junit.h"
#include "harness/report/render.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;
using nlohmann::json;

TEST_CASE("Markdown and JUnit say how many timed tokens were wrong") {
  Report r = testing::example_report();
  r.cases[1].engines[1].receipts_wrong = 3;
  CHECK_THAT(render_markdown(r), ContainsText("timed tokens: 957 of 960 match the closed form"));
  CHECK_THAT(render_junit(r), ContainsText("3 of 160 timed ids differ"));
}

TEST_CASE("JUnit fails a strict prompt for anything but EXACT, another one for WRONG alone") {
  struct Row {
    size_t step;  // 0-2 stand in the strict prompt, 3-5 in the near-tie one
    StepVerdict verdict;
    const char* failed;  // prompt; null: none
  };
  for (const Row& row :
       {Row{1, StepVerdict::kTie, "counting (strict)"},
        Row{1, StepVerdict::kDrift, "counting (strict)"},
        Row{1, StepVerdict::kWrong, "counting (strict)"}, Row{1, StepVerdict::kExact, nullptr},
        Row{5, StepVerdict::kTie, nullptr}, Row{5, StepVerdict::kDrift, nullptr},
        Row{5, StepVerdict::kWrong, "capital (near-tie)"}}) {
    Report r = testing::example_report();
    r.cases.resize(1);
    r.cases[0].engines.erase(r.cases[0].engines.begin());
    r.cases[0].engines[0].parity->rows[row.step].verdict = row.verdict;
    const std::string text = render_junit(r);
    INFO(row.step << " " << step_verdict_name(row.verdict));
    const std::string failure =
        "\">\n      <failure message=\"1 of 3 tokens differ; first at position";
    for (const char* prompt : {"counting (strict)", "capital (near-tie)"}) {
      const bool fails = text.find(prompt + failure) != std::string::npos;
      CHECK(fails == (row.failed != nullptr && std::string(row.failed) == prompt));
    }
    CHECK_THAT(text, ContainsText(row.failed != nullptr ? "failures=\"1\"" : "failures=\"0\""));
  }
}

TEST_CASE("a number that is absent is printed as absent, never as 0") {
  Report r = testing::example_report();
  r.cases.resize(1);
  EngineReport& e = r.cases[0].engines[1];
  e.verdict = Verdict::kFailToken;
  e.parity->r_rms.reset();
  e.profile = testing::example_profile(770, 300);
  aggregate(r.cases[0], 0.95, 1, false);
  conclude(r);
  const FlatRows flat = flatten(r);
  std::istringstream lines(render(r, "jsonl"));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const json row = json::parse(line);
  size_t absent = 0;
  for (size_t i = 0; i < flat.columns.size(); ++i) {
    const std::string& name = flat.columns[i].name;
    const bool figure = name.rfind("ms_per_tok", 0) == 0 || name.rfind("speedup", 0) == 0 ||
                        name == "tok_per_s" || name == "roofline_fraction" || name == "r_rms";
    if (!figure) continue;
    INFO(name);
    ++absent;
    CHECK(flat.rows[1][i].is_null());
    CHECK(row.at(name).is_null());
  }
  CHECK(absent == 10);
  CHECK_THAT(render(r, "csv"), ContainsText("FAIL_TOKEN,10,,,,,,,,,,3,3,,160,0"));
  CHECK_THAT(render(r, "sql"), ContainsText("'FAIL_TOKEN', 10, NULL, NULL, NULL, NULL, NULL, NULL, "
                                            "NULL, NULL, NULL, 3, 3, NULL, 160, 0"));
  const std::string text = render_markdown(r);
  std::istringstream rows(text);
  std::vector<std::string> of_engine;
  while (std::getline(rows, line)) {
    if (line.find("| megakernel (plain)") == std::string::npos) continue;
    line.erase(std::remove(line.begin(), line.end(), ' '), line.end());
    of_engine.push_back(line);
  }
  CHECK(of_engine == std::vector<std::string>{"|0|megakernel(plain)|-|-|-|-|FAIL_TOKEN|",
                                              "|0|megakernel(plain)|-|-|-|-|-|"});
  CHECK_THAT(text, ContainsText("1 tie, R_rms 0.42 <= 1.25") && ContainsText("1 tie, R_step"));
}
