// Messages and jobs are read back as they were written; anything else is refused, naming the field.
#include <limits>
#include <string>

#include "harness/flow/job.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

namespace mkbench {
namespace {

using nlohmann::json;

// For each alternative of a variant, default-constructed: the JSON names the alternative and is
// read back unchanged.
template <typename Variant, size_t I = 0, typename Read>
void check_each(const Read& read) {
  if constexpr (I < std::variant_size_v<Variant>) {
    const Variant message = std::variant_alternative_t<I, Variant>{};
    const json written = to_json(message);
    INFO(written.dump());
    const Variant back = read(json::parse(written.dump()));
    CHECK(back.index() == I);
    CHECK(to_json(back) == written);
    check_each<Variant, I + 1>(read);
  }
}

TEST_CASE("every message and every job is read back as it was written") {
  check_each<FromHost>(message_from_json);
  check_each<ToHost>(job_from_json);
}

TEST_CASE("a full message keeps every value") {
  const CaseReport c = testing::example_report().cases.front();
  const EngineReport& e = c.engines.back();
  REQUIRE(e.parity.has_value());
  REQUIRE_FALSE(e.samples.empty());
  for (const FromHost& message :
       {FromHost(ParityJudged{"ring", *e.parity}),
        FromHost(SampleTaken{"ring", e.samples[0], 7, "none"}),
        FromHost(EngineMade{"ring", {"ring", "cuda:0 Some GPU", "pinned=1"}}),
        FromHost(StageProgress{.stage = "timing", .engine = "ring", .position = 7}),
        FromHost(VerdictGiven{"ring", Verdict::kHang, "why"})}) {
    const json written = to_json(message);
    CHECK(to_json(message_from_json(json::parse(written.dump()))) == written);
  }
  CaseJob job;
  job.model = "tiny";
  job.engines = {{.name = "eager", .asked = "eager", .judges = true, .yardstick = true}};
  job.seed = std::numeric_limits<uint64_t>::max();
  job.fault = PlantedFault::kNanWeight;
  job.judged =
      JudgedCase{{"reference.json", "r1", "v1"}, {{"eager", {{"eager", "cpu", ""}, *e.parity}}}};
  const json written = to_json(ToHost(job));
  CHECK(to_json(job_from_json(json::parse(written.dump()))) == written);
}

TEST_CASE("JSON that is no message becomes Garbage with the reason") {
  const auto problem_of = [](const json& j) {
    const FromHost message = message_from_json(j);
    const auto* garbage = std::get_if<Garbage>(&message);
    return garbage != nullptr ? garbage->problem : "";
  };
  CHECK_THAT(problem_of({{"type", "facts"}}), ContainsText("type: found 'facts'"));
  CHECK_THAT(problem_of(json::object()), ContainsText("type: found null"));
  CHECK_THAT(
      problem_of({{"type", "verdict"}, {"engine", "x"}, {"verdict", "GREEN"}, {"reason", ""}}),
      ContainsText("verdict.verdict: found \"GREEN\", wanted one of PASS,"));
  CHECK_THAT(problem_of({{"type", "memory"}, {"bytes_needed", 1}}),
             ContainsText("memory.bytes_free: found nothing"));
  json wide = to_json(ToHost(ProbeJob{}));
  wide["gpu"] = int64_t{1} << 40;
  CHECK_THROWS_WITH(job_from_json(wide), ContainsText("job.gpu"));
}

}  // namespace
}  // namespace mkbench
