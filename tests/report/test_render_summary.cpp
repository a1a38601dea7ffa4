// The first screen of a run.
#include <algorithm>
#include <string>

#include "harness/report/render.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;

TEST_CASE(
    "the first screen: a row an engine, what failed and why, tokens, a caution, what to do next") {
  const auto screen = [](const Report& r) { return render_summary(r, 12.4, "out/report.html"); };
  const Report right = testing::example_report();
  const std::string text = screen(right);
  CHECK(std::count(text.begin(), text.end(), '\n') <= 15);
  CHECK_THAT(text,
             ContainsText("on cuda:0 Example GPU") && ContainsText("| RIGHT |") &&
                 ContainsText("timed tokens: 960 of 960 are right; tokens that the reference is "
                              "sure of: 9 of 9 equal\n") &&
                 ContainsText("**PASS** (exit code 0, 3 cases) in 12 s\n") &&
                 ContainsText("report: out/report.html\n"));
  Report r = right;
  r.cases[1].engines[1].share.value = 0.9;
  CHECK_THAT(screen(r), ContainsText("next: --compare eager,graph,compiled"));
  Report other = r;
  for (CaseReport& c : other.cases) {
    for (EngineReport& e : c.engines)
      if (e.name == "eager") e.name = e.resolved_name = "hf";
  }
  for (const double share : {0.9, 0.89}) {
    other.cases[1].engines[1].share.value = share;
    CHECK_THAT(screen(other), !ContainsText("next: "));
  }
  r.cases[1].engines[1].share.value = 0.89;
  CHECK_THAT(screen(r),
             ContainsText("next: mkbench profile --timeline --engine megakernel --model " +
                          r.cases[1].model + " -d " + std::to_string(r.cases[1].depth)));
  r.meta["warnings"] = {"this machine is busy", "another", "a third"};
  CHECK_THAT(screen(r), ContainsText("caution: this machine is busy\ncaution: another\n") &&
                            !ContainsText("a third"));
  r.cases.resize(1);
  r.cases[0].engines[1].parity->failed_step.emplace().command = "mkbench parity --only 'p:5'";
  CHECK_THAT(screen(r), !ContainsText("again: "));
  r.cases[0].verdict = r.cases[0].engines[1].verdict = r.verdict = Verdict::kFailToken;
  r.cases[0].reasons = {"megakernel: FAIL_TOKEN: 3 wrong"};
  r.exit_code = 3;
  CHECK_THAT(screen(r),
             ContainsText("| FAIL_TOKEN |") &&
                 ContainsText("FAIL_TOKEN: 3 wrong\nagain: mkbench parity --only 'p:5'\n") &&
                 ContainsText("**FAIL_TOKEN** (exit code 3, 1 case)") && !ContainsText("next:"));
  CHECK(first_lead(r).empty());
  ParityReport& parity = *r.cases[0].engines[1].parity;
  parity.facts = {"right with 1 KV row"};
  parity.diagnosis.text = "no known bug fits";
  parity.localised = "first wrong in layer 3, attention";
  CHECK(first_lead(r) == r.cases[0].model + ", megakernel: first wrong in layer 3, attention");
  parity.localised = "not localised: no step of a prompt is wrong";
  CHECK(first_lead(r).empty());
  parity.localised.clear();
  CHECK_THAT(screen(r), ContainsText("3 wrong\nbug: no known bug fits\nfact: right with 1 KV row\n"
                                     "again: mkbench parity"));
  parity.diagnosis = {.text = "the logits are those of: no q_norm", .names = {"skip_q_norm"}};
  CHECK_THAT(screen(r), ContainsText("3 wrong\nbug: the logits are those of: no q_norm\nagain: "));
  CHECK(first_lead(r) == r.cases[0].model + ", megakernel: the logits are those of: no q_norm");
  CHECK_THAT(screen(r), ContainsText("\ntimed tokens: "));
  r.cases[0].engines[1].receipts_checked = 0;
  CHECK_THAT(screen(r), ContainsText("\ntimed tokens of eager: "));
  r.cases[0].engines[1].verdict = Verdict::kPass;
  CHECK(first_lead(r).empty());
  CHECK_THAT(screen(testing::example_cpu_report()),
             ContainsText("caution: no GPU was used: the host twin runs the kernel's schedule") &&
                 ContainsText("next: on a machine with a GPU, scripts/remote.sh"));
  Report without_twin = testing::example_cpu_report();
  without_twin.cases[0].engines[1].name = "./mine.so";
  without_twin.cases[0].engines[1].resolved_name = "mine";
  CHECK_THAT(screen(without_twin),
             ContainsText("caution: no GPU was used: times on a CPU say nothing about a GPU\n") &&
                 ContainsText("next: the same command on a machine with a GPU") &&
                 !ContainsText("host twin") && !ContainsText("remote.sh"));
  Report rounded = right;
  rounded.cases[0].model = "./a";
  for (CaseReport& c : rounded.cases) c.rounded = "2 F16 of 24 tensors";
  rounded.cases[2].notes = {"not read: x"};
  rounded.cases[1].model = rounded.cases[2].model = "./b\n";
  const std::string note =
      ": 2 F16 of 24 tensors are rounded to bf16, for truth, baselines and engines alike\n";
  const std::string shown = screen(rounded);
  CHECK_THAT(shown,
             ContainsText("\n./a" + note + "./b\\n" + note + "./b\\n: not read: x\ntimed tokens"));
  CHECK(shown.find(note) == shown.find("./a" + note) + 3);
  Report unseen = right;
  unseen.cases[1].engines[1].observed.caution = "quicker where nobody looks: 1 ms";
  CHECK_THAT(screen(unseen),
             ContainsText("\ncaution: megakernel: quicker where nobody looks: 1 ms\n"));
  Report none = right;
  none.cases.clear();
  none.reasons = {"no card"};
  CHECK_THAT(screen(none), ContainsText("- no card\n") && !ContainsText("| model"));
}
