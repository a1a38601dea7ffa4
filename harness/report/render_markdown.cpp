#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "harness/report/known_errors.h"
#include "harness/report/readings.h"
#include "harness/report/render.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

bool same_group(const CaseReport& a, const CaseReport& b) {
  return a.model == b.model && a.n_gen == b.n_gen && (a.n_prompt > 0) == (b.n_prompt > 0);
}

std::string receipts_line(const CaseGroup& group) {
  int64_t checked = 0, wrong = 0;
  for (const CaseReport* c : group) {
    for (const EngineReport& e : c->engines) {
      checked += e.receipts_checked;
      wrong += e.receipts_wrong;
    }
  }
  if (checked == 0) return {};
  const std::string& check = group.front()->timed_check;
  return fmt::format(
      "- timed tokens: {} of {} {}\n", with_commas(checked - wrong), with_commas(checked),
      check == "closed form" ? "match the closed form" : "are confirmed by the truth");
}

// "state receipts, all equal: eager 2 of 10 blocks, ring 1 of 10 blocks (further ids)"
std::string state_note(const CaseReport& c) {
  std::string text;
  for (const EngineReport& e : c.engines) {
    const auto is_checked = [](const Sample& s) { return !s.state_checked.empty(); };
    const auto first = std::find_if(e.samples.begin(), e.samples.end(), is_checked);
    if (first == e.samples.end() || !times_allowed(e.verdict)) continue;
    text += fmt::format("{}{} {} of {} blocks ({})", text.empty() ? "" : ", ", engine_label(e),
                        std::count_if(first, e.samples.end(), is_checked), e.samples.size(),
                        first->state_checked);
  }
  return text.empty() ? "" : "state receipts, all equal: " + text;
}

// A note on an engine that takes no late id or gets one twice; else empty.
std::string late_note(const EngineReport& e) {
  if (e.samples.empty()) return {};
  if (!takes_late_ids(e)) {
    return fmt::format(
        "{}: no late id: the engine knows its last input id before the clock begins, and is never "
        "called FASTER",
        engine_label(e));
  }
  std::set<int32_t> ids;
  for (const Sample& s : e.samples) ids.insert(*s.late_id);
  if (ids.size() == e.samples.size()) return {};
  return fmt::format("{}: {} late ids for {} blocks: the vocabulary has no more", engine_label(e),
                     ids.size(), e.samples.size());
}

// "processes, started and opened in ms: eager by mkbench-host-torch 292 + 53 (a call costs 70 us)"
std::string processes_note(const CaseReport& c) {
  std::string text;
  for (const EngineReport& e : c.engines) {
    const ProcessFacts& p = e.process;
    if (p.program.empty()) continue;
    text += fmt::format("{}{} by {} {:.0f} + {:.0f}", text.empty() ? "" : ", ", e.name, p.program,
                        p.start_ms, p.open_ms);
    if (p.crossing_us > 0) text += fmt::format(" (a call costs {:.0f} us)", p.crossing_us);
  }
  return text.empty() ? "" : "processes, started and opened in ms: " + text;
}

// "plain: 1 launch for 64 tokens, 2 copies; ...". With one launch a token or more, counts are per
// token. Empty without a trace, and for an engine whose times are not shown.
std::string launches_note(const EngineReport& e) {
  if (!e.launch_trace || !times_allowed(e.verdict)) return {};
  const LaunchTrace& t = *e.launch_trace;
  if (!t.problem.empty())
    return fmt::format("{}: launches not run: {}", engine_label(e), one_line(t.problem));
  const bool whole = t.launches() < t.tokens;
  const auto count = [&](int64_t n, const char* one, const char* more) {
    const double each = std::round(10.0 * static_cast<double>(n) / (whole ? 1 : t.tokens)) / 10;
    return fmt::format("{:g} {}", each, each == 1 ? one : more);
  };
  std::string text =
      fmt::format("{}: {}", engine_label(e), count(t.launches(), "launch", "launches"));
  text += whole ? fmt::format(" for {} tokens", t.tokens) : " a token";
  if (t.graph_launches > 0) {
    text += fmt::format(" ({} of {})", count(t.graph_launches, "graph", "graphs"),
                        count(t.graph_nodes, "node", "nodes"));
  }
  if (t.copies > 0) text += ", " + count(t.copies, "copy", "copies");
  if (t.memsets > 0) text += ", " + count(t.memsets, "memset", "memsets");
  if (t.synchronisations > 0)
    text += ", " + count(t.synchronisations, "synchronisation", "synchronisations");
  if (t.wall_ms > 0) {
    text += fmt::format("; the GPU idled {:.0f} % of {} ms", 100 * (1 - t.busy_ms / t.wall_ms),
                        digits(t.wall_ms));
  }
  return text;
}

