// report.json: one list of fields for writer, reader and schema; files written whole; printed
// forms.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "harness/report/render.h"
#include "references/base/json_fields.h"
#include "references/base/one_line.h"
#include "references/base/printable.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"
#include "tests/support/micro_model.h"

using namespace mkbench;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Pointers to every value of objects inside `j`, list items by their first element.
void collect_pointers(const json& j, const json::json_pointer& at,
                      std::vector<json::json_pointer>& out) {
  if (j.is_object()) {
    for (const auto& [name, inner] : j.items()) {
      out.push_back(at / name);
      collect_pointers(inner, at / name, out);
    }
  } else if (j.is_array() && !j.empty()) {
    collect_pointers(j[0], at / size_t{0}, out);
  }
}

bool is_free_object(const json::json_pointer& at) {
  const std::string text = at.to_string();
  return text.rfind("/meta", 0) == 0 || text.rfind("/env", 0) == 0 ||
         text.rfind("/calibration", 0) == 0;
}

// Number of code points of each line that belongs to a table.
std::vector<size_t> table_widths(const std::string& text) {
  std::vector<size_t> widths;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] != '|') continue;
    widths.push_back(static_cast<size_t>(std::count_if(line.begin(), line.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
    })));
  }
  return widths;
}

}  // namespace

TEST_CASE("a report survives the way to JSON and back") {
  for (const Report& report : {testing::example_report(), testing::example_cpu_report(),
                               testing::example_diagnosed_report()}) {
    const json written = to_json(report);
    const json parsed = json::parse(written.dump());
    CHECK(to_json(json_fields::read_as<Report>(parsed, "")) == written);
  }
  const Report back = json_fields::read_as<Report>(to_json(testing::example_report()), "");
  const EngineReport& e = back.cases.at(1).engines.at(1);
  CHECK(back.cases[1].depth == 512);
  CHECK(e.resolved_name == "plain");
  CHECK(e.samples.size() == 10);
  CHECK(e.samples[3].ids.at(15) == 115);
  CHECK(e.samples[3].times.per_token_ms.size() == 16);
  CHECK(e.parity->rows.at(4).verdict == StepVerdict::kTie);
  CHECK(e.parity->r_rms == Approx(0.4187));
  CHECK(e.share_ci->low < *e.share.value);
  CHECK(back.cases[1].memory.least_ms > 0);
  CHECK(back.cases[1].ceiling.samples.size() == 10);
  CHECK_THAT(back.cases[1].ceiling.settings, ContainsText("3 x 16 KiB in flight"));
  CHECK(back.cases[1].comparisons.at(0).ci->low > 1);
}

TEST_CASE("numbers that are not finite are null with the reason, and come back") {
  Sample s = testing::example_sample("eager", 0, 0, 1, 4);
  s.times.host_ms = std::numeric_limits<double>::quiet_NaN();
  s.times.event_ms = -std::numeric_limits<double>::infinity();
  const json j = json_fields::write(s);
  CHECK(j["times"]["host_ms"].is_null());
  CHECK(j["times"]["host_ms_reason"] == "not finite: nan");
  CHECK(json::parse(j.dump()) == j);  // no NaN reaches the text
  const Sample back = json_fields::read_as<Sample>(j, "sample");
  CHECK(std::isnan(back.times.host_ms));
  CHECK(back.times.event_ms == -std::numeric_limits<double>::infinity());

  EngineReport e;
  e.name = "x";
  e.tok_per_s = {std::numeric_limits<double>::infinity(), {}};
  e.gpu_ms = {std::nullopt, "engine takes no CUDA events"};
  const json written = json_fields::write(e);
  CHECK(written["tok_per_s_reason"] == "not finite: inf");
  CHECK(written["gpu_ms"].is_null());
  CHECK(written["gpu_ms_reason"] == "engine takes no CUDA events");
  CHECK(written["host_ms_reason"] == "not measured");
  CHECK(json_fields::read_as<EngineReport>(written, "engine").gpu_ms.reason ==
        "engine takes no CUDA events");
  ParityReport p;
  p.r_rms = std::nan("");
  CHECK(std::isnan(*json_fields::read_as<ParityReport>(json_fields::write(p), "parity").r_rms));
  json bare = written;
  bare.erase("gpu_ms_reason");
  CHECK_THROWS_WITH(json_fields::read_as<EngineReport>(bare, "engine"),
                    ContainsText("gpu_ms_reason"));
}

