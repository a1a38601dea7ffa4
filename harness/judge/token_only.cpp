#include "harness/judge/token_only.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "harness/judge/findings.h"

namespace mkbench {
namespace {

using Alternatives = std::vector<const ReferencePrompt*>;  // continuations of the same prompt ids

// Groups prompts by their ids, in the order of first appearance.
std::vector<Alternatives> group_by_ids(const GreedyReference& reference) {
  std::vector<Alternatives> groups;
  std::map<std::vector<int32_t>, size_t> group_of;
  for (const ReferencePrompt& prompt : reference.prompts) {
    const auto [at, is_new] = group_of.emplace(prompt.ids, groups.size());
    if (is_new) groups.emplace_back();
    groups[at->second].push_back(&prompt);
  }
  return groups;
}

// Continuations that are long enough to have a step t.
Alternatives reaching(const Alternatives& alternatives, size_t t) {
  Alternatives result;
  std::copy_if(alternatives.begin(), alternatives.end(), std::back_inserter(result),
               [t](const ReferencePrompt* p) { return t < p->steps.size(); });
  return result;
}

// Follows every continuation that still agrees with the engine. As long as all published
// continuations share the path, the next token counts as decided: another one is WRONG. Where they
// part, or after they have parted, a token of none of them may be a near tie that was not
// published: DRIFT from there on.
void judge_group(const Alternatives& group, const std::vector<int32_t>& ids,
                 const ParityOptions& options, ParityReport& report) {
  Alternatives followed = group;
  bool parted = false, drifting = false;
  for (size_t t = 0; t < ids.size(); ++t) {
    const Alternatives here = drifting ? Alternatives() : reaching(followed, t);
    Alternatives agreeing;
    for (const ReferencePrompt* p : here) {
      if (p->steps[t].token == ids[t]) agreeing.push_back(p);
    }
    const bool one_token = std::all_of(here.begin(), here.end(), [&](const ReferencePrompt* p) {
      return p->steps[t].token == here.front()->steps[t].token;
    });
    const Alternatives& shown =
        !agreeing.empty() ? agreeing : reaching(here.empty() ? group : here, t);
    ParityRow row = make_row(*shown.front(), static_cast<int>(t), ids[t], options);
    if (!agreeing.empty()) {
      row.verdict = StepVerdict::kExact;
      followed = agreeing;
    } else {
      row.verdict = !drifting && one_token && !parted ? StepVerdict::kWrong : StepVerdict::kDrift;
      drifting = true;
    }
    report.decided_steps += !drifting && one_token && !parted;
    parted = parted || !one_token;
    report.rows.push_back(row);
  }
}

// Decodes each group's prompt free-running, twice with options.free_runs.
void judge_groups(Engine& engine, const std::vector<Alternatives>& groups,
                  const ParityOptions& options, ParityReport& report, Findings& findings) {
  int done = 0;
  for (const Alternatives& group : groups) {
    size_t steps = 0;
    for (const ReferencePrompt* p : group) steps = std::max(steps, p->steps.size());
    const ReferencePrompt& first = *group.front();
    std::vector<int32_t> ids;
    for (int run = 0; run < (options.free_runs ? 2 : 1); ++run) {
      start_prompt(engine, first);
      const std::vector<int32_t> again =
          checked_decode(engine, static_cast<int>(steps), nullptr, nullptr, first.name, findings);
      if (run == 0) {
        judge_group(group, again, options, report);
        report.steps += static_cast<int>(steps);
      }
      if (run > 0) findings.ran(Check::kSame);
      if (run > 0 && again != ids) {
        const auto at = std::mismatch(ids.begin(), ids.end(), again.begin());
        findings.fail(
            Check::kRepeats, Verdict::kNondeterministic,
            fmt::format("prompt '{}': two equal free runs differ, first at step {}: {} against {}",
                        first.name, at.first - ids.begin(), *at.second, *at.first));
      }
      ids = again;
    }
    ++report.prompts;
    if (options.on_progress) {
      options.on_progress(first.name, ++done, static_cast<int>(groups.size()));
    }
  }
}

void conclude_ids(ParityReport& report, Findings& findings) {
  tally_rows(report);
  findings.ran(Check::kDecided);
  for (const Check check : {Check::kFinite, Check::kRms, Check::kStep, Check::kInf, Check::kKl,
                            Check::kRatchet, Check::kNearTie, Check::kFlips, Check::kSelf}) {
    findings.rule_out(check, "published ids alone: the reference has no logits");
  }
  findings.rule_out(Check::kStrict, "published ids alone: no margin makes a prompt strict");
  if (report.wrong == 0) return;
  const auto wrong = std::find_if(report.rows.begin(), report.rows.end(), [](const ParityRow& r) {
    return r.verdict == StepVerdict::kWrong;
  });
  findings.fail(Check::kDecided, Verdict::kFailToken,
                fmt::format("leaves every published continuation where they agree, {}",
                            describe_row(*wrong)));
}

}  // namespace

void judge_token_only(Engine& engine, const GreedyReference& reference,
                      const ParityOptions& options, ParityReport& report, Findings& findings) {
  const std::vector<Alternatives> groups = group_by_ids(reference);
  conclude_however_it_ends([&] { judge_groups(engine, groups, options, report, findings); },
                           [&] { conclude_ids(report, findings); });
}

GreedyReference merge_token_only(const std::vector<GreedyReference>& references) {
  if (references.empty())
    throw Error(ErrorKind::kInvalidReference, "token-only references: found none");
  GreedyReference merged = references.front();
  for (const GreedyReference& r : references) {
    if (!r.token_only) {
      throw Error(
          ErrorKind::kInvalidReference,
          fmt::format("reference {}: has logits, wanted a token-only one", r.path.string()));
    }
    if (r.weights_sha256 != merged.weights_sha256) {
      throw Error(
          ErrorKind::kInvalidReference,
          fmt::format("reference {}: weights sha256 {}, wanted {} as in {}", r.path.string(),
                      r.weights_sha256, merged.weights_sha256, merged.path.string()));
    }
  }
  for (size_t i = 1; i < references.size(); ++i) {
    merged.prompts.insert(merged.prompts.end(), references[i].prompts.begin(),
                          references[i].prompts.end());
  }
  return merged;
}

}  // namespace mkbench