// "rope_theta 1000000 (rope_parameters.rope_theta); scaled: llama3, ...; LM head: the embedding, ..."
std::string model_note(const CaseReport& c) {
  if (c.rope_theta_key.empty()) return {};
  return fmt::format("rope_theta {:.17g} ({}){}{}", c.rope_theta, one_line(c.rope_theta_key),
                     c.rope_scaling.empty() ? "" : "; scaled: " + one_line(c.rope_scaling),
                     c.head.empty() ? "" : "; LM head: " + one_line(c.head));
}

// "not covered: text embedding: 1 tensor, 622329856 bytes; speech tokenizer (codec ids to audio)"
std::string not_covered_note(const CaseReport& c) {
  if (c.not_covered.empty()) return {};
  return fmt::format("{}: the decoder's trunk alone was run, by ids; not covered: {}",
                     one_line(c.model_kind),
                     one_line(fmt::format("{}", fmt::join(c.not_covered, "; ")), 600));
}

// The text that an engine generated in parity, if the reference has texts.
std::string text_note(const EngineReport& e) {
  if (!e.parity || e.parity->text.empty()) return {};
  return fmt::format("text by {}: {} -> {}", engine_label(e),
                     quoted_text(e.parity->text_prompt, 80), quoted_text(e.parity->text, 160));
}

// Notes below the table of a case: parity, why a column is empty, generated text, and any verdict
// but PASS.
std::vector<std::string> notes_of(const CaseReport& c, bool on_cpu) {
  std::vector<std::string> notes;
  if (std::string note = model_note(c); !note.empty()) notes.push_back(std::move(note));
  if (c.reference.starts_with("live") && !c.reference_versions.empty())
    notes.push_back("live truth: " + one_line(c.reference_versions, 300));
  if (!c.live_check.empty())
    notes.push_back("live libtorch fp32 reference: " + one_line(c.live_check));
  if (std::string note = not_covered_note(c); !note.empty()) notes.push_back(std::move(note));
  for (std::string& note : weights_notes(c)) notes.push_back(std::move(note));
  if (std::string note = ceiling_note(c); !note.empty()) notes.push_back(std::move(note));
  for (const EngineReport& e : c.engines) {
    if (e.parity) notes.push_back(render_parity_line(e));
    if (std::string note = text_note(e); !note.empty()) notes.push_back(std::move(note));
  }
  for (const EngineReport& e : c.engines) {
    if (is_parity_case(c)) continue;
    if (!e.times_withheld.empty()) {
      // The case's reasons, which follow below, name a failing verdict already.
      if (!times_allowed(e.verdict) || !e.timed) continue;
      notes.push_back(
          fmt::format("{}: times withheld: {}", engine_label(e), one_line(e.times_withheld, 400)));
    } else if (!on_cpu && !e.share.value && !e.share.reason.empty()) {
      notes.push_back("no share of the ceiling: " + one_line(e.share.reason));
    }
  }
  for (const EngineReport& e : c.engines) {
    if (std::string note = launches_note(e); !note.empty()) notes.push_back(std::move(note));
    if (!e.audit.empty())
      notes.push_back(fmt::format("{}: {}", engine_label(e), one_line(e.audit, 400)));
  }
  for (const EngineReport& e : c.engines) {
    if (std::string note = late_note(e); !note.empty()) notes.push_back(std::move(note));
  }
  if (std::string note = state_note(c); !note.empty()) notes.push_back(std::move(note));
  for (const EngineReport& e : c.engines) {
    // Not compared with all of kProfileNotAsked: earlier versions named another flag there.
    const bool asked = e.role == "candidate" && !e.profile && !e.profile_reason.empty() &&
                       !e.profile_reason.starts_with("not asked for");
    if (asked && times_allowed(e.verdict)) {
      notes.push_back(
          fmt::format("no ablations of {}: {}", engine_label(e), one_line(e.profile_reason)));
    }
  }
  for (std::string& note : timing_notes(c)) notes.push_back(std::move(note));
  for (std::string& note : ledger_notes(c)) notes.push_back(std::move(note));
  for (const ComparisonReport& comparison : c.comparisons) {
    if (on_cpu || is_parity_case(c) || comparison.speedup.value ||
        comparison.speedup.reason.empty())
      continue;
    notes.push_back("no speed-up: " + one_line(comparison.speedup.reason));
  }
  for (std::string& note : card_notes(c)) notes.push_back(std::move(note));
  if (std::string note = processes_note(c); !note.empty()) notes.push_back(std::move(note));
  if (!c.generated_text.empty()) {
    notes.push_back("text: " + quoted_text(c.generated_text, 160));
  }
  for (const EngineReport& e : c.engines) {  // without PASS, verdict_note() names skipped engines
    if (c.verdict == Verdict::kPass && e.verdict == Verdict::kSkipped && !e.reasons.empty())
      notes.push_back(fmt::format("{}: SKIPPED: {}", engine_label(e), one_line(e.reasons[0], 600)));
  }
  if (c.verdict != Verdict::kPass) notes.push_back(verdict_note(c, true));
  return notes;
}

