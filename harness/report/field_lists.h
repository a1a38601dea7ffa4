// The fields of report.json: each struct's list names a field, its member and what it means.
// Writer, reader and JSON Schema walk these lists, so the three cannot drift apart.
#pragma once

#include <string_view>

#include "harness/report/report.h"

namespace mkbench {

// describe_fields(visitor, tag): calls visitor.field(name, member, doc) for every field,
// visitor.group(name, doc, body) for members that the file nests without a struct of their own.
// struct_name() names the schema's definitions.
template <typename T>
struct Tag {};

constexpr std::string_view struct_name(Tag<Interval>) { return "interval"; }
template <typename V>
void describe_fields(V& v, Tag<Interval>) {
  v.field("low", &Interval::low, "lower end");
  v.field("high", &Interval::high, "upper end");
}

constexpr std::string_view struct_name(Tag<Summary>) { return "summary"; }
template <typename V>
void describe_fields(V& v, Tag<Summary>) {
  v.field("count", &Summary::count, "blocks");
  v.field("mean", &Summary::mean, "mean over blocks");
  v.field("median", &Summary::median, "median over blocks");
  v.field("min", &Summary::min, "smallest block");
  v.field("max", &Summary::max, "largest block");
  v.field("rel_sd", &Summary::rel_sd, "sample standard deviation over the mean");
  v.field("ci", &Summary::ci, "t interval of the mean; null below 2 blocks");
}

constexpr std::string_view struct_name(Tag<DecodeTimes>) { return "decode_times"; }
template <typename V>
void describe_fields(V& v, Tag<DecodeTimes>) {
  v.field("host_ms", &DecodeTimes::host_ms, "steady clock around the synchronised call");
  v.field("event_ms", &DecodeTimes::event_ms, "CUDA events; 0 where the engine has none");
  v.field("device_ms", &DecodeTimes::device_ms,
          "%globaltimer in the kernel; 0 where there is none");
  v.field("sm_ghz", &DecodeTimes::sm_ghz, "mean SM clock seen by the kernel; 0 where not taken");
  v.field("per_token_ms", &DecodeTimes::per_token_ms, "device time of each token, where taken");
}

constexpr std::string_view struct_name(Tag<Sample>) { return "sample"; }
template <typename V>
void describe_fields(V& v, Tag<Sample>) {
  v.field("engine", &Sample::engine, "name of the engine");
  v.field("block", &Sample::block, "paired block that the sample belongs to");
  v.field("order", &Sample::order, "place inside the block");
  v.field("tokens", &Sample::tokens, "tokens decoded");
  v.field("start_ms", &Sample::start_ms, "start since the case began, host clock; 0 if not taken");
  v.field("times", &Sample::times, "the decode by three clocks");
  v.field("ids", &Sample::ids, "token receipts");
  v.field("receipts_checked", &Sample::receipts_checked, "receipts compared with the reference");
  v.field("receipts_wrong", &Sample::receipts_wrong, "receipts that differ from it");
  v.field("valid", &Sample::valid, "counts for the statistics");
  v.field("repeats", &Sample::repeats, "runs dropped before this one: clocks disagreed");
  v.field("invalid_reason", &Sample::invalid_reason, "why not, else empty");
}

constexpr std::string_view struct_name(Tag<ParityRow>) { return "parity_row"; }
template <typename V>
void describe_fields(V& v, Tag<ParityRow>) {
  v.field("prompt", &ParityRow::prompt, "name of the prompt");
  v.field("set", &ParityRow::set, "strict, near-tie or closed-form");
  v.field("pos", &ParityRow::position, "KV rows before the step");
  v.field("ref_id", &ParityRow::reference_id, "the reference's token");
  v.field("mk_id", &ParityRow::engine_id, "the engine's token");
  v.field("ref_text", &ParityRow::reference_text, "the reference's token as text");
  v.field("mk_text", &ParityRow::engine_text, "the engine's token as text");
  v.field("match", &ParityRow::verdict, "verdict of the step");
  v.field("margin", &ParityRow::margin, "top-1 minus top-2 logit of T; 0 in token-only references");
}

constexpr std::string_view struct_name(Tag<CheckResult>) { return "check"; }
template <typename V>
void describe_fields(V& v, Tag<CheckResult>) {
  v.field("name", &CheckResult::check, "which check");
  v.field("status", &CheckResult::status, "passed, failed or not_applicable");
  v.field("value", &CheckResult::value, "what was found, where the check is a number");
  v.field("limit", &CheckResult::limit, "largest value that passes; null where none is judged");
  v.field("detail", &CheckResult::detail, "why it failed or does not apply; else empty");
}

constexpr std::string_view struct_name(Tag<ParityReport>) { return "parity"; }
template <typename V>
void describe_fields(V& v, Tag<ParityReport>) {
  using P = ParityReport;
  v.field("verdict", &P::verdict, "verdict of parity alone");
  v.field("reason", &P::reason, "empty when passed");
  v.field("reference", &P::reference, "reference file, 'live' or 'closed form'");
  v.field("reference_sha256", &P::reference_sha256, "of the file; empty when live");
  v.field("judged_in", &P::judged_in,
          "earlier case of this run that judged it; empty when this case did");
  v.field("prompts", &P::prompts, "prompts judged");
  v.field("steps", &P::steps, "steps judged");
  v.field("strict_steps", &P::strict_steps, "free-running steps of the strict set");
  v.field("strict_matched", &P::strict_matched, "of these, equal to the reference");
  v.field("decided_steps", &P::decided_steps, "steps with a margin over tau");
  v.field("exact", &P::exact, "rows that are EXACT");
  v.field("ties", &P::ties, "rows that are TIE");
  v.field("drifts", &P::drifts, "rows that are DRIFT");
  v.field("wrong", &P::wrong, "rows that are WRONG");
  v.field("flips", &P::flips, "teacher-forced steps whose token is not T's");
  v.field("flips_allowed", &P::flips_allowed, "most flips that pass");
  v.field("self_inconsistent", &P::self_inconsistent,
          "tokens that are not the argmax of own logits");
  v.field("non_finite", &P::non_finite, "logits that are NaN or Inf");
  v.field("r_rms", &P::r_rms, "logit error over B's, root mean square; null without logits");
  v.field("r_rms_limit", &P::r_rms_limit, "largest ratio that passes; 0 where it is not judged");
  v.field("first_divergence", &P::first_divergence, "index of the first row that differs");
  v.field("checks", &P::checks, "every check that ran or was ruled out, each once");
  v.field("repeats_sha256", &P::repeats_sha256,
          "of ids and logits of the repeated prompts; empty where none were repeated");
  v.field("localised", &P::localised,
          "where a failure begins: layer, KV row or lag; empty when nothing failed");
  v.field("rows", &P::rows, "the parity table");
}

constexpr std::string_view struct_name(Tag<RooflineShare>) { return "roofline"; }
template <typename V>
void describe_fields(V& v, Tag<RooflineShare>) {
  using R = RooflineShare;
  v.field("bytes_per_token", &R::bytes_per_token, "weights and KV read at the mean context");
  v.field("ceiling_gb_per_s", &R::ceiling_gb_per_s, "read bandwidth measured in the same run");
  v.field("floor_ms", &R::floor_ms, "bytes over ceiling");
  v.field("fraction", &R::fraction, "floor over median ms per token; 0 where unknown");
  v.field("applies", &R::applies, "whether the roofline binds here");
  v.field("reason", &R::reason, "why it does not");
}

constexpr std::string_view struct_name(Tag<ProfileReport>) { return "profile"; }
template <typename V>
void describe_fields(V& v, Tag<ProfileReport>) {
  using P = ProfileReport;
  v.field("full_us", &P::full_us, "microseconds per token of the samples, median");
  v.field("no_waits_us", &P::no_waits_us, "when no block waits for another, median");
  v.field("no_loads_us", &P::no_loads_us, "when nothing is read from memory, median");
  v.field("binds", &P::binds, "memory, chain, or both: whose time alone explains the full one");
  v.field("no_waits_fraction", &P::no_waits_fraction,
          "share of the roofline that the run without waits reaches");
  v.field("no_waits_runs_us", &P::no_waits_runs_us, "every run without waits, as taken");
  v.field("no_loads_runs_us", &P::no_loads_runs_us, "every run without loads, as taken");
}

constexpr std::string_view struct_name(Tag<EngineReport>) { return "engine"; }
template <typename V>
void describe_fields(V& v, Tag<EngineReport>) {
  using E = EngineReport;
  v.field("name", &E::name, "as asked for");
  v.field("resolved_name", &E::resolved_name, "engine that ran");
  v.field("role", &E::role, "baseline or candidate");
  v.field("device", &E::device, "where it ran");
  v.field("timed", &E::timed, "false for a baseline that only judged parity (--compare none)");
  v.field("verdict", &E::verdict, "verdict on this engine in this case");
  v.field("reasons", &E::reasons, "what led to it");
  v.field("parity", &E::parity, "parity against the reference; null if not judged");
  v.field("times_withheld", &E::times_withheld,
          "why all times are null; empty when they are shown");
  v.field("ms_per_tok", &E::ms_per_tok, "milliseconds per token over blocks; null when withheld");
  v.field("tok_per_s", &E::tok_per_s, "all tokens over all time");
  v.field("tok_per_s_ci_low", &E::tok_per_s_ci_low, "from the interval of ms_per_tok");
  v.field("tok_per_s_ci_high", &E::tok_per_s_ci_high, "from the interval of ms_per_tok");
  v.field("itl_p50_ms", &E::itl_p50_ms, "inter-token latency, median");
  v.field("itl_p90_ms", &E::itl_p90_ms, "inter-token latency, 90th percentile");
  v.field("itl_p99_ms", &E::itl_p99_ms, "inter-token latency, 99th percentile");
  v.field("host_ms", &E::host_ms, "a whole decode, host clock, median over samples");
  v.field("gpu_ms", &E::gpu_ms, "a whole decode, CUDA events, median over samples");
  v.field("first_token_ms", &E::first_token_ms, "its first token, median over samples");
  v.field("sm_ghz", &E::sm_ghz, "SM clock seen by the kernel, median over samples");
  v.field("energy_j", &E::energy_j, "energy of a decode");
  v.field("throttle_reasons", &E::throttle_reasons, "reported by the driver during the samples");
  v.field("roofline_fraction", &E::roofline_fraction, "share of the roofline that was reached");
  v.field("roofline", &E::roofline, "what that share was computed from");
  v.field("profile", &E::profile, "ablations, diagnostics beside the samples; null without them");
  v.field("profile_reason", &E::profile_reason, "why profile is null; else empty");
  v.field("receipts_checked", &E::receipts_checked, "timed tokens compared with the reference");
  v.field("receipts_wrong", &E::receipts_wrong, "timed tokens that differ from it");
  v.field("launches", &E::launches, "kernel launches in all");
  v.field("settings", &E::settings, "pinned library settings");
  v.field("samples", &E::samples, "every timed sample, as taken");
}

constexpr std::string_view struct_name(Tag<ComparisonReport>) { return "comparison"; }
template <typename V>
void describe_fields(V& v, Tag<ComparisonReport>) {
  using C = ComparisonReport;
  v.field("baseline", &C::baseline, "engine that is compared with");
  v.field("candidate", &C::candidate, "engine that is compared");
  v.field("speedup", &C::speedup, "exp of the mean log ratio of paired blocks");
  v.field("ci", &C::ci, "t interval on log ratios; null below 8 blocks");
  v.field("bca_ci", &C::bca_ci, "BCa bootstrap interval of the same; null below 8 blocks");
  v.field("confidence", &C::confidence, "of both intervals");
  v.field("design", &C::design, "how blocks were ordered");
  v.field("blocks", &C::blocks, "pairs that count");
  v.field("verdict", &C::verdict, "FASTER, SLOWER, SAME or INCONCLUSIVE");
}

constexpr std::string_view struct_name(Tag<CaseReport>) { return "case"; }
template <typename V>
void describe_fields(V& v, Tag<CaseReport>) {
  using C = CaseReport;
  v.field("name", &C::name, "model and axes");
  v.group("model", "the weights", [](auto& g) {
    g.field("name", &C::model, "as asked for");
    g.field("id", &C::model_id, "what it resolved to");
    g.field("dtype", &C::dtype, "of the weights");
    g.field("weights_sha256", &C::weights_sha256, "over all tensors' bytes");
    g.field("lagset", &C::lagset, "of the analytic checkpoint; else empty");
  });
  v.group("axes", "what varies between cases", [](auto& g) {
    g.field("n_prompt", &C::n_prompt, "timed prefill ids");
    g.field("n_gen", &C::n_gen, "timed tokens a block");
    g.field("depth", &C::depth, "KV rows before the first timed step");
  });
  v.group("reference", "what decides parity", [](auto& g) {
    g.field("file", &C::reference, "file name, 'live' or 'closed form'");
    g.field("sha256", &C::reference_sha256, "of the file; empty when live");
    g.field("versions", &C::reference_versions, "libraries that made it");
    g.field("timed_check", &C::timed_check, "what timed tokens are compared with");
  });
  v.field("ids_sha256", &C::ids_sha256, "of the timed prompt's ids");
  v.field("generated_text", &C::generated_text, "the candidate's timed tokens as text");
  v.field("bytes_needed", &C::bytes_needed, "device or host memory, computed before loading");
  v.field("bytes_free", &C::bytes_free, "free at that time");
  v.field("verdict", &C::verdict, "worst of its engines'");
  v.field("reasons", &C::reasons, "what led to it");
  v.field("engines", &C::engines, "every engine of the case");
  v.field("comparisons", &C::comparisons, "every candidate against every baseline");
}

constexpr std::string_view struct_name(Tag<Report>) { return "report"; }
template <typename V>
void describe_fields(V& v, Tag<Report>) {
  v.field("meta", &Report::meta, "command line, times, tool version, source state, seed");
  v.field("env", &Report::environment, "device, driver, libraries, processor");
  v.field("calibration", &Report::calibration, "read bandwidth measured in this run; null on cpu");
  v.field("cases", &Report::cases, "one entry for each model and depth");
  v.group("verdict", "of the whole run", [](auto& g) {
    g.field("status", &Report::verdict, "worst of all cases");
    g.field("exit_code", &Report::exit_code, "of the program");
    g.field("reasons", &Report::reasons, "what led to it");
    g.field("interrupted", &Report::interrupted, "stopped by Ctrl-C: the report is partial");
  });
}

}  // namespace mkbench