TEST_CASE("the reader names the field that is missing or of the wrong type") {
  const json good = to_json(testing::example_report());
  std::vector<json::json_pointer> pointers;
  collect_pointers(good, json::json_pointer(), pointers);
  CHECK(pointers.size() > 100);
  for (const json::json_pointer& at : pointers) {
    const std::string name = at.back();
    const bool optional = name.size() > 7 && name.compare(name.size() - 7, 7, "_reason") == 0 &&
                          name != "invalid_reason";
    if (is_free_object(at.parent_pointer()) || at.to_string().starts_with("/schema") ||
        at.to_string().starts_with("/seal") || optional)
      continue;
    json broken = good;
    broken[at.parent_pointer()].erase(name);
    INFO(at.to_string());
    CHECK_THROWS_WITH(json_fields::read_as<Report>(broken, ""), ContainsText(name));
    if (is_free_object(at)) continue;
    broken = good;
    broken[at] = json::array({json::object()});
    CHECK_THROWS_AS(json_fields::read_as<Report>(broken, ""), Error);
  }
  json broken = good;
  broken["cases"][2]["engines"][1]["samples"][4]["tokens"] = 1.5;
  CHECK_THROWS_WITH(json_fields::read_as<Report>(broken, ""),
                    ContainsText("cases[2].engines[1].samples[4].tokens: found 1.5"));
  broken["cases"][2]["engines"][1]["samples"][4]["tokens"] = 3'000'000'000;
  CHECK_THROWS_WITH(json_fields::read_as<Report>(broken, ""), ContainsText("32 bits"));
  broken = good;
  broken["verdict"]["status"] = "GREEN";
  CHECK_THROWS_WITH(json_fields::read_as<Report>(broken, ""),
                    ContainsText("verdict.status: found \"GREEN\""));
  CHECK(json_fields::shown("1.7\x7f\xc2\x85") == "\"1.7\\x7f\\x85\"");  // one line of a message
}

TEST_CASE("the committed schema is the generated one") {
  // After a change of a field: mkbench_schema > reports/report.schema.json
  CHECK(read_file("reports/report.schema.json") == report_schema().dump(2) + "\n");
}

TEST_CASE("the output folder holds whole files, also when written twice") {
  const testing::TemporaryFolder folder;
  const fs::path out = folder.path() / "a" / "b";
  Report report = testing::example_report();
  write_report(report, out);
  report.reasons.push_back("second time");
  write_report(report, out);
  CHECK(json::parse(read_file(out / "report.json")) == to_json(report));
  CHECK(read_file(out / "report.md") == render_markdown(report));
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(out)) names.insert(entry.path().filename());
  CHECK(names == std::set<std::string>{"junit.xml", "report.json", "report.md"});

  std::ofstream(folder.path() / "file") << "x";
  CHECK_THROWS_AS(write_report(report, folder.path() / "file" / "below"), Error);
  CHECK_THROWS_AS(write_text(out, "a folder has this name"), Error);
  CHECK_FALSE(fs::exists(out.string() + ".partial"));
}

TEST_CASE("what a person sees: header, aligned tables, parity, verdict") {
  const std::string gpu = render_markdown(testing::example_report());
  CHECK_THAT(gpu, ContainsText("device=cuda:0 Example GPU") && ContainsText("megakernel (plain)") &&
                      ContainsText("baseline") && ContainsText("3 of 3 tokens match HF (strict)") &&
                      ContainsText("R_rms 0.42 <= 1.5") &&
                      ContainsText("960 of 960 match the closed form") &&
                      ContainsText("**PASS** (exit code 0, 3 cases)") &&
                      ContainsText("report: mkbench-report-example"));
  CHECK_THAT(gpu, !ContainsText("NO GPU"));
  const std::vector<size_t> widths = table_widths(gpu.substr(0, gpu.find("Parity table")));
  REQUIRE(widths.size() == 8);
  for (const size_t w : widths) CHECK(w == widths[0]);

  const std::string diagnosed = render_markdown(testing::example_diagnosed_report());
  CHECK_THAT(diagnosed, ContainsText("|     0 | megakernel (plain) |  800.8 |         770.0 |") &&
                            ContainsText("| memory |") && ContainsText("| pp512 | eager") &&
                            ContainsText("depth 512: no speed-up: eager was not timed") &&
                            !ContainsText("|   512 | eager"));
  CHECK_THAT(gpu, !ContainsText("Ablations"));

  const std::string cpu = render_markdown(testing::example_cpu_report());
  CHECK_THAT(cpu, ContainsText("NO GPU RESULT: device=cpu") && !ContainsText("% |") &&
                      ContainsText("\n> Note: the host twin runs the kernel's schedule"));
  CHECK(cpu.find("NO GPU") < cpu.find("| engine"));

  Report failed = testing::example_report();
  failed.cases.resize(1);
  EngineReport& e = failed.cases[0].engines[1];
  e.verdict = e.parity->verdict = Verdict::kFailToken;
  e.parity->reason = "position 5: found 7, wanted 224";
  e.parity->rows[4].verdict = StepVerdict::kWrong;
  e.reasons = {"parity: position 5"};
  aggregate(failed.cases[0], 0.95, 1, false);
  conclude(failed);
  const std::string text = render_markdown(failed);
  CHECK_THAT(text, ContainsText("megakernel: FAIL_TOKEN: parity: position 5") &&
                       ContainsText("\u2717") && ContainsText("| ref_id | mk_id |") &&
                       ContainsText("exit code 3") && !ContainsText("0.8008"));
}