std::string case_label(const CaseReport& c) {
  return c.n_prompt > 0 ? fmt::format("pp{}", c.n_prompt)
                        : fmt::format("depth {}", with_commas(c.depth));
}

// A note that all cases of the group have is printed once; any other note is printed with its
// depth.
std::string notes_text(const CaseGroup& group, bool on_cpu) {
  std::vector<std::vector<std::string>> notes;
  for (const CaseReport* c : group) notes.push_back(notes_of(*c, on_cpu));
  const auto holds = [](const std::vector<std::string>& list, const std::string& note) {
    return std::find(list.begin(), list.end(), note) != list.end();
  };
  std::vector<std::string> lines;
  for (size_t i = 0; i < group.size(); ++i) {
    for (const std::string& note : notes[i]) {
      const bool everywhere = std::all_of(notes.begin(), notes.end(),
                                          [&](const auto& list) { return holds(list, note); });
      const std::string line = everywhere ? fmt::format("- {}\n", note)
                                          : fmt::format("- {}: {}\n", case_label(*group[i]), note);
      if (!holds(lines, line)) lines.push_back(line);
    }
  }
  return fmt::format("{}", fmt::join(lines, ""));
}

std::string group_text(const CaseGroup& group, bool on_cpu, const RenderStyle& style) {
  const CaseReport& first = *group.front();
  std::string title = one_line(first.model.empty() ? first.name : first.model);
  if (first.n_gen > 0) title += fmt::format(", {} tokens", with_commas(first.n_gen));
  if (first.n_prompt > 0) title += ", prefill";
  std::string text = fmt::format("\n## {}\n\n", title);
  const bool any = std::any_of(group.begin(), group.end(),
                               [](const CaseReport* c) { return !c->engines.empty(); });
  if (any) text += engine_table(group) + "\n";
  text += receipts_line(group) + notes_text(group, on_cpu) + profile_table(group);
  for (const CaseReport* c : group) text += render_parity_tables(*c, style);
  return text;
}

// The line of device, driver and libraries; what is not known is left out.
std::string header_text(const Report& report) {
  const auto& env = report.environment;
  std::vector<std::string> parts;
  const auto add = [&parts](const std::string& before, const std::string& value) {
    if (!value.empty()) parts.push_back(before + value);
  };
  add("device=", json_text(env, {"device"}));
  if (is_cpu_report(report)) {
    add("", json_text(env, {"cpu", "name"}));
  } else {
    add("sm ", json_text(env, {"gpu", "sm"}));
    add("driver ", json_text(env, {"gpu", "driver"}));
    add("CUDA ", json_text(env, {"gpu", "cuda_runtime"}));
  }
  add("libtorch ", json_text(env, {"libtorch", "version"}));
  if (report.calibration.is_object() && report.calibration.contains("pin_gb_per_s") &&
      report.calibration["pin_gb_per_s"].is_number()) {
    const double pins = report.calibration["pin_gb_per_s"].get<double>();
    add("", fmt::format("memory {} GB/s at the pins", digits(pins)));
  }
  const std::string version = json_text(report.meta, {"version"});
  return fmt::format("# mkbench{}\n\n{}\n", version.empty() ? "" : " " + version,
                     fmt::format("{}", fmt::join(parts, ", ")));
}

std::string reads_text(const StepReads& reads) {
  std::string text = fmt::format("a decode step reads {} bytes of parameters and states",
                                 with_commas(reads.fixed));
  for (const StepReads::Rows& rows : reads.rows) {
    text += fmt::format(
        ", {} of each {}", with_commas(rows.bytes),
        rows.most > 0 ? fmt::format("of the last {} positions", rows.most) : "position before it");
  }
  return text;
}

