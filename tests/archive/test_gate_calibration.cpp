// mkbench gate and compare where the machine's calibration does not trust few processes: neither
// REGRESSION nor PASS.
#include <string>

#include "harness/archive/builds.h"
#include "harness/archive/versions.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;
using nlohmann::json;

namespace {

constexpr char kBase[] = "old/engines/ring.so", kHead[] = "new/engines/ring.so";

// A/A of 3 processes missed too often, and verdicts take `least` of them.
json calibration_from(int least) {
  json rows = json::array();
  for (const int processes : {3, least}) {
    rows.push_back({{"processes", processes},
                    {"splits", 200},
                    {"excluding_one", processes == 3 ? 29 : 9},
                    {"most_allowed", 21},
                    {"faster_or_slower", 0},
                    {"half_width", 0.004}});
  }
  return {{"source", "A/A, today"}, {"alpha", 0.05},   {"processes", 3},
          {"half_width", 0.004},    {"margin", 0.006}, {"rows", rows}};
}

// A case of 5 processes with engines of two builds, of which the second one takes `factor` of the
// other's time, in odd processes more and in even ones less by `spread`.
Report report_from(int least, double factor, double spread = 0) {
  Report r = testing::example_report();
  r.environment["gpu"]["uuid"] = "GPU-1";
  r.calibration["clock"] = calibration_from(least);
  r.cases.resize(1);
  std::vector<EngineReport>& engines = r.cases[0].engines;
  engines.push_back(engines[1]);
  engines[1].name = kBase;
  engines[2].name = kHead;
  for (EngineReport& e : engines) {
    for (Sample& s : e.samples) {
      s.engine = e.name;
      if (e.name != kHead) continue;
      s.times.host_ms *= factor * (s.process % 2 == 0 ? 1 - spread : 1 + spread);
      s.times.event_ms *= factor;
    }
  }
  aggregate(r.cases[0], 0.95, 1, false, recorded_margin(r.calibration));
  return r;
}

const VersionRow& gated_row(const VersionGate& gate, const std::string& engine) {
  for (const VersionRow& row : gate.rows) {
    if (row.engine == engine) return row;
  }
  throw std::runtime_error("no row of " + engine);
}

constexpr char kReason[] =
    "too few processes for a verdict on this machine: A/A with 3 processes: 29 of 200 intervals do "
    "not hold 1, alpha 0.05 allows 21; --processes 8 or more";

}  // namespace

TEST_CASE("a gate of two reports leaves too few processes INCONCLUSIVE") {
  const auto gate_of = [](int base_least, int head_least, double factor) {
    return gate_versions(report_from(base_least, 1), "base", report_from(head_least, factor),
                         "head", {.max_regress = {}, .fails_inconclusive = true});
  };
  const VersionGate few = gate_of(8, 8, 1.1);
  CHECK((few.verdict == Verdict::kInconclusive && few.exit_code == 5));
  CHECK(gated_row(few, kHead).base_processes == 5);
  CHECK(gated_row(few, kHead).verdict == Verdict::kInconclusive);
  CHECK(gated_row(few, kHead).reason == kReason);
  CHECK(gate_of(8, 8, 1).verdict == Verdict::kInconclusive);
  // The stricter one of both reports counts.
  CHECK(gated_row(gate_of(5, 8, 1), kBase).reason == kReason);
  CHECK(gated_row(gate_of(8, 5, 1), kBase).reason == kReason);
  CHECK(gate_of(5, 5, 1.1).verdict == Verdict::kRegression);
  CHECK(gate_of(5, 5, 1).verdict == Verdict::kPass);
}

TEST_CASE("a comparison of two builds leaves too few processes INCONCLUSIVE") {
  const VersionGate few = gate_builds(report_from(8, 1.1), "old", "new", {});
  CHECK(few.verdict == Verdict::kInconclusive);
  CHECK(gated_row(few, "ring").reason == kReason);
  CHECK(gate_builds(report_from(8, 1), "old", "new", {}).verdict == Verdict::kInconclusive);
  CHECK(gate_builds(report_from(5, 1.1), "old", "new", {}).verdict == Verdict::kRegression);
  CHECK(gate_builds(report_from(5, 1), "old", "new", {}).verdict == Verdict::kPass);
}

TEST_CASE("where the interval is too wide, the number of processes that would tell is said") {
  // ln(ratio) scatters by 0.01096, and (3.43 + 1.28) x 0.01096 / sqrt(76) lies within ln(1.012 /
  // 1.006).
  const std::string kEnough = "; to tell 1.2 % here: about 76 processes of each (--processes 76)";
  const auto reason = [](const Report& r) {
    return gated_row(gate_builds(r, "old", "new", {}), "ring").reason;
  };
  // The processes of the example begin 2 s apart, whichever of their samples stands first.
  CHECK_THAT(reason(report_from(5, 1, 0.01)), ContainsText(kEnough + ", 152 s for this case"));
  Report one = report_from(5, 1, 0.01);
  for (EngineReport& e : one.cases[0].engines) {
    for (Sample& s : e.samples) s.start_ms = 10;
  }
  CHECK_THAT(reason(one), ContainsText(kEnough) && !ContainsText(kEnough + ","));
  const VersionGate wide = gate_builds(report_from(5, 1, 0.01), "old", "new", {});
  CHECK(wide.verdict == Verdict::kInconclusive);
  CHECK_THAT(gated_row(wide, "ring").reason, ContainsText(kEnough));
  const VersionGate slower = gate_builds(report_from(5, 1.1, 0.01), "old", "new", {});
  CHECK(slower.verdict == Verdict::kRegression);
  CHECK_THAT(gated_row(slower, "ring").reason, !ContainsText("to tell"));
}
