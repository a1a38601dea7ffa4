// The verdict table: names, exit codes and the worst of several.
#include <set>
#include <string>

#include "harness/report/verdict.h"
#include "tests/support/catch2.h"

using mkbench::Verdict;

TEST_CASE("every verdict has one row, one name and the exit code of its class") {
  const auto& table = mkbench::kVerdicts;
  REQUIRE(std::size(table) == static_cast<size_t>(Verdict::kInterrupted) + 1);
  std::set<std::string> names;
  for (size_t i = 0; i < std::size(table); ++i) {
    CHECK(static_cast<size_t>(table[i].verdict) == i);
    CHECK(names.insert(std::string(table[i].name)).second);
    CHECK(mkbench::enum_from_text(mkbench::Tag<Verdict>(), table[i].name) == table[i].verdict);
    CHECK(mkbench::exit_code(table[i].verdict) == table[i].exit_code);
    // 77 would turn a failed gate into a skipped test.
    CHECK(table[i].exit_code != 77);
  }
  CHECK_FALSE(mkbench::enum_from_text(mkbench::Tag<Verdict>(), "pass").has_value());
  CHECK_FALSE(mkbench::enum_from_text(mkbench::Tag<Verdict>(), "").has_value());
}

TEST_CASE("exit codes are the documented ones") {
  using mkbench::exit_code;
  CHECK(exit_code(Verdict::kPass) == 0);
  CHECK(exit_code(Verdict::kPassLive) == 0);
  CHECK(exit_code(Verdict::kSkipped) == 0);
  CHECK(exit_code(Verdict::kRuntimeError) == 1);
  CHECK(exit_code(Verdict::kCudaError) == 1);
  CHECK(exit_code(Verdict::kBadInput) == 2);
  for (const Verdict v : {Verdict::kFailToken, Verdict::kFailFidelity, Verdict::kFailSelf,
                          Verdict::kNondeterministic}) {
    CHECK(exit_code(v) == 3);
  }
  CHECK(exit_code(Verdict::kRegression) == 4);
  CHECK(exit_code(Verdict::kInconclusive) == 5);
  CHECK(exit_code(Verdict::kIncomplete) == 5);
  for (const Verdict v : {Verdict::kUnsupportedDevice, Verdict::kEnvUnfit,
                          Verdict::kInvalidReference, Verdict::kNotJudged}) {
    CHECK(exit_code(v) == 6);
  }
  CHECK(exit_code(Verdict::kHang) == 7);
  CHECK(exit_code(Verdict::kTimeout) == 7);
  CHECK(exit_code(Verdict::kImpossible) == 8);
  CHECK(exit_code(Verdict::kIntegrity) == 8);
  CHECK(exit_code(Verdict::kInterrupted) == 130);
}

TEST_CASE("of several verdicts the gravest exit code wins, in either order") {
  const std::vector<Verdict> descending = {
      Verdict::kInterrupted,  Verdict::kBadInput,         Verdict::kHang,      Verdict::kIntegrity,
      Verdict::kFailToken,    Verdict::kInvalidReference, Verdict::kCudaError, Verdict::kRegression,
      Verdict::kInconclusive, Verdict::kIncomplete,       Verdict::kPassLive,  Verdict::kPass,
      Verdict::kSkipped};
  for (size_t a = 0; a < descending.size(); ++a) {
    for (size_t b = a; b < descending.size(); ++b) {
      CHECK(mkbench::worst({descending[a], descending[b]}) == descending[a]);
      CHECK(mkbench::worst({descending[b], descending[a]}) == descending[a]);
    }
  }
  CHECK(mkbench::worst({}) == Verdict::kPass);
  CHECK(mkbench::worst({Verdict::kNondeterministic, Verdict::kFailToken}) == Verdict::kFailToken);
}

TEST_CASE("times are shown for the two passes only") {
  for (const auto& row : mkbench::kVerdicts) {
    const bool pass = row.verdict == Verdict::kPass || row.verdict == Verdict::kPassLive;
    CHECK(mkbench::times_allowed(row.verdict) == pass);
  }
}

TEST_CASE("every kind of error has a verdict that is not a pass") {
  using mkbench::ErrorKind;
  CHECK(mkbench::verdict_of(ErrorKind::kBadInput) == Verdict::kBadInput);
  CHECK(mkbench::verdict_of(ErrorKind::kInvalidReference) == Verdict::kInvalidReference);
  CHECK(mkbench::verdict_of(ErrorKind::kEnvUnfit) == Verdict::kEnvUnfit);
  CHECK(mkbench::verdict_of(ErrorKind::kUnsupportedDevice) == Verdict::kUnsupportedDevice);
  CHECK(mkbench::verdict_of(ErrorKind::kCuda) == Verdict::kCudaError);
  CHECK(mkbench::verdict_of(ErrorKind::kHang) == Verdict::kHang);
  CHECK(mkbench::verdict_of(ErrorKind::kIntegrity) == Verdict::kIntegrity);
  CHECK(mkbench::verdict_of(ErrorKind::kRuntime) == Verdict::kRuntimeError);
  CHECK(mkbench::verdict_of(ErrorKind::kNotBuilt) == Verdict::kSkipped);
}
