// Results as other programs take them. test_formats.py reads them with those programs.
#include <algorithm>
#include <sstream>

#include "harness/report/render.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;
using nlohmann::json;

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// One engine of one case, which passed with 0.5 ms a token.
Report one_engine() {
  Report r = testing::example_report();
  r.cases.resize(1);
  r.cases[0].engines.erase(r.cases[0].engines.begin());
  r.cases[0].comparisons.clear();
  EngineReport& e = r.cases[0].engines[0];
  e.ms_per_tok->mean = 0.5;
  e.tok_per_s = {2000.0, {}};
  return r;
}

}  // namespace

TEST_CASE("Google Benchmark's JSON has a time for each timed engine, and names the others") {
  Report r = one_engine();
  r.cases[0].engines.reserve(3);
  EngineReport& e = r.cases[0].engines[0];
  e.samples.resize(3);
  for (Sample& sample : e.samples) sample.tokens = 64, sample.valid = true;
  e.samples[1].valid = false;
  EngineReport failed = e;
  failed.name = "broken", failed.verdict = Verdict::kFailToken, failed.ms_per_tok.reset();
  EngineReport judge = failed;
  judge.name = "judge", judge.timed = false;  // nobody asked for its time
  r.cases[0].engines.push_back(failed);
  r.cases[0].engines.push_back(judge);
  const json text = json::parse(render(r, "benchmark"));
  CHECK(text["context"]["json_schema_version"] == 1);
  CHECK(text["context"]["caches"] == json::array());
  CHECK(text["context"]["device"] == "cuda:0 Example GPU");
  CHECK(text["context"]["times_withheld"] ==
        json::array({r.cases[0].name + "/broken: FAIL_TOKEN"}));
  REQUIRE(text["benchmarks"].size() == 1);
  const json& one = text["benchmarks"][0];
  CHECK(one["name"] == r.cases[0].name + "/" + e.name);
  CHECK((one["real_time"] == 5e5 && one["cpu_time"] == 5e5 && one["time_unit"] == "ns"));
  CHECK((one["iterations"] == 128 && one["threads"] == 1 && one["run_type"] == "iteration"));
  CHECK((one["tok_per_s"] == 2000.0 && one["label"] == verdict_name(e.verdict)));
  CHECK_FALSE(one.contains("ttft_ms"));  // a number that is absent
  CHECK_FALSE(one.contains("engine"));   // Google's counters are numbers
}

TEST_CASE("times of equal names in several reports are repetitions") {
  std::vector<Report> reports = {one_engine(), one_engine(), one_engine()};
  reports[1].cases[0].engines[0].ms_per_tok->mean = 0.75;
  reports[2].cases[0].name = "another";
  const json all = json::parse(render(reports, "benchmark"))["benchmarks"];
  REQUIRE(all.size() == 3);
  CHECK((all[0]["repetitions"] == 2 && all[0]["repetition_index"] == 0));
  CHECK((all[1]["repetitions"] == 2 && all[1]["repetition_index"] == 1));
  CHECK(all[1]["real_time"] == 7.5e5);
  CHECK((all[2]["repetitions"] == 1 && all[2]["repetition_index"] == 0));
  // Two cards are no repetitions of one another, even of one kind.
  reports[1].environment["gpu"]["uuid"] = "GPU-2";
  const json cards = json::parse(render(reports, "benchmark"));
  for (const json& one : cards["benchmarks"]) CHECK(one["repetitions"] == 1);
  CHECK(std::string(cards["benchmarks"][1]["name"]).ends_with(" GPU-2"));
  reports[2].meta["started"] = "later";
  CHECK(json::parse(render(reports, "benchmark"))["context"]["date"] == "later");
}

TEST_CASE("OpenMetrics has base units, the last of equal labels, and an end") {
  std::vector<Report> reports = {one_engine(), one_engine()};
  EngineReport& e = reports[1].cases[0].engines[0];
  e.ms_per_tok->mean = 0.25;
  e.verdict = Verdict::kFailToken;
  const auto lines = lines_of(render(reports, "openmetrics"));
  const auto with = [&](const std::string& begin) {
    std::vector<std::string> found;
    std::copy_if(lines.begin(), lines.end(), std::back_inserter(found),
                 [&](const std::string& line) { return line.starts_with(begin); });
    return found;
  };
  REQUIRE(with("mkbench_token_seconds{").size() == 1);
  CHECK(with("mkbench_token_seconds{")[0].ends_with("} 0.00025"));
  CHECK(with("mkbench_tokens_per_second{")[0].ends_with("} 2000"));
  REQUIRE(with("mkbench_passed{").size() == 1);
  CHECK_THAT(with("mkbench_passed{")[0], ContainsText(",uuid=\""));
  CHECK(with("mkbench_passed{")[0].ends_with("} 0"));
  CHECK(with("# TYPE mkbench_token_seconds gauge").size() == 1);
  CHECK(with("# TYPE mkbench_speedup_ratio").empty());  // no value, no family
  CHECK(lines.back() == "# EOF");
  CHECK(with("# EOF").size() == 1);
  CHECK(render(std::span<const Report>(), "openmetrics") == "# EOF\n");
}

TEST_CASE("a time that a later report withholds is gone") {
  std::vector<Report> reports = {one_engine(), one_engine()};
  reports[1].cases[0].engines[0].verdict = Verdict::kFailToken;
  reports[1].cases[0].engines[0].ms_per_tok.reset();
  const std::string text = render(reports, "openmetrics");
  CHECK_THAT(text, !ContainsText("mkbench_token_seconds") && ContainsText("mkbench_passed{"));
}

