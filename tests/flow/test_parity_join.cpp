// The parity of several references as one.
#include "harness/judge/parity.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

TEST_CASE(
    "joining two references keeps the larger R_rms, adds counts, and tells the first failure") {
  ParityReport a, b;
  a.reference = "a", b.reference = "b";
  a.reference_sha256 = "1", b.reference_sha256 = "2";
  a.r_rms = 0.5, b.r_rms = 0.75;
  a.r_rms_limit = 1.25, b.r_rms_limit = 1.5;
  a.steps = 3, b.steps = 4;
  a.strict_steps = 2, b.strict_matched = 5;
  a.rows.resize(3), b.rows.resize(4);
  b.first_divergence = 1;
  b.verdict = Verdict::kFailToken;
  b.reason = "token";
  b.suspect_prompt = "p";
  b.suspect_position = 7;
  b.error_by_position.resize(5);
  a.checks = {{.check = Check::kRms, .value = 0.5, .limit = 1.25}};
  b.checks = {{.check = Check::kRms, .value = 0.75, .limit = 1.25}};
  for (const bool swapped : {false, true}) {
    const ParityReport both = swapped ? join_parity({b, a}) : join_parity({a, b});
    INFO(both.reference);
    CHECK(both.r_rms == 0.75);
    CHECK(both.r_rms_limit == 1.5);
    CHECK(find_check(both, Check::kRms)->value == 0.75);
    CHECK(both.reference == (swapped ? "b, a" : "a, b"));
    CHECK(both.reference_sha256 == (swapped ? "2, 1" : "1, 2"));
    CHECK((both.steps == 7 && both.strict_steps == 2 && both.strict_matched == 5));
    CHECK(both.rows.size() == 7);
    CHECK(both.first_divergence == (swapped ? 1 : 4));
    CHECK(both.verdict == Verdict::kFailToken);
    CHECK(both.reason == "token");
    CHECK((both.suspect_prompt == "p" && both.suspect_position == 7));
    CHECK(both.error_by_position.size() == 5);
  }
  ParityReport worse = b;
  worse.verdict = Verdict::kIntegrity;
  worse.reason = "launches";
  worse.suspect_prompt = "later";
  const ParityReport two = join_parity({b, worse});
  CHECK(two.verdict == Verdict::kIntegrity);
  CHECK(two.reason == "token; launches");
  CHECK(two.suspect_prompt == "p");
  a.r_rms.reset();
  CHECK(join_parity({a, b}).r_rms == 0.75);
  CHECK(join_parity({b, a}).r_rms == 0.75);
}

}  // namespace
}  // namespace mkbench
