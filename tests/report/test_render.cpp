// What is printed of bad data: wrong tokens, failed prompts, numbers that are not there.
#include <algorithm>
#include <sstream>

#include "harness/judge/conclude.h"
#include "harness/report/junit.h"
#include "harness/report/render.h"
#include "tests/support/aggregated.h"
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

TEST_CASE("a note says what each engine handed to the card, for a token or for the whole decode") {
  const auto note = [](const LaunchTrace& trace, Verdict verdict = Verdict::kPass) {
    Report r = testing::example_report();
    r.cases.resize(1);
    r.cases[0].engines[1].launch_trace = trace;
    r.cases[0].engines[1].verdict = verdict;
    const std::string text = render_markdown(r), label = "- megakernel (plain): ";
    const size_t at = text.find(label);
    return at == std::string::npos
               ? ""
               : text.substr(at + label.size(), text.find('\n', at) - at - label.size());
  };
  CHECK(note({.tokens = 64,
              .kernels = 1,
              .copies = 2,
              .memsets = 1,
              .synchronisations = 1,
              .wall_ms = 50,
              .busy_ms = 49.6}) ==
        "1 launch for 64 tokens, 2 copies, 1 memset, 1 synchronisation; the GPU idled 1 % of "
        "50.00 ms");
  CHECK(note({.tokens = 64,
              .kernels = 64 * 402,
              .copies = 64 * 3,
              .synchronisations = 64 + 32,
              .wall_ms = 1234,
              .busy_ms = 481.26}) ==
        "402 launches a token, 3 copies, 1.5 synchronisations; the GPU idled 61 % of 1,234 ms");
  CHECK(note({.tokens = 8, .kernels = 16, .graph_launches = 8, .graph_nodes = 3200}) ==
        "3 launches a token (1 graph of 400 nodes)");
  CHECK(note({.problem = "no GPU"}) == "launches not run: no GPU");
  CHECK(note({.tokens = 8, .kernels = 16}, Verdict::kIntegrity).find("launch") ==
        std::string::npos);
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
  const FlatRows flat = flatten({&r, 1});
  std::istringstream lines(render(r, "jsonl"));
  std::string line;
  std::getline(lines, line);
  std::getline(lines, line);
  const json row = json::parse(line);
  size_t absent = 0;
  for (size_t i = 0; i < flat.columns.size(); ++i) {
    const std::string& name = flat.columns[i].name;
    const bool figure = name.rfind("ms_per_tok", 0) == 0 || name.rfind("speedup", 0) == 0 ||
                        name == "tok_per_s" || name.rfind("share", 0) == 0 || name == "r_rms";
    if (!figure) continue;
    INFO(name);
    ++absent;
    CHECK(flat.rows[1][i].is_null());
    CHECK(row.at(name).is_null());
  }
  CHECK(absent == 13);
  CHECK_THAT(render(r, "csv"), ContainsText("FAIL_TOKEN,10,,,,,,,,,,,,,,,,3,3,,160,0"));
  CHECK_THAT(render(r, "sql"),
             ContainsText("'FAIL_TOKEN', 10, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, "
                          "NULL, NULL, NULL, NULL, NULL, NULL, 3, 3, NULL, 160, 0"));
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
  CHECK_THAT(text, ContainsText("1 tie, R_rms 0.42 <= 1.5") && ContainsText("1 tie, R_step"));
}

TEST_CASE("JUnit counts failures, errors and what was left out, each as what it is") {
  const std::string text = render_junit(testing::example_failed_report());
  // One wrong prompt, one failed check, wrong receipts and the verdict; a hang and an unusable input;
  // three checks that do not apply and a skipped engine.
  CHECK_THAT(text,
             ContainsText("<testsuites name=\"mkbench\" tests=\"33\" failures=\"4\" errors=\"2\" "
                          "skipped=\"4\">"));
  CHECK_THAT(text,
             ContainsText("<testsuite name=\"synthetic d=4096 n=16\" tests=\"1\" failures=\"0\" "
                          "errors=\"1\" skipped=\"0\">"));
  CHECK_THAT(text, ContainsText("<error message=\"BAD_INPUT: ") &&
                       ContainsText("<skipped message=\"SKIPPED: not here\"/>"));
}

