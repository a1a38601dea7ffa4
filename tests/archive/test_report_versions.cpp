// Reports of other minor versions of the schema: which fields may be missing or unknown, whose limits hold.
#include <set>

#include "harness/judge/ratios.h"
#include "tests/support/catch2.h"
#include "tests/support/sound_report.h"

using namespace mkbench;

TEST_CASE("the limits of a report are those of its minor version") {
  const auto differences_with = [](const RatioLimits& limits, double step, int minor) {
    Report report = sound_report();
    for (CaseReport& c : report.cases) {
      for (EngineReport& e : c.engines) {
        if (!e.parity) continue;
        if (e.parity->r_rms_limit > 0) e.parity->r_rms_limit = limits.rms;
        for (const auto& [check, limit] : {std::pair{Check::kRms, limits.rms},
                                           {Check::kStep, step},
                                           {Check::kInf, limits.inf},
                                           {Check::kKl, limits.kl}}) {
          for (CheckResult& r : e.parity->checks)
            if (r.check == check && r.limit) r.limit = limit;
        }
      }
    }
    return differences_of(of_version(to_json(report), minor), true);
  };
  const RatioLimits now = limits_of(PrecisionClass::kBf16);
  const RatioLimits former = limits_of(PrecisionClass::kBf16, 5);
  CHECK(former.rms == 1.25);
  for (const int minor : {0, 5, 6, kReportSchemaMinor, kReportSchemaMinor + 1}) {
    INFO(minor);
    CHECK(differences_with(now, now.step, minor).empty() == (minor >= 6));
    CHECK(differences_with(former, former.step, minor).empty() == (minor < 6));
    CHECK_FALSE(differences_with(now, former.step, minor).empty());
    CHECK_FALSE(differences_with(former, now.step, minor).empty());
  }
}

TEST_CASE(
    "a field that an older report lacks has its default, and one that nobody knows is named") {
  const auto changed = [](int minor, const auto& change) {
    json report = to_json(sound_report());
    change(report);
    return of_version(report, minor);
  };
  const auto without_ids = [](json& report) { report["cases"][0]["axes"].erase("n_prompt"); };
  CHECK(differences_of(changed(kReportSchemaMinor - 1, without_ids), true).empty());
  CHECK(refusal(changed(kReportSchemaMinor, without_ids)) ==
        "cases[0].axes.n_prompt: found nothing, wanted a value");
  const auto with_more = [](json& report) {
    for (json& c : report["cases"]) c["weather"] = {{"rain", 1}};
  };
  for (const int minor : {kReportSchemaMinor - 1, kReportSchemaMinor, kReportSchemaMinor + 1}) {
    const Report report = report_of(changed(minor, with_more));
    CHECK(report.schema_minor == minor);
    CHECK(report.unknown_fields == std::set<std::string>{"cases[].weather"});
    CHECK(differences_of(changed(minor, with_more), true).empty());
  }
}

TEST_CASE("a report without a seal is one of before there were seals") {
  for (const int minor : {5, 6}) {
    json report = of_version(to_json(sound_report()), minor);
    report.erase("seal");
    if (minor < 6) {
      CHECK(report_of(report).schema_minor == minor);
    } else {
      CHECK(refusal(report) == "seal: found nothing, wanted an object");
    }
  }
}

TEST_CASE("what is no report of this schema is refused by its field") {
  const json sound = to_json(sound_report());
  const auto with = [&](const char* at, const json& value) {
    json edited = sound;
    edited[json::json_pointer(at)] = value;
    return edited;
  };
  for (const json& version : json::array({"0.9.0", "11.0.0", "1.", "1.-1.0", 1.8})) {
    CHECK_THAT(refusal(with("/schema/version", version)),
               ContainsText("schema.version: found " + version.dump() + ", wanted 1.*"));
  }
  CHECK(refusal(with("/schema/id", "x")) == R"(schema.id: found "x", wanted "mkbench.report")");
  CHECK_THAT(refusal(with("/schema", {})),
             ContainsText("schema: found ") && ContainsText("object"));
  CHECK(refusal(with("/cases/0/engines/1/samples/1/valid", 1)) ==
        "cases[0].engines[1].samples[1].valid: found 1, wanted true or false");
  CHECK(refusal(with("/cases", json::object())) == "cases: found {}, wanted a list");
  CHECK_THROWS_WITH(differences_of(with("/meta/options/confidence/value", "7"), false),
                    ContainsText("meta.options.confidence.value: --confidence: '7'"));
}
