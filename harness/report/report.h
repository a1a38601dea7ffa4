// report.json as structs: the writer, the reader, the Markdown and the JSON Schema all come from
// the field lists in report.cpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/measure/sample.h"
#include "harness/measure/statistics.h"
#include "harness/report/parity_report.h"
#include "harness/report/verdict.h"

namespace mkbench {

inline constexpr char kReportSchemaId[] = "mkbench.report";
inline constexpr char kReportSchemaVersion[] = "1.2.0";

// A number that may be withheld, with the reason; JSON null plus "<field>_reason".
struct Number {
  std::optional<double> value;
  std::string reason;
};

// Ablations of an engine: what remains of its time when a term is left out. Diagnostics.
struct ProfileReport {
  std::vector<double> no_waits_runs_us, no_loads_runs_us;  // per token
  // Written by aggregate().
  Number full_us, no_waits_us, no_loads_us;
  Number no_waits_fraction;  // of the roofline
  std::string binds;         // "memory", "chain", "both"; empty where unknown
};

// profile_reason of an engine where no profile was asked for.
inline constexpr char kProfileNotAsked[] = "not asked for (--profile)";

struct EngineReport {
  std::string name;           // as asked for
  std::string resolved_name;  // "plain"; of a plugin "its-name@file.so" once it is loaded
  std::string worker_name;    // what messages call it; not written
  std::string role;           // "baseline" or "candidate"
  std::string device;
  bool timed = true;  // false: a baseline that only judges
  Verdict verdict = Verdict::kSkipped;
  std::vector<std::string> reasons;
  std::optional<ParityReport> parity;
  // All null unless the verdict is PASS or PASS_LIVE; then `times_withheld` says why. Written by
  // aggregate().
  std::string times_withheld;
  std::optional<Summary> ms_per_tok;
  Number tok_per_s, tok_per_s_ci_low, tok_per_s_ci_high;
  Number itl_p50_ms, itl_p90_ms,
      itl_p99_ms;  // inter-token latency, where the engine takes per-token times
  Number host_ms, gpu_ms,
      first_token_ms;  // medians over samples, of a whole decode / of its first token
  Number sm_ghz;
  Number energy_j;
  std::vector<std::string> throttle_reasons;
  Number roofline_fraction;
  RooflineShare
      roofline;  // the caller fills it with roofline_share(); aggregate() adds the fraction
  std::optional<ProfileReport> profile;
  std::string profile_reason;  // why there is none
  int64_t receipts_checked = 0, receipts_wrong = 0;
  int64_t launches = 0;
  std::string settings;  // pinned library settings of a baseline
  std::vector<Sample> samples;
};

struct ComparisonReport {
  std::string baseline, candidate;
  Number speedup;
  std::optional<Interval> ci, bca_ci;
  double confidence = 0.95;
  std::string design;  // "paired blocks, abba"
  int blocks = 0;
  std::string verdict;  // FASTER SLOWER SAME INCONCLUSIVE
};

struct CaseReport {
  std::string name;  // "synthetic d=512 n=128"
  std::string model, model_id, dtype = "bf16", weights_sha256, lagset;
  int depth = 0, n_gen = 0, n_prompt = 0;
  std::string reference, reference_sha256, reference_versions;
  std::string timed_check;  // "closed form", "committed continuation", "live"
  std::string ids_sha256;   // of the prompt
  std::string generated_text;
  int64_t bytes_needed = 0, bytes_free = 0;
  Verdict verdict = Verdict::kSkipped;
  std::vector<std::string> reasons;
  std::vector<EngineReport> engines;
  std::vector<ComparisonReport> comparisons;
};

// What the renderers read of the three free objects, where it is there: meta.version, meta.seed,
// meta.output (the folder that a person is told), meta.git_sha; environment.device ("cpu" or
// "cuda:0 NVIDIA H200"), environment.gpu.{name, sm, driver, cuda_runtime}, environment.cpu.name,
// environment.libtorch.version; calibration.read_gb_per_s.
struct Report {
  nlohmann::json meta = nlohmann::json::object();  // argv, times, tool version, git sha, dirty,
                                                   // build type, seed, options
  nlohmann::json environment =
      nlohmann::json::object();  // device, GPU, driver, runtime, libtorch, CPU
  nlohmann::json calibration;    // read bandwidth by both methods; null on cpu
  std::vector<CaseReport> cases;
  Verdict verdict = Verdict::kPass;
  int exit_code = 0;
  std::vector<std::string> reasons;
  bool interrupted = false;
};

nlohmann::json to_json(const Report& report);
// Throws Error(kBadInput) naming field, found, wanted; refuses other schema ids and major versions.
Report report_from_json(const nlohmann::json& j);
nlohmann::json parity_to_json(const ParityReport& p);
ParityReport parity_from_json(const nlohmann::json& j);
nlohmann::json sample_to_json(const Sample& s);
Sample sample_from_json(const nlohmann::json& j);
nlohmann::json profile_to_json(const ProfileReport& p);
ProfileReport profile_from_json(const nlohmann::json& j);
nlohmann::json engine_to_json(const EngineReport& e);
EngineReport engine_from_json(const nlohmann::json& j);

// The JSON Schema (draft 2020-12) of report.json, generated from the same field lists; committed as
// reports/report.schema.json.
nlohmann::json report_schema();

// Fills every aggregate of a case from its samples and verdicts: summaries, tok/s, percentiles,
// roofline fraction, speed-ups. Withholds all times of an engine unless times_allowed(verdict) and
// every sample is valid. Sharpens a passing verdict: FAIL_TOKEN for a wrong receipt, INTEGRITY for
// an invalid sample or missing receipts, IMPOSSIBLE above 1.03 of the roofline. May be called again
// when samples were added.
void aggregate(CaseReport& c, double confidence, uint64_t seed, bool random_order);

// Verdict of a report from its cases' verdicts (a case's is the worst of its engines' and of its
// own, if it has failed before it had engines). A report without cases keeps its verdict if that is
// a failure, and is a RUNTIME_ERROR else.
void conclude(Report& report);

// The terminal table (engine, tok/s, ms/tok, speed-up, share of the roofline) with verdict and
// parity lines, and the parity table.
std::string render_markdown(const Report& report);
std::string render_parity_table(const ParityReport& parity);
// stdout formats: md, json, jsonl, csv, sql. Throws Error(kBadInput) for another.
std::string render(const Report& report, const std::string& format);

// Writes report.json, report.md, junit.xml, samples.jsonl, env.json,
// tokens/<case>-<engine>-<block>.u32, trace.json into `folder`. Files are written to a temporary
// name and renamed, so that an interrupted write leaves no half file.
void write_report(const Report& report, const std::filesystem::path& folder);
// One file, whole or not at all. Throws Error(kRuntime) with errno's text.
void write_text(const std::filesystem::path& path, const std::string& text);

}  // namespace mkbench