TEST_CASE("JUnit shows ten tokens of a prompt and says how many more differ") {
  for (const int wrong : {10, 11}) {
    Report r = testing::example_report();
    ParityReport& parity = *r.cases[0].engines[0].parity;
    parity.rows.assign(12, parity.rows[0]);
    for (int i = 0; i < wrong; ++i) {
      parity.rows[static_cast<size_t>(i)].position = 100 + i;
      parity.rows[static_cast<size_t>(i)].verdict = StepVerdict::kWrong;
    }
    const std::string text = render_junit(r);
    CHECK_THAT(text, ContainsText(std::to_string(wrong) + " of 12 tokens differ") &&
                         ContainsText("position 109: found") &&
                         !ContainsText("position 110: found"));
    CHECK((text.find("and 1 more") != std::string::npos) == (wrong == 11));
  }
}

TEST_CASE("each candidate shows the speed-up that is its own") {
  Report r = testing::example_report();
  r.cases.resize(1);
  r.cases[0].engines.push_back(testing::example_engine("other", "candidate", 4.5, 10, 16));
  aggregate(r.cases[0], 0.95, 1, false);
  const FlatRows flat = flatten({&r, 1});
  std::vector<size_t> places;
  for (const char* name : {"speedup_ci_low", "speedup", "speedup_ci_high"}) {
    for (size_t i = 0; i < flat.columns.size(); ++i)
      if (flat.columns[i].name == name) places.push_back(i);
  }
  REQUIRE(places.size() == 3);
  for (const auto& [engine, speedup] : {std::pair{1, 11.25}, {2, 2.0}}) {
    const auto& row = flat.rows[static_cast<size_t>(engine)];
    CHECK(row[places[0]] < row[places[1]]);
    CHECK(row[places[1]] < row[places[2]]);
    CHECK(row[places[1]].get<double>() == Approx(speedup).epsilon(2e-3));
  }
  CHECK_THAT(render_markdown(r), ContainsText("| 11.23x [") && ContainsText("| 1.996x ["));
}

TEST_CASE("with several baselines the speed-up is that over the fastest one that passed") {
  Report r = testing::example_report();
  r.cases.resize(1);
  r.cases[0].engines.push_back(testing::example_engine("graph", "baseline", 4.5, 10, 16));
  aggregate(r.cases[0], 0.95, 1, false);
  CHECK_THAT(render_markdown(r), ContainsText("| speed-up over the fastest baseline [") &&
                                     ContainsText("5.614x [") && !ContainsText("| 11.23x"));
  r.cases[0].engines.back().verdict = Verdict::kFailToken;
  aggregate(r.cases[0], 0.95, 1, false);
  CHECK_THAT(render_markdown(r), ContainsText("11.23x"));
}

TEST_CASE("why a baseline was skipped is said below the table, once") {
  Report r = testing::example_report();
  r.cases.resize(1);
  CaseReport& c = r.cases[0];
  c.engines.push_back(testing::example_engine("compiled", "baseline", 4.5, 10, 16));
  c.engines.back().verdict = Verdict::kSkipped;
  c.engines.back().reasons = {"compiled: no compiler"};
  c.verdict = Verdict::kPass;
  CHECK_THAT(render_markdown(r), ContainsText("\n- compiled: SKIPPED: compiled: no compiler\n"));
  c.verdict = Verdict::kPassLive;
  c.reasons = {"compiled: SKIPPED: compiled: no compiler"};
  CHECK_THAT(render_markdown(r), !ContainsText("\n- compiled: SKIPPED") &&
                                     ContainsText("\n  - compiled: SKIPPED: compiled: no"));
}