TEST_CASE("the parity table stays a table with texts of any kind") {
  const std::string table = render_parity_table(testing::example_parity(), {.whole_tables = true});
  CHECK_THAT(table, ContainsText("prompt") && ContainsText("\\|") && ContainsText("\\n"));
  const std::vector<size_t> widths = table_widths(table);
  REQUIRE(widths.size() == 8);
  for (const size_t w : widths) CHECK(w == widths[0]);
}

TEST_CASE("flat forms hold one row for each engine of each case") {
  const Report report = testing::example_report();
  const std::string csv = render(report, "csv");
  CHECK(std::count(csv.begin(), csv.end(), '\n') == 7);
  std::istringstream lines(render(report, "jsonl"));
  size_t rows = 0;
  for (std::string line; std::getline(lines, line); ++rows) {
    CHECK(json::parse(line).size() == flatten({&report, 1}).columns.size());
  }
  CHECK(rows == 6);
  CHECK(json::parse(render(report, "json")) == to_json(report));
  CHECK(render(report, "md") == render_markdown(report));
  CHECK_THROWS_WITH(render(report, "xml"), ContainsText("found 'xml'"));
}

TEST_CASE("what cannot be shown is escaped, and the bytes can be had back") {
  const std::pair<std::string, std::string> kTexts[] = {
      {"plain \xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x99\x82",
       "plain \xc3\xa9 \xe4\xbd\xa0 \xf0\x9f\x99\x82"},
      {"a\n\t\r\\x41", "a\\n\\t\\r\\\\x41"},
      {std::string("\x1b[2J\0\x7f", 6), "\\x1b[2J\\x00\\x7f"},
      {"\xe4\xbd|\xff\xc0\xaf\xed\xa0\x80", "\\xe4\\xbd|\\xff\\xc0\\xaf\\xed\\xa0\\x80"},
      {"\xe2\x80\xae\xc2\x85\xef\xbb\xbf\xf4\x8f\xbf\xbf", "\\u{202e}\\u{85}\\u{feff}\\u{10ffff}"}};
  for (const auto& [bytes, text] : kTexts) {
    CHECK(printable(bytes) == text);
    CHECK(bytes_of_printable(text) == bytes);
  }
  // No other text stands for bytes: a report's texts have one form.
  for (const char* text : {"\\", "\\q", "\\x4", "\\x41", "\\u{41}", "\\u{e9}", "\\u{}",
                           "\\u{110000}", "\\u{202e", "\n", "\xff"})
    CHECK_FALSE(bytes_of_printable(text));
}

TEST_CASE("texts with markup are shown in code spans") {
  CHECK(quoted_text("two words", 80) == "\"two words\"");
  CHECK(quoted_text("a\\nb", 80) == "\"a\\nb\"");
  CHECK(quoted_text("<b>", 80) == "`\"<b>\"`");
  CHECK(quoted_text("a `b` ``c``", 80) == "```\"a `b` ``c``\"```");
  CHECK(quoted_text("see file:///x", 80) == "`\"see file:///x\"`");
  CHECK(quoted_text("<b>long", 3) == "`\"<b>...\"`");
}

TEST_CASE("small formatters") {
  CHECK(with_commas(0) == "0");
  CHECK(with_commas(999) == "999");
  CHECK(with_commas(1000) == "1,000");
  CHECK(with_commas(-1234567) == "-1,234,567");
  for (const auto& [value, text] : {std::pair{1000.0, "1,000"},
                                    {-1000.4, "-1,000"},
                                    {999.94, "999.9"},
                                    {100.0, "100.0"},
                                    {99.994, "99.99"},
                                    {10.0, "10.00"},
                                    {9.9994, "9.999"},
                                    {1.0, "1.000"},
                                    {-1.0, "-1.000"},
                                    {0.99994, "0.9999"},
                                    {0.0, "0.0000"},
                                    {std::nan(""), "-"}})
    CHECK(digits(value) == text);
  CHECK(one_line("a\nb\x01") == "a\\nb\\x01");
  CHECK(one_line("\xc3\xa9\xc3\xa9\xc3\xa9", 2) == "\xc3\xa9\xc3\xa9...");
  // U+0085, next line, which some terminals obey; U+00A0 is a space.
  CHECK(one_line("a\xc2\x85"
                 "b\xc2\xa0\x7f") == "a\\x85b\xc2\xa0\\x7f");
  const json j = {{"a", {1, 2, 3}}, {"b", {{"c", json::array()}}}};
  CHECK(dump_readable(j) == "{\n  \"a\": [1,2,3],\n  \"b\": {\n    \"c\": []\n  }\n}");
}