TEST_CASE("each metric is its column of a row, in its unit") {
  Report r = one_engine();
  EngineReport& e = r.cases[0].engines[0];
  e.ms_per_tok->ci = Interval{0.25, 0.75};
  e.ttft_ms = {8.0, {}};
  e.share = {0.5, {}};
  e.share_ci = Interval{0.4375, 0.5625};
  e.receipts_wrong = 3;
  e.verdict = Verdict::kPassLive;
  ComparisonReport ratio;
  ratio.baseline = "b", ratio.candidate = e.name, ratio.speedup = {4.0, {}};
  ratio.ci = Interval{3.5, 4.5};
  r.cases[0].comparisons = {ratio};
  EngineReport baseline = e;
  baseline.name = "b", baseline.role = "baseline";
  r.cases[0].engines.push_back(baseline);
  const auto lines = lines_of(render(r, "openmetrics"));
  for (const auto& [name, value] : {std::pair{"passed", "1"},
                                    {"token_seconds", "0.0005"},
                                    {"token_low_seconds", "0.00025"},
                                    {"token_high_seconds", "0.00075"},
                                    {"tokens_per_second", "2000"},
                                    {"first_token_seconds", "0.008"},
                                    {"speedup_ratio", "4"},
                                    {"speedup_low_ratio", "3.5"},
                                    {"speedup_high_ratio", "4.5"},
                                    {"ceiling_ratio", "0.5"},
                                    {"ceiling_low_ratio", "0.4375"},
                                    {"ceiling_high_ratio", "0.5625"},
                                    {"wrong_tokens", "3"}}) {
    INFO(name);
    const auto found = std::find_if(lines.begin(), lines.end(), [&](const std::string& line) {
      return line.starts_with(std::string("mkbench_") + name + "{") &&
             line.find("engine=\"" + e.name + "\"") != std::string::npos;
    });
    REQUIRE(found != lines.end());
    CHECK(found->ends_with(std::string("} ") + value));
  }
}

TEST_CASE("labels of OpenMetrics escape what ends them") {
  Report r = one_engine();
  r.cases[0].engines[0].name = "a\\b\"c\nd.so";
  CHECK_THAT(render(r, "openmetrics"), ContainsText(R"(engine="a\\b\"c\nd.so",role=)"));
}

TEST_CASE("an annotation stands for each verdict that fails, and names the engine's file") {
  Report r = one_engine();
  CHECK(render(r, "annotations").empty());
  EngineReport& e = r.cases[0].engines[0];
  for (const auto& [name, file] : {std::pair{"my,engine.so", "file=my%2Cengine.so,"},
                                   {"./a/engine.py", "file=a/engine.py,"},
                                   {"c:engine.so", "file=c%3Aengine.so,"},
                                   {"host-twin", ""}}) {
    e.name = e.resolved_name = name;
    e.verdict = Verdict::kFailToken;
    e.reasons = {"50% of\r\nposition 3: found 5", "more"};
    r.cases[0].verdict = r.verdict = Verdict::kFailToken;
    const auto lines = lines_of(render(r, "annotations"));
    REQUIRE(lines.size() == 1);  // one for the verdict, none for its prompts and checks
    CHECK(lines[0].starts_with(std::string("::error ") + file + "title=mkbench FAIL_TOKEN%3A " +
                               r.cases[0].name + " / "));
    CHECK_THAT(lines[0], ContainsText("::FAIL_TOKEN: 50%25 of%0D%0Aposition 3: found 5%0A"));
  }
  e.verdict = r.cases[0].verdict = r.verdict = Verdict::kHang;  // could not be judged
  CHECK(render(r, "annotations").starts_with("::error title=mkbench HANG%3A "));
  e.verdict = r.cases[0].verdict = r.verdict = Verdict::kSkipped;
  CHECK(render(r, "annotations").empty());
}

TEST_CASE("a doubt that fails nothing is a warning") {
  JunitCase doubt = junit_verdict("ring", Verdict::kInconclusive, {"too few processes"});
  CHECK(
      render_annotations({{.name = "gate / c", .seconds = {}, .properties = {}, .cases = {doubt}}})
          .starts_with("::error "));
  doubt.outcome = JunitOutcome::kSkipped;
  CHECK(render_annotations(
            {{.name = "gate / c", .seconds = {}, .properties = {}, .cases = {doubt}}}) ==
        "::warning title=mkbench INCONCLUSIVE%3A gate / c / ring::INCONCLUSIVE: too few "
        "processes\n");
}

TEST_CASE("several reports are a list of JSON, one table of rows, pages of text") {
  const std::vector<Report> two = {one_engine(), one_engine()};
  CHECK(json::parse(render(two, "json")).size() == 2);
  CHECK(json::parse(render(two, "json"))[1] == to_json(two[1]));
  CHECK(lines_of(render(two, "csv")).size() == 3);
  CHECK(lines_of(render(two, "jsonl")).size() == 2);
  const std::string sql = render(two, "sql");
  CHECK(sql.find("CREATE TABLE") == sql.rfind("CREATE TABLE"));
  CHECK(render(two, "md") == render_markdown(two[0]) + "\n---\n\n" + render_markdown(two[1]));
}