TEST_CASE("the ledger splits the way from an op-by-op baseline to a candidate") {
  Report r = testing::example_report();
  r.cases.resize(1);
  CaseReport& c = r.cases[0];
  CHECK(ledger_notes(c).empty());  // launches were not traced
  c.engines[0].ms_per_tok->mean = 16.8;
  c.engines[0].launch_trace = LaunchTrace{.tokens = 16, .kernels = 16 * 1810, .busy_ms = 40};
  c.engines[1].ms_per_tok->mean = 0.3;
  REQUIRE(ledger_notes(c).size() == 1);
  CHECK(
      ledger_notes(c)[0] ==
      "from eager (16.80 ms/tok) to megakernel (plain) (0.3000): the card is idle between eager's "
      "launches for 14.30, the rest is 2.200 ms/tok");
  c.engines.push_back(testing::example_engine("graph", "baseline", 2.4, 10, 16));
  c.engines[2].ms_per_tok = c.engines[0].ms_per_tok;
  c.engines[2].ms_per_tok->mean = 2.4;
  c.engines[2].launch_trace = LaunchTrace{.tokens = 16, .graph_launches = 16, .busy_ms = 38};
  CHECK_THAT(ledger_notes(c)[0],
             ContainsText("launches for 14.30, graph saves 14.40, the rest is 2.100 ms/tok"));
  // A baseline that is faster than the candidate is no step on its way, another candidate never is; the others
  // are, the slowest first.
  c.engines.push_back(c.engines[2]);
  c.engines[3].name = "compiled";
  c.engines[3].ms_per_tok->mean = 0.2;
  c.engines.push_back(c.engines[2]);
  c.engines[4].name = "triton";
  c.engines[4].role = "candidate";
  c.engines[4].ms_per_tok->mean = 1.4;
  REQUIRE(ledger_notes(c).size() == 2);
  CHECK_THAT(ledger_notes(c)[0], ContainsText("graph saves 14.40, the rest is 2.100 ms/tok"));
  CHECK_THAT(ledger_notes(c)[1], ContainsText("graph saves 14.40, the rest is 1.000 ms/tok"));
  c.engines.push_back(c.engines[2]);
  c.engines[5].name = c.engines[5].resolved_name = "graph-pdl";
  c.engines[5].ms_per_tok->mean = 0.3;
  c.engines[1].launch_trace = LaunchTrace{.tokens = 16, .kernels = 1};
  CHECK_THAT(
      ledger_notes(c)[0],
      ContainsText("launches for 14.30, graph saves 14.40, graph-pdl 2.100 more, the rest is "
                   "0.0000 ms/tok, in one launch"));
  CHECK_THAT(ledger_notes(c)[1], ContainsText("graph saves 14.40, the rest is 1.000 ms/tok"));
  for (const auto& [kernels, graphs] : {std::pair{2, 0}, {0, 1}, {1, 1}}) {
    c.engines[1].launch_trace->kernels = kernels;
    c.engines[1].launch_trace->graph_launches = graphs;
    CHECK_THAT(ledger_notes(c)[0], !ContainsText("in one launch"));
  }
  c.engines[0].launch_trace->problem = "CUPTI: not permitted";
  CHECK(ledger_notes(c).empty());
}

TEST_CASE("Markdown says why a passing engine has no times, and that a run was cut short") {
  Report r = testing::example_report();
  r.cases.resize(1);
  r.cases[0].engines[1].samples.clear();
  aggregate(r.cases[0], 0.95, 1, false);
  CHECK_THAT(render_markdown(r),
             ContainsText("times withheld: no samples were taken") && !ContainsText("INTERRUPTED"));
  r.interrupted = true;
  CHECK_THAT(render_markdown(r), ContainsText("**INTERRUPTED.** This report is partial."));
}

TEST_CASE(
    "Markdown shows the mean with its interval, and every ratio with its verdict and margin") {
  Report r = testing::example_report();
  r.cases.resize(1);
  CaseReport& c = r.cases[0];
  c.engines.push_back(testing::example_engine("other", "candidate", 0.4, 10, 16));
  c.memory.least_ms = 0;  // else 0.4 ms is impossible
  // One block of the median engine is slow: the mean moves, the median does not.
  c.engines[1].samples[4].times.host_ms *= 1.5;
  aggregate(c, 0.95, 1, false);
  const Summary& s = *c.engines[1].ms_per_tok;
  CHECK(s.mean > s.median * 1.03);
  const std::string text = render_markdown(r);
  CHECK_THAT(text, ContainsText("ms/tok, mean [95 % CI]") &&
                       ContainsText("| " + digits(s.mean) + " [" + digits(s.ci->low) + ", "));
  CHECK_THAT(text,
             ContainsText("- 10 blocks in 5 processes of each engine: the intervals are of the "
                          "processes' means\n"));
  CHECK_THAT(text, ContainsText("- other over eager: 22.4") &&
                       ContainsText("]: FASTER (margin 1 %: no calibration of this machine)\n") &&
                       ContainsText("- other over megakernel: "));
  CHECK_THAT(text, !ContainsText("lag-1") && !ContainsText("settled"));

  for (EngineReport& e : c.engines) {
    for (Sample& sample : e.samples) {
      sample.process = 0;
      sample.times.host_ms *= 1 + 0.01 * sample.block;
    }
  }
  c.engines[1].warm_ups = {
      {.process = 0, .runs = 9, .seconds = 10, .time_change = 0.007, .clock_change = -0.001}};
  aggregate(c, 0.95, 1, false);
  CHECK_THAT(
      render_markdown(r),
      ContainsText("- 10 blocks in one process: the intervals do not cover") &&
          ContainsText(": INCONCLUSIVE (one process gives no verdict; --processes takes more)\n") &&
          ContainsText("- eager: neighbouring blocks correlate (lag-1 1.00), for which its") &&
          ContainsText("times as wide; its times change by +0.9") &&
          ContainsText("- megakernel (plain): not settled after a warm-up of 10 s in 1 of 1 "
                       "processes (between its last two windows the time changed by +0.7 %, "
                       "the clock by -0.1 %)\n"));
  c.engines[0].ms_per_tok->ci.reset();  // the interval would reach below 0
  CHECK_THAT(render_markdown(r),
             ContainsText("- eager: neighbouring blocks correlate (lag-1 1.00); "
                          "its times change by +0.9"));
}