std::string footer_text(const Report& report) {
  std::string text = "\n" + verdict_line(report, "");
  const std::string output = json_text(report.meta, {"output"});
  if (!output.empty()) text += fmt::format("\nreport: {}\n", output);
  return text;
}

}  // namespace

std::vector<std::string> weights_notes(const CaseReport& c) {
  std::vector<std::string> notes;
  if (!c.reads.unknown.empty())
    notes.push_back("what a decode step reads is not known: " + one_line(c.reads.unknown));
  if (c.reads.known()) notes.push_back(reads_text(c.reads));
  if (c.format_cost) notes.push_back("the format costs, " + one_line(cost_text(*c.format_cost)));
  if (!c.rounded.empty())
    notes.push_back(one_line(c.rounded) +
                    " are rounded to bf16, for truth, baselines and engines alike");
  for (const std::string& note : c.notes) notes.push_back(one_line(note, 600));
  return notes;
}

std::string verdict_note(const CaseReport& c, bool below_parity) {
  std::string note = fmt::format("verdict: **{}**", verdict_name(c.verdict));
  for (const std::string& reason : c.reasons) {
    if (!below_parity || !parity_tells(c, reason)) note += "\n  - " + one_line(reason, 600);
  }
  for (const std::string& advice : advice_lines(c.reasons)) note += "\n  - " + advice;
  return note;
}

std::string verdict_line(const Report& report, const std::string& took) {
  int64_t skipped = 0;
  for (const CaseReport& c : report.cases) {
    skipped += std::count_if(c.engines.begin(), c.engines.end(),
                             [](const EngineReport& e) { return e.verdict == Verdict::kSkipped; });
  }
  std::string text =
      fmt::format("**{}** (exit code {}, {} case{}{}){}\n", verdict_name(report.verdict),
                  report.exit_code, report.cases.size(), report.cases.size() == 1 ? "" : "s",
                  skipped > 0 ? fmt::format(", {} skipped", skipped) : "", took);
  if (report.cases.empty()) {  // reasons of cases are printed with the cases
    for (const std::string& reason : report.reasons) {
      text += fmt::format("- {}\n", one_line(reason, 600));
    }
    for (const std::string& advice : advice_lines(report.reasons)) text += "- " + advice + "\n";
  }
  return text + resumed_lines(report);
}

std::string render_markdown(const Report& report, const RenderStyle& style) {
  std::string text = header_text(report);
  if (is_cpu_report(report)) {
    const std::string banner = json_text(report.environment, {"banner"});
    text += fmt::format(
        "\n> **NO GPU RESULT: device=cpu.** {}\n> Note: {}; no share of a ceiling is shown.\n",
        banner.empty()         ? "Asked for with --device cpu."
        : style.tells_fallback ? one_line(banner) + "."
                               : "The reason is printed above.",
        cpu_note(report));
  }
  if (report.interrupted) text += "\n> **INTERRUPTED.** This report is partial.\n";
  std::vector<CaseGroup> groups;
  for (const CaseReport& c : report.cases) {
    if (groups.empty() || !same_group(*groups.back().front(), c)) groups.emplace_back();
    groups.back().push_back(&c);
  }
  for (const CaseGroup& group : groups) text += group_text(group, is_cpu_report(report), style);
  return text + footer_text(report);
}

std::string render(std::span<const Report> reports, const std::string& format,
                   const RenderStyle& style) {
  if (format == "jsonl") return render_jsonl(reports);
  if (format == "csv") return render_csv(reports);
  if (format == "sql") return render_sql(reports);
  if (format == "benchmark") return render_benchmark(reports);
  if (format == "openmetrics") return render_openmetrics(reports);
  std::string text;
  nlohmann::json all = nlohmann::json::array();
  for (const Report& report : reports) {
    if (format == "md") {
      text += (text.empty() ? "" : "\n---\n\n") + render_markdown(report, style);
    } else if (format == "annotations") {
      text += render_annotations(report_suites(report));
    } else if (format == "json") {
      all.push_back(to_json(report));
    } else {
      throw Error(ErrorKind::kBadInput,
                  fmt::format("output format: found '{}', wanted md, json, jsonl, csv, sql, "
                              "benchmark, openmetrics or annotations",
                              format));
    }
  }
  return format == "json" ? dump_readable(all.size() == 1 ? all.front() : all) + "\n" : text;
}

}  // namespace mkbench
