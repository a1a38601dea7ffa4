#include "harness/report/soak_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/measure/statistics.h"
#include "harness/report/render.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

constexpr char kSchemaId[] = "mkbench.soak", kSchemaVersion[] = "1.0.0";
constexpr double kConfidence = 0.95;

std::vector<std::string> notes_of(const SoakReport& r) {
  std::vector<std::string> notes;
  notes.push_back(r.truth.empty()
                      ? "tokens are not checked: nothing says what is right for this model"
                      : "tokens are checked by " + r.truth);
  if (!r.compared)
    notes.emplace_back("bits are not compared: the engine says that it is not deterministic");
  notes.push_back(fmt::format(
      "{} steps, {} launches; {} of {} cache lengths at edges of tiles passed; the cache of {} "
      "positions was filled to its end {} times",
      with_commas(r.steps), with_commas(r.launches), with_commas(r.edges_passed),
      with_commas(r.edges), with_commas(r.identity.context), with_commas(r.fills)));
  notes.push_back(
      r.stressed
          ? fmt::format(
                "counters of the exchange began near 2^16, 2^31 or 2^32 in {} steps, blocks "
                "were delayed in {}",
                with_commas(r.near_32_bits), with_commas(r.delayed))
          : "this engine has no hook for counters and delays: its counters advanced by its own "
            "launches only");
  if (!r.left_out.empty()) notes.push_back("left out: " + r.left_out);
  if (r.interruptions > 0) notes.push_back(fmt::format("interrupted {} times", r.interruptions));
  return notes;
}

}  // namespace

SoakReport::SoakReport() {
  for (const SoakCheckInfo& info : kSoakChecks) counts.push_back({.check = std::string(info.name)});
}

std::string rate_text(const SoakCount& count) {
  if (count.looked == 0) return "not looked at";
  const std::string seen =
      fmt::format("{} of {}", with_commas(count.failed), with_commas(count.looked));
  if (count.failed > 0) {
    const Interval rate = rate_interval(count.failed, count.looked, kConfidence);
    return fmt::format("{}, so {:.2g} to {:.2g} at 95 %", seen, rate.low, rate.high);
  }
  return fmt::format("{}, so less than 3/{} = {:.2g} at 95 %", seen, with_commas(count.looked),
                     std::min(1.0, 3 / static_cast<double>(count.looked)));
}

int64_t launches_done(const SoakReport& r) {
  return r.compared ? r.count(SoakCheck::kLaunches).looked : r.launches;
}

bool has_enough(const SoakReport& r) {
  const bool launches = launches_done(r) >= r.asked_launches;
  const bool tokens = r.truth.empty() || r.count(SoakCheck::kTokens).looked >= r.asked_tokens;
  return launches && tokens;
}

nlohmann::json soak_json(const SoakReport& report) {
  nlohmann::json j = json_fields::write(report);
  j["schema"] = {{"id", kSchemaId}, {"version", kSchemaVersion}};
  return j;
}

SoakReport soak_of_json(const nlohmann::json& j, const std::string& path) {
  const auto report = json_fields::read_file_as<SoakReport>(j, path, kSchemaId, kSchemaVersion);
  const bool same = std::equal(
      report.counts.begin(), report.counts.end(), kSoakChecks.begin(), kSoakChecks.end(),
      [](const SoakCount& count, const SoakCheckInfo& info) { return count.check == info.name; });
  if (!same) {
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("{}: counts: found {} checks, wanted the {} of a soak in their order, the "
                    "first '{}'",
                    path, report.counts.size(), kSoakChecks.size(), kSoakChecks[0].name));
  }
  return report;
}

std::string identity_difference(const SoakIdentity& found, const SoakIdentity& wanted) {
  const auto differs = [](const char* what, const auto& f, const auto& w) {
    return f == w ? std::string() : fmt::format("its {} is '{}', wanted '{}'", what, f, w);
  };
  for (const std::string& text :
       {differs("engine", found.engine, wanted.engine), differs("model", found.model, wanted.model),
        differs("device", found.device, wanted.device), differs("seed", found.seed, wanted.seed),
        differs("context", found.context, wanted.context),
        differs("planted fault", found.fault, wanted.fault),
        differs("build", found.build, wanted.build),
        differs("weights_sha256", found.weights_sha256, wanted.weights_sha256),
        differs("engine_sha256", found.engine_sha256, wanted.engine_sha256)}) {
    if (!text.empty()) return text;
  }
  return "";
}

std::string render_soak(const SoakReport& r) {
  std::string text = fmt::format("## soak of {} on {} ({}), seed {}\n\n", r.identity.engine,
                                 r.identity.model, r.runs_on, r.identity.seed);
  MarkdownTable table({"check", "what must hold", "failures of all checks, and their rate"},
                      {false, false, false});
  for (size_t i = 0; i < kSoakChecks.size(); ++i) {
    table.add({std::string(kSoakChecks[i].name), std::string(kSoakChecks[i].what),
               rate_text(r.counts[i])});
  }
  text += table.str() + "\n";
  for (const std::string& note : notes_of(r)) text += fmt::format("- {}\n", note);
  for (const SoakFailure& failure : r.failures) {
    text += fmt::format("- {} at step {}, after {:.1f} s: {}\n  - again: `{}`\n",
                        verdict_name(failure.verdict), failure.step, failure.seconds,
                        failure.reason, failure.command);
  }
  return text + fmt::format("\n**{}** (exit code {}, {:.1f} s){}\n", verdict_name(r.verdict),
                            r.exit_code, r.seconds, r.reason.empty() ? "" : ": " + r.reason);
}

}  // namespace mkbench