TEST_CASE("prefill tests have a table of their own, without engines that only judge") {
  Report r = testing::example_report();
  r.cases.resize(2);
  for (CaseReport& c : r.cases) c.n_gen = c.depth = 0;
  r.cases[1].n_prompt = 512;  // the first is parity alone
  r.cases[1].engines[0].timed = false;
  r.cases[1].engines[0].samples.clear();
  for (Sample& s : r.cases[1].engines[1].samples) s.prefill_ms = 0.5 * s.times.host_ms;
  for (CaseReport& c : r.cases) aggregate(c, 0.95, 1, false);
  const std::string text = render_markdown(r);
  // The headline is the time to the first token; the prefill alone stands beside it.
  const EngineReport& kernel = r.cases[1].engines[1];
  CHECK(*kernel.ttft_ms.value == *kernel.host_ms.value);
  CHECK(*kernel.prefill_ms.value == Approx(0.5 * *kernel.ttft_ms.value).epsilon(1e-3));
  CHECK_FALSE(r.cases[0].engines[1].ttft_ms.value.has_value());
  CHECK_THAT(text, ContainsText("TTFT ms, median | prefill alone |") && ContainsText(" 13.63 |") &&
                       ContainsText(" 6.816 |"));
  CHECK_THAT(text, ContainsText("| checks passed |") && ContainsText("## synthetic, prefill") &&
                       ContainsText("| pp512 | megakernel (plain)") &&
                       !ContainsText("| pp512 | eager"));
}

TEST_CASE(
    "Markdown tells of state receipts, of engines without late ids, and of ids that come again") {
  Report r = testing::example_report();
  r.cases.resize(1);
  CHECK_THAT(render_markdown(r),
             ContainsText("- state receipts, all equal: eager 1 of 10 blocks (logits and KV rows), "
                          "megakernel (plain) 1 of 10 blocks (logits and KV rows)\n") &&
                 !ContainsText("late id"));
  r.cases[0].engines[1].samples[3].late_id = r.cases[0].engines[1].samples[2].late_id;
  CHECK_THAT(render_markdown(r), ContainsText("9 late ids for 10 blocks"));
  r.cases[0].engines[1].samples[3].late_id.reset();
  aggregate(r.cases[0], 0.95, 1, false);
  CHECK_THAT(render_markdown(r), ContainsText("megakernel (plain): no late id: the engine knows") &&
                                     ContainsText("] (no late id) |"));
}

