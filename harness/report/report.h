// report.json as structs, each with the list of its fields (references/base/fields.h): the writer,
// the JSON Schema and the messages between processes walk these lists.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "harness/measure/launch_trace.h"
#include "harness/measure/sample.h"
#include "harness/measure/statistics.h"
#include "harness/measure/two_level.h"
#include "harness/measure/warm_up.h"
#include "harness/report/card_report.h"
#include "harness/report/format_cost.h"
#include "harness/report/observed_report.h"
#include "harness/report/parity_report.h"
#include "harness/report/profile_report.h"
#include "harness/report/token_text.h"
#include "harness/report/verdict.h"

namespace mkbench {

inline constexpr char kReportSchemaId[] = "mkbench.report";
inline constexpr int kReportSchemaMajor = 1, kReportSchemaMinor = 16;  // new fields: minor + 1

// The process that held an engine.
struct ProcessFacts {
  std::string program;  // "mkbench-host-cuda", or "mkbench-all" for an engine in mkbench's process
  int pid = 0;
  double start_ms = 0;        // from its start until its first message was read
  double open_ms = 0;         // to open the engine, weights included
  double crossing_us = 0;     // what an empty call costs, median
  double crossing_sd_us = 0;  // standard deviation of crossing_us, from its percentiles 10 and 90
};

constexpr std::string_view struct_name(Tag<ProcessFacts>) { return "process"; }
template <typename V>
void describe_fields(V& v, Tag<ProcessFacts>) {
  using P = ProcessFacts;
  v.field("program", &P::program, "the host's program; mkbench-all for a run in one process");
  v.field("pid", &P::pid, "process id");
  v.field("start_ms", &P::start_ms,
          "from the start of the process until its first message was read");
  v.field("open_ms", &P::open_ms, "to open the engine, weights included");
  v.field("crossing_us", &P::crossing_us, "what an empty call costs, median");
  v.field("crossing_sd_us", &P::crossing_sd_us,
          "standard deviation of crossing_us, from its percentiles 10 and 90");
}

// What an engine reports about itself once it is made.
struct EngineFacts {
  std::string resolved_name;  // "plain"; for a plugin "its-name@file.so"
  // Its weights are quantised, and the model's are not; what a step reads is known if it declares that.
  bool own_weights = false, declared_bytes = false;
  std::string device;
  std::string settings;  // of a baseline's library; for ring the row of tuning in use
  ProcessFacts process;
};

template <typename V>
void describe_fields(V& v, Tag<EngineFacts>) {
  v.field("resolved_name", &EngineFacts::resolved_name, "engine that ran");
  v.field("own_weights", &EngineFacts::own_weights,
          "its weights are quantised and the model's are not; judged by what they stand for");
  v.field("declared_bytes", &EngineFacts::declared_bytes, "it says how many bytes these are");
  v.field("device", &EngineFacts::device, "where it ran");
  v.field("settings", &EngineFacts::settings,
          "pinned library settings; for ring the row of tuning in use");
  v.field("process", &EngineFacts::process, "the process that held the engine");
}

struct EngineReport : EngineFacts {
  std::string name;       // as asked for
  std::string flow_name;  // its name in the events of a case; not in report.json
  std::string role;       // "baseline" or "candidate"
  bool timed = true;      // false: a baseline that only judges parity
  Verdict verdict = Verdict::kSkipped;
  std::vector<std::string> reasons;
  std::optional<ParityReport> parity;
  // Times are null unless the verdict is PASS or PASS_LIVE; `times_withheld` says why they are
  // null. Written by aggregate().
  std::string times_withheld;
  std::optional<Summary> ms_per_tok;
  Number tok_per_s, tok_per_s_ci_low, tok_per_s_ci_high;
  Number itl_p50_ms, itl_p90_ms,
      itl_p99_ms;  // inter-token latency, where the engine takes per-token times
  Number host_ms, gpu_ms,
      first_token_ms;          // medians over samples: of a whole decode, and of its first token
  Number prefill_ms, ttft_ms;  // medians over samples of a prefill test
  Number sm_ghz;
  std::optional<ClockOverhead> clock_overhead;
  std::vector<std::string> throttle_reasons;
  std::string card_reason;  // why no reading of the card was tried; else empty
  CardReport card;          // written by aggregate() (judge/conclude.h)
  // The ceiling's time over the engine's, by pairs from the same blocks. Written by aggregate().
  Number share;
  std::optional<Interval> share_ci;
  std::string share_note;  // kCeilingNotFound, or empty
  std::optional<ProfileReport> profile;
  std::string profile_reason;  // why `profile` is absent
  int64_t receipts_checked = 0, receipts_wrong = 0;
  std::string audit;
  ObservedReport observed;
  int64_t launches = 0;
  std::optional<LaunchTrace> launch_trace;
  std::vector<ProcessFacts> timed_processes;  // indexed by Sample::process
  std::vector<WarmUp> warm_ups;
  std::vector<Sample> samples;
  std::vector<Sample> dropped_samples;  // of blocks that were run again
};

constexpr std::string_view struct_name(Tag<EngineReport>) { return "engine"; }
template <typename V>
void describe_fields(V& v, Tag<EngineReport>) {
  using E = EngineReport;
  v.field("name", &E::name, "as asked for");
  describe_fields(v, Tag<EngineFacts>());
  v.field("role", &E::role, "baseline or candidate");
  v.field("timed", &E::timed, "false for a baseline that only judged parity (--compare none)");
  v.field("verdict", &E::verdict, "verdict on this engine in this case");
  v.field("reasons", &E::reasons, "what led to the verdict");
  v.field("parity", &E::parity, "parity against the reference; null if not judged");
  v.field("times_withheld", &E::times_withheld,
          "why all times are null; empty when they are shown");
  v.field("ms_per_tok", &E::ms_per_tok,
          "milliseconds per token over blocks and processes; null when withheld");
  v.field("tok_per_s", &E::tok_per_s,
          "tokens over time: 1000 / ms_per_tok.mean, each process counts once");
  v.field("tok_per_s_ci_low", &E::tok_per_s_ci_low, "1000 / ms_per_tok.ci.high");
  v.field("tok_per_s_ci_high", &E::tok_per_s_ci_high, "1000 / ms_per_tok.ci.low");
  v.field("itl_p50_ms", &E::itl_p50_ms, "inter-token latency, median");
  v.field("itl_p90_ms", &E::itl_p90_ms, "inter-token latency, 90th percentile");
  v.field("itl_p99_ms", &E::itl_p99_ms, "inter-token latency, 99th percentile");
  v.field("host_ms", &E::host_ms,
          "a whole decode, or prefill and first token, host clock, median over samples");
  v.field("gpu_ms", &E::gpu_ms, "a whole decode, CUDA events, median over samples");
  v.field("prefill_ms", &E::prefill_ms, "prefill tests: the prefill alone, median over samples");
  v.field("ttft_ms", &E::ttft_ms,
          "prefill tests: time to the first token after a late id, median over samples");
  v.field("first_token_ms", &E::first_token_ms, "first token of a decode, median over samples");
  v.field("sm_ghz", &E::sm_ghz, "SM clock seen by the kernel, median over samples");
  v.field("clock_overhead", &E::clock_overhead,
          "how much more time the host's clock shows than the engine's own; null for an engine "
          "without its own");
  v.field("throttle_reasons", &E::throttle_reasons, "reported by the driver during the samples");
  v.field("card_reason", &E::card_reason, "why the card was not read; else empty");
  v.field("card", &E::card, "what the card did during the samples");
  v.field(
      "share", &E::share,
      "the ceiling's time over the engine's: exp of the mean log ratio of paired blocks, in each "
      "process and then over processes");
  v.field("share_ci", &E::share_ci,
          "interval of share, computed like a speed-up's; null if there are too few blocks");
  v.field("share_note", &E::share_note,
          "'ceiling not found' where all of the interval lies above 1; else empty");
  v.field("profile", &E::profile, "ablations, for diagnosis only; null if none were run");
  v.field("profile_reason", &E::profile_reason, "why profile is null; else empty");
  v.field("receipts_checked", &E::receipts_checked, "timed tokens compared with the reference");
  v.field("receipts_wrong", &E::receipts_wrong, "timed tokens that differ from the reference");
  v.field("audit", &E::audit,
          "how much of what a decode must read it reads, by a profiler's counters or by changed "
          "tiles of the weights, or why neither tells; empty if it was not asked for");
  v.field("observed", &E::observed,
          "what timed decodes take that are asked for logits as well; they are no samples");
  v.field("launches", &E::launches, "kernel launches in all, as the engine counts them");
  v.field("launch_trace", &E::launch_trace,
          "what an untimed decode handed to the card, as the driver recorded it; null if it did "
          "not run");
  v.field("timed_processes", &E::timed_processes,
          "the processes that took the samples; process of a sample is an index into this list");
  v.field("warm_ups", &E::warm_ups,
          "how the engine was warmed up in each process; empty where --warmup counted runs");
  v.field("samples", &E::samples, "every timed sample that was not dropped, as taken");
  v.field("dropped_samples", &E::dropped_samples,
          "samples of blocks that were dropped for the state of the card and run again");
}

// The engine of role `ceiling`: it reads what a step must read and does nothing else, in the same
// blocks as the other engines. It is neither judged nor compared.
struct CeilingReport : EngineFacts {  // settings: the fastest of the read patterns that it tried
  std::string reason;                 // why there is no ceiling, or why it ended early; else empty
  std::optional<Summary> ms_per_tok;  // written by aggregate(), like gb_per_s
  Number gb_per_s;
  std::vector<Sample> samples;  // one is several passes over the steps; `tokens` counts all
};

constexpr std::string_view struct_name(Tag<CeilingReport>) { return "ceiling"; }
template <typename V>
void describe_fields(V& v, Tag<CeilingReport>) {
  using C = CeilingReport;
  v.field("reason", &C::reason,
          "why there is no ceiling, or why it ended before the last block; else empty");
  v.group("engine",
          "the engine that read; settings: the fastest of the read patterns that it tried",
          [](auto& g) { describe_fields(g, Tag<EngineFacts>()); });
  v.field("ms_per_tok", &C::ms_per_tok, "milliseconds a step over blocks; null without a ceiling");
  v.field("gb_per_s", &C::gb_per_s, "bytes of all steps over their time, 1e9 bytes a second");
  v.field("samples", &C::samples,
          "every sample; each is several passes over the case's steps, and tokens counts them all");
}

inline constexpr char kCeilingNotFound[] = "ceiling not found";

struct ComparisonReport {
  std::string baseline, candidate;
  Number speedup;
  std::optional<Interval> ci, bca_ci;
  double confidence = 0.95;
  std::string design;  // "paired blocks, abba"
  int blocks = 0, processes = 0;
  double margin = 0;          // SpeedMargin::value()
  std::string margin_source;  // SpeedMargin::source
  std::string verdict;        // FASTER SLOWER SAME INCONCLUSIVE
  std::string verdict_reason;
  std::string label;
  std::string caveat;
};

constexpr std::string_view struct_name(Tag<ComparisonReport>) { return "comparison"; }
template <typename V>
void describe_fields(V& v, Tag<ComparisonReport>) {
  using C = ComparisonReport;
  v.field("baseline", &C::baseline, "engine that the candidate is compared with");
  v.field("candidate", &C::candidate, "engine that is compared with the baseline");
  v.field("speedup", &C::speedup,
          "time of the baseline over that of the candidate: exp of the mean log ratio of paired "
          "blocks, in each process and then over processes");
  v.field("ci", &C::ci,
          "t interval on the log ratios: over processes, or over the blocks of the only process; "
          "null if that one has fewer than 8 blocks");
  v.field("bca_ci", &C::bca_ci, "BCa bootstrap interval of the same log ratios");
  v.field("confidence", &C::confidence, "confidence level of both intervals");
  v.field("design", &C::design, "how blocks were ordered");
  v.field("blocks", &C::blocks, "pairs of blocks that the ratio is taken over");
  v.field("processes", &C::processes, "processes that the pairs were taken in");
  v.field("margin", &C::margin,
          "difference that a verdict must exceed: FASTER where the whole interval lies above 1 + "
          "margin, SAME where all of it lies within");
  v.field("margin_source", &C::margin_source, "where the margin comes from");
  v.field("verdict", &C::verdict, "FASTER, SLOWER, SAME or INCONCLUSIVE");
  v.field("verdict_reason", &C::verdict_reason,
          "why it is INCONCLUSIVE whatever the interval says; else empty");
  v.field("label", &C::label,
          "'no late id' if one of the engines takes none, 'lossy' if only one is quantised, 'N % "
          "of X's blocks dropped' if N is too large; else empty");
  v.field("caveat", &C::caveat, "what the ratio does not say; else empty");
}

struct CaseReport {
  std::string name;  // "synthetic d=512 n=128"
  std::string model, model_id, dtype = "bf16", weights_sha256, lagset;
  uint64_t salt = 0;
  int generator = 0;
  double rope_theta = 0;
  std::string rope_theta_key, rope_scaling, head;
  std::string model_kind, rounded;
  std::vector<std::string> not_covered, notes;
  int depth = 0, n_gen = 0, n_prompt = 0;
  std::string reference, reference_sha256, reference_versions, live_check;
  std::string timed_check;  // "closed form", or "late ids, scored by the truth"
  std::string ids_sha256;   // of the prompt
  std::string generated_text;
  std::vector<int32_t> generated_ids;  // the ids of generated_text; not in report.json
  std::vector<TokenText> token_texts;  // by id; empty if the model has no tokenizer.json
  int64_t bytes_needed = 0, bytes_free = 0;
  std::string resident;  // "all" or "one"
  Verdict verdict = Verdict::kSkipped;
  std::vector<std::string> reasons;
  bool interrupted = false;  // Ctrl-C came before its end: a resumed run repeats the case
  StepReads reads;           // known where transformers computes the model
  std::optional<FormatCost> format_cost;
  MemoryBound memory;  // set by set_memory() (archive/recompute.h)
  CeilingReport ceiling;
  std::vector<EngineReport> engines;
  std::vector<ComparisonReport> comparisons;
};

constexpr std::string_view struct_name(Tag<CaseReport>) { return "case"; }
template <typename V>
void describe_fields(V& v, Tag<CaseReport>) {
  using C = CaseReport;
  v.field("name", &C::name, "model and axes");
  v.group("model", "the weights", [](auto& g) {
    g.field("name", &C::model, "as asked for");
    g.field("id", &C::model_id, "what it resolved to");
    g.field("dtype", &C::dtype, "data type of the weights");
    g.field("weights_sha256", &C::weights_sha256, "sha256 over the bytes of all tensors");
    g.field("rope_theta", &C::rope_theta, "as the config has it; 0: not loaded");
    g.field("rope_theta_key", &C::rope_theta_key, "key of config.json that it was read from");
    g.field(
        "rope_scaling", &C::rope_scaling,
        "how the rotary frequencies are scaled: rope_type and its factors; empty: they are not");
    g.field("head", &C::head, "which LM head, and by which rule");
    g.field(
        "kind", &C::model_kind,
        "model_type of the checkpoint; for qwen3_tts only the talker's trunk runs, on codec ids");
    g.field("not_covered", &C::not_covered,
            "parts of the checkpoint that no engine of mkbench computes with");
    g.field("notes", &C::notes,
            "what the loader left unread, or decided where the folder contradicts itself in "
            "something that no result depends on");
    g.field("rounded", &C::rounded,
            "how many of the checkpoint's tensors were rounded to bf16, by the type that they are "
            "stored in; empty: none");
    g.field("reads", &C::reads, "what a decode step reads, of a model that transformers computes");
    g.field("lagset", &C::lagset, "lag set of an analytic checkpoint; else empty");
    g.field("salt", &C::salt,
            "what the map from states to ids and the noise of an analytic checkpoint were drawn "
            "from; 0: that of the references, or no such checkpoint");
    g.field("generator", &C::generator,
            "version of the generator of an analytic checkpoint: weights of one version, shape and "
            "lag set differ in the salt alone; else 0");
  });
  v.group("axes", "what varies between cases", [](auto& g) {
    g.field("n_prompt", &C::n_prompt, "timed prefill ids");
    g.field("n_gen", &C::n_gen, "timed tokens a block");
    g.field("depth", &C::depth, "KV rows before the first timed step");
  });
  v.group("reference", "what decides parity", [](auto& g) {
    g.field("file", &C::reference, "file name, 'live' or 'closed form'");
    g.field("sha256", &C::reference_sha256, "sha256 of the file; empty when live");
    g.field("versions", &C::reference_versions, "libraries that made it");
    g.field("live_check", &C::live_check,
            "how many prompts of a live reference the closed form has confirmed; else empty");
    g.field("timed_check", &C::timed_check, "what timed tokens are compared with");
  });
  v.field("ids_sha256", &C::ids_sha256,
          "sha256 of the timed prompt's ids; each sample's late_id replaces the last one");
  v.field("generated_text", &C::generated_text, "timed tokens of the first sample as text");
  v.field(
      "token_texts", &C::token_texts,
      "ids of this case as text, by the tokenizer.json of the model's folder; empty without one");
  v.field("resident", &C::resident, "engines open at a time: all or one");
  v.field("bytes_needed", &C::bytes_needed, "device or host bytes, computed before loading");
  v.field("bytes_free", &C::bytes_free, "free bytes of that memory before loading");
  v.field("verdict", &C::verdict, "worst verdict of its engines");
  v.field("reasons", &C::reasons, "what led to the verdict");
  v.field("interrupted", &C::interrupted,
          "stopped by Ctrl-C before its end; --resume runs such a case anew");
  v.field("memory", &C::memory, "bytes that a token must read, and the least time for them");
  v.field("format_cost", &C::format_cost,
          "what the model's format costs; null unless this case was asked for it");
  v.field("ceiling", &C::ceiling, "the engine that only reads, timed in the same blocks");
  v.field("engines", &C::engines, "every engine of the case");
  v.field("comparisons", &C::comparisons,
          "every candidate against every baseline, and every other pair of timed engines");
}

// What renderers read from the three free-form objects, if present: meta.version, meta.seed,
// meta.output (the folder as a person sees it), meta.git_sha; environment.device ("cpu" or
// "cuda:0 NVIDIA H200"), environment.gpu.{name, sm, driver, cuda_runtime}, environment.cpu.name,
// environment.libtorch.version; calibration.pin_gb_per_s.
struct Report {
  nlohmann::json meta = nlohmann::json::object();  // argv, times, tool version, git sha, dirty,
                                                   // build type, seed, options
  nlohmann::json environment =
      nlohmann::json::object();  // device, GPU, driver, runtime, libtorch, CPU
  nlohmann::json calibration;    // margin of comparisons (clock), pin_gb_per_s of the card
  std::vector<CaseReport> cases;
  Verdict verdict = Verdict::kPass;
  int exit_code = 0;
  std::vector<std::string> reasons;
  bool interrupted = false;
  int schema_minor = kReportSchemaMinor;  // of the file, if the report was read from one
  std::set<std::string> unknown_fields;   // fields of that file that are ignored: "cases[].name"
};

constexpr std::string_view struct_name(Tag<Report>) { return "report"; }
template <typename V>
void describe_fields(V& v, Tag<Report>) {
  v.field("meta", &Report::meta, "command line, times, tool version, source state, seed");
  v.field("env", &Report::environment, "device, driver, libraries, processor");
  v.field(
      "calibration", &Report::calibration,
      "clock: margin of comparisons and where it comes from; pin_gb_per_s of a card: 2 x memory "
      "clock x bus width; ring_tuning: the row of each model that --tune measured");
  v.field("cases", &Report::cases, "one entry for each model and depth");
  v.group("verdict", "verdict of the whole run", [](auto& g) {
    g.field("status", &Report::verdict, "worst verdict of all cases");
    g.field("exit_code", &Report::exit_code, "exit code of the program");
    g.field("reasons", &Report::reasons, "what led to the status");
    g.field("interrupted", &Report::interrupted, "stopped by Ctrl-C: the report is partial");
  });
}

nlohmann::json to_json(const Report& report);
// `seal` of report.json: maps each part's path to 16 digits of the sha256 over the part's values.
// Parts: top-level members, cases without their engines, engines without their samples, samples.
nlohmann::json seal_of(const nlohmann::json& report);
// Reads a report from JSON, or from a file, whose JSON goes to `as_written`. A field that an older
// minor version lacks gets its default. Throws Error(kBadInput) naming file, field, found, wanted:
// another schema or major version, a wrong type, no seal from 1.6 on. recompute() checks values.
Report report_of(const nlohmann::json& found);
Report read_report(const std::filesystem::path& file, nlohmann::json* as_written = nullptr);
// The JSON Schema (draft 2020-12) of report.json, generated from the same field lists; committed as
// reports/report.schema.json.
nlohmann::json report_schema();

// How Markdown is printed.
struct RenderStyle {
  bool utf8 = true;  // true: symbols mark matching tokens; false: words do
  // true: whole parity tables, also of baselines. false: of failing engines ten rows around the
  // first wrong one, of candidates that pass a few exact rows and a few others.
  bool whole_tables = false;
  bool tells_fallback = true;  // print why the run fell back to the CPU; false if already printed
};

// The terminal table (engine, tok/s, ms/tok, speed-up, share of the ceiling) with verdict and
// parity lines, and the parity tables.
std::string render_markdown(const Report& report, const RenderStyle& style = {});
// The parity table with its closing line, "Parity: TRUE" or where the first token differs.
std::string render_parity_table(const ParityReport& parity, const RenderStyle& style = {});

// Writes report.json, report.md and junit.xml into `folder`. Files are written to a temporary
// name and renamed, so that an interrupted write leaves no half file.
void write_report(const Report& report, const std::filesystem::path& folder);
// Calls take(step, file) for each failed step of a report and the file of `folder` that holds it.
template <typename R, typename Take>
void for_each_failed_step(R& report, const std::filesystem::path& folder, const Take& take) {
  int number = 0;
  for (auto& c : report.cases) {
    for (auto& e : c.engines) {
      if (!e.parity || !e.parity->failed_step) continue;
      const std::string name = std::to_string(++number) + ".json";
      take(*e.parity->failed_step, folder / "failures" / name);
    }
  }
}
// Fills in the missing commands of failed steps: "mkbench parity --only FILE".
void name_failed_steps(Report& report, const std::filesystem::path& folder);
// Writes the failed step of each engine to failures/<number>.json of the folder. Throws
// Error(kRuntime) with errno's text.
void write_failed_steps(const Report& report, const std::filesystem::path& folder);
// Reads a file of write_failed_steps(). Throws Error(kBadInput) naming file and field.
FailedStep read_failed_step(const std::filesystem::path& file);
// Writes one file, whole or not at all: a process that is killed leaves at most the file's name with
// this ending. Throws Error(kRuntime) with errno's text.
inline constexpr std::string_view kPartialEnding = ".partial";
void write_text(const std::filesystem::path& path, const std::string& text);
// Flushes a folder's names to the disk, so that a new file is there after a loss of power. Does
// nothing on a file system that cannot do it.
void flush_folder(const std::filesystem::path& folder);

}  // namespace mkbench