TEST_CASE("Markdown says which theta and head were used, and what the engine wrote") {
  Report r = testing::example_report();
  r.cases.resize(1);
  CaseReport& c = r.cases.front();
  CHECK_THAT(render_markdown(r), !ContainsText("rope_theta") && !ContainsText("text by"));
  c.rope_theta = 1000000;
  c.rope_theta_key = "rope_parameters.rope_theta";
  c.head = "the embedding";
  ParityReport& parity = c.engines.back().parity.emplace();
  parity.text_prompt = "The capital\nof France is";
  parity.text = " Paris.";
  const std::string text = render_markdown(r);
  CHECK_THAT(
      text,
      ContainsText("- rope_theta 1000000 (rope_parameters.rope_theta); LM head: the embedding\n"));
  CHECK_THAT(text, ContainsText("\"The capital\\nof France is\" -> \" Paris.\"\n"));
  c.rope_theta = 10000.5;
  c.rope_scaling = "linear, factor 2";
  c.head.clear();
  CHECK_THAT(render_markdown(r),
             ContainsText(
                 "- rope_theta 10000.5 (rope_parameters.rope_theta); scaled: linear, factor 2\n"));
  CHECK_THAT(render_markdown(r), !ContainsText("not covered") && !ContainsText("rounded to bf16") &&
                                     !ContainsText("the format costs"));
  c.format_cost = FormatCost{
      .original = "whole", .steps = 12, .kl = 0.0123, .largest_kl = 0.5, .same_top = 0.75};
  const std::string costs =
      "against whole, over 12 ids: KL 0.0123 a step (largest 0.5), the same largest logit at 75.0 "
      "%";
  CHECK_THAT(render_markdown(r), ContainsText("- the format costs, " + costs + "\n"));
  CHECK_THAT(render_junit(r),
             ContainsText("<property name=\"format_cost\" value=\"" + costs + "\"/>"));
  c.format_cost->text_steps = 5;
  c.format_cost->original_perplexity = {20.0, ""};
  c.format_cost->perplexity = {22.5, ""};
  CHECK_THAT(render_markdown(r),
             ContainsText(costs + ", perplexity 22.5 in place of 20 over 5 ids of text\n"));
  c.rounded = "24 F32 of 24\ntensors";
  CHECK_THAT(render_markdown(r), ContainsText("- 24 F32 of 24\\ntensors are rounded to bf16, for "
                                              "truth, baselines and engines alike\n"));
  c.notes = {"not read:\nx"};
  CHECK_THAT(render_markdown(r), ContainsText("engines alike\n- not read:\\nx\n"));
  c.reads = {.fixed = 1000, .rows = {{20, 0}, {30, 31}}};
  CHECK_THAT(render_markdown(r),
             ContainsText("- a decode step reads 1,000 bytes of parameters and states, 20 of each "
                          "position before it, 30 of each of the last 31 positions\n"));
  c.reads = {.unknown = "no\nidea"};
  CHECK_THAT(render_markdown(r),
             ContainsText("- what a decode step reads is not known: no\\nidea\n"));
  c.model_kind = "qwen3_tts";
  c.not_covered = {"code predictor: 1 tensor, 8 bytes", "speech\ntokenizer"};
  CHECK_THAT(
      render_markdown(r),
      ContainsText("- qwen3_tts: the decoder's trunk alone was run, by ids; not covered: code "
                   "predictor: 1 tensor, 8 bytes; speech\\ntokenizer\n"));
}

TEST_CASE("flat forms quote what would break them") {
  Report r = testing::example_report();
  r.cases.resize(1);
  r.cases[0].engines.resize(1);
  for (const char* name : {"a,b", "a\"b", "a\nb", "a\rb"}) {
    r.cases[0].name = name;
    std::string quoted = name;
    if (const size_t at = quoted.find('"'); at != std::string::npos) quoted.insert(at, "\"");
    CHECK_THAT(render(r, "csv"), ContainsText("\n\"" + quoted + "\",synthetic,"));
  }
  r.cases[0].name = "it's";
  CHECK_THAT(render(r, "csv"), ContainsText("\nit's,synthetic,"));
  CHECK_THAT(render(r, "sql"), ContainsText("VALUES ('it''s', 'synthetic', "));
  CHECK(with_commas(-123456) == "-123,456");
}

TEST_CASE("a note names an engine that is quicker where nobody looks, or was not observed") {
  CaseReport c = testing::example_case(512);
  const auto told = [&](const std::string& text) {
    const std::vector<std::string> notes = timing_notes(c);
    return std::count(notes.begin(), notes.end(), text);
  };
  const size_t plain = timing_notes(c).size();
  c.engines[1].observed.reason = kObservedNotAsked;
  CHECK(timing_notes(c).size() == plain);
  c.engines[1].observed.reason = "it gives no logits";
  CHECK(timing_notes(c).size() == plain);  // its times are not shown either
  c = testing::aggregated(c);
  CHECK(told("megakernel (plain): not observed: it gives no logits") == 1);
  c.engines[1].observed.caution = "quicker where nobody looks";
  CHECK(told("megakernel (plain): quicker where nobody looks") == 1);
}
