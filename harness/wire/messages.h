// The messages from a host to its parent: one struct a message with one list of its fields
// (references/base/fields.h), and one variant of all structs. A message's kType is its name on the
// wire; no other code spells it. Jobs, which go the other way, are in job.h.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/base/fields.h"
#include "references/model_shape.h"

namespace mkbench {

// ---- from a host: what happens in a case ----

// What the host is doing now; a number that is not known is absent.
struct StageProgress {
  static constexpr char kType[] = "progress";
  std::string stage, engine;  // engine may be empty
  std::optional<int> done{}, total{};
  std::optional<int> position{}, layer{};
  std::string phase{};
};
template <typename V>
void describe_fields(V& v, Tag<StageProgress>) {
  using P = StageProgress;
  v.field("stage", &P::stage);
  v.field("engine", &P::engine);
  v.field("done", &P::done);
  v.field("total", &P::total);
  v.field("position", &P::position);
  v.field("layer", &P::layer);
  v.field("phase", &P::phase);
}

// Memory that the case needs and that the job's device has free, before anything is loaded.
struct MemoryStated {
  static constexpr char kType[] = "memory";
  int64_t bytes_needed = 0, bytes_free = 0;
};
template <typename V>
void describe_fields(V& v, Tag<MemoryStated>) {
  v.field("bytes_needed", &MemoryStated::bytes_needed);
  v.field("bytes_free", &MemoryStated::bytes_free);
}

template <typename V>
void describe_fields(V& v, Tag<ModelShape>) {
  using S = ModelShape;
  v.field("hidden", &S::hidden);
  v.field("intermediate", &S::intermediate);
  v.field("layers", &S::layers);
  v.field("heads", &S::heads);
  v.field("kv_heads", &S::kv_heads);
  v.field("head_dim", &S::head_dim);
  v.field("vocab", &S::vocab);
}

struct ModelLoaded {
  static constexpr char kType[] = "model";
  std::string model_id, weights_sha256, lagset;
  ModelShape shape;
};
template <typename V>
void describe_fields(V& v, Tag<ModelLoaded>) {
  v.field("model_id", &ModelLoaded::model_id);
  v.field("weights_sha256", &ModelLoaded::weights_sha256);
  v.field("lagset", &ModelLoaded::lagset);
  v.field("shape", &ModelLoaded::shape);
}

// The references that judge the case, as the report names them.
struct ReferencesFound {
  static constexpr char kType[] = "references";
  std::string reference, reference_sha256, reference_versions;
};
template <typename V>
void describe_fields(V& v, Tag<ReferencesFound>) {
  v.field("reference", &ReferencesFound::reference);
  v.field("reference_sha256", &ReferencesFound::reference_sha256);
  v.field("reference_versions", &ReferencesFound::reference_versions);
}

// What the timed ids are compared with.
struct TimedCheckChosen {
  static constexpr char kType[] = "timed_check";
  std::string timed_check, ids_sha256, generated_text;
};
template <typename V>
void describe_fields(V& v, Tag<TimedCheckChosen>) {
  v.field("timed_check", &TimedCheckChosen::timed_check);
  v.field("ids_sha256", &TimedCheckChosen::ids_sha256);
  v.field("generated_text", &TimedCheckChosen::generated_text);
}

struct EngineMade {
  static constexpr char kType[] = "engine";
  std::string engine;
  EngineFacts facts;
};
template <typename V>
void describe_fields(V& v, Tag<EngineMade>) {
  v.field("engine", &EngineMade::engine);
  v.field("facts", &EngineMade::facts);
}

struct ParityJudged {
  static constexpr char kType[] = "parity";
  std::string engine;
  ParityReport parity;
};
template <typename V>
void describe_fields(V& v, Tag<ParityJudged>) {
  v.field("engine", &ParityJudged::engine);
  v.field("parity", &ParityJudged::parity);
}

// The ablations of an engine, or why there are none.
struct ProfileTaken {
  static constexpr char kType[] = "profile";
  std::string engine, reason;  // reason: empty where there is a profile
  ProfileReport profile;
};
template <typename V>
void describe_fields(V& v, Tag<ProfileTaken>) {
  v.field("engine", &ProfileTaken::engine);
  v.field("reason", &ProfileTaken::reason);
  v.field("profile", &ProfileTaken::profile);
}

struct SampleTaken {
  static constexpr char kType[] = "sample";
  std::string engine;
  Sample sample;
  int64_t launches = 0;  // all launches of the engine so far
  std::string throttle;  // what limits the card's clocks; "none" or empty: nothing
};
template <typename V>
void describe_fields(V& v, Tag<SampleTaken>) {
  v.field("engine", &SampleTaken::engine);
  v.field("sample", &SampleTaken::sample);
  v.field("launches", &SampleTaken::launches);
  v.field("throttle", &SampleTaken::throttle);
}

// The verdict on one engine, or on the whole case where `engine` is empty.
struct VerdictGiven {
  static constexpr char kType[] = "verdict";
  std::string engine;
  Verdict verdict = Verdict::kSkipped;
  std::string reason;
};
template <typename V>
void describe_fields(V& v, Tag<VerdictGiven>) {
  v.field("engine", &VerdictGiven::engine);
  v.field("verdict", &VerdictGiven::verdict);
  v.field("reason", &VerdictGiven::reason);
}

// ---- from a host: ends ----

// The last message of a job that ended by itself.
struct Done {
  static constexpr char kType[] = "done";
};
template <typename V>
void describe_fields(V&, Tag<Done>) {}

// The case ended early because of Ctrl-C.
struct CaseInterrupted {
  static constexpr char kType[] = "interrupted";
};
template <typename V>
void describe_fields(V&, Tag<CaseInterrupted>) {}

// A job other than a case failed.
struct JobFailed {
  static constexpr char kType[] = "error";
  ErrorKind kind = ErrorKind::kRuntime;
  std::string message;
};
template <typename V>
void describe_fields(V& v, Tag<JobFailed>) {
  v.field("kind", &JobFailed::kind);
  v.field("message", &JobFailed::message);
}

// LineReader makes this of a line that is no message.
struct Garbage {
  static constexpr char kType[] = "garbage";
  std::string text, problem;
};
template <typename V>
void describe_fields(V& v, Tag<Garbage>) {
  v.field("text", &Garbage::text);
  v.field("problem", &Garbage::problem);
}

// ---- from a host: answers to jobs that are no cases ----

struct ListedDevice {
  int index = 0;
  std::string name, sm;
  int64_t free_bytes = 0, total_bytes = 0;
};
template <typename V>
void describe_fields(V& v, Tag<ListedDevice>) {
  v.field("index", &ListedDevice::index);
  v.field("name", &ListedDevice::name);
  v.field("sm", &ListedDevice::sm);
  v.field("free_bytes", &ListedDevice::free_bytes);
  v.field("total_bytes", &ListedDevice::total_bytes);
}

// The machine, and the GPU that was asked for.
struct ProbeAnswer {
  static constexpr char kType[] = "probe";
  bool usable = false;
  std::string reason, what_to_do;  // set where the GPU is not usable
  std::string device;              // "cuda:0 NVIDIA H200"; empty: no GPU
  int64_t l2_bytes = 0;
  int other_processes = 0;
  std::vector<ListedDevice> devices;
  // By model of the job, why the ring megakernel cannot run it; an empty text where ring can.
  // Filled in only where the GPU is usable.
  std::map<std::string, std::string> ring_obstacles;
  nlohmann::json environment = nlohmann::json::object();  // environment of the report
};
template <typename V>
void describe_fields(V& v, Tag<ProbeAnswer>) {
  using P = ProbeAnswer;
  v.field("usable", &P::usable);
  v.field("reason", &P::reason);
  v.field("what_to_do", &P::what_to_do);
  v.field("device", &P::device);
  v.field("l2_bytes", &P::l2_bytes);
  v.field("other_processes", &P::other_processes);
  v.field("devices", &P::devices);
  v.field("ring_obstacles", &P::ring_obstacles);
  v.field("environment", &P::environment);
}

// The ceiling of the roofline; the report holds it as `calibration`.
struct CeilingAnswer {
  static constexpr char kType[] = "ceiling";
  double read_gb_per_s = 0, plain_gb_per_s = 0, bulk_gb_per_s = 0;
  std::string bulk_pattern;
  int64_t buffer_bytes = 0, bytes_per_sample = 0;
  int samples = 0;
};
template <typename V>
void describe_fields(V& v, Tag<CeilingAnswer>) {
  using C = CeilingAnswer;
  v.field("read_gb_per_s", &C::read_gb_per_s);
  v.field("plain_gb_per_s", &C::plain_gb_per_s);
  v.field("bulk_gb_per_s", &C::bulk_gb_per_s);
  v.field("bulk_pattern", &C::bulk_pattern);
  v.field("buffer_bytes", &C::buffer_bytes);
  v.field("bytes_per_sample", &C::bytes_per_sample);
  v.field("samples", &C::samples);
}

// Memory of a planned case, and the least time that its reads must take.
struct PlanAnswer {
  static constexpr char kType[] = "plan";
  int64_t bytes_needed = 0, bytes_free = 0;
  double least_seconds = 0;
};
template <typename V>
void describe_fields(V& v, Tag<PlanAnswer>) {
  v.field("bytes_needed", &PlanAnswer::bytes_needed);
  v.field("bytes_free", &PlanAnswer::bytes_free);
  v.field("least_seconds", &PlanAnswer::least_seconds);
}

struct DoctorAnswer {
  static constexpr char kType[] = "doctor";
  bool ready = false;  // the GPU that was asked for can be used
  std::vector<std::string> lines;
};
template <typename V>
void describe_fields(V& v, Tag<DoctorAnswer>) {
  v.field("ready", &DoctorAnswer::ready);
  v.field("lines", &DoctorAnswer::lines);
}

// For each candidate, the sha256 of its ids and logits on the repeated prompts.
struct RepeatsAnswer {
  static constexpr char kType[] = "repeats";
  std::map<std::string, std::string> hashes;
};
template <typename V>
void describe_fields(V& v, Tag<RepeatsAnswer>) {
  v.field("hashes", &RepeatsAnswer::hashes);
}

// One setting of ring and its time. Which numbers of the setting vary depends on the sweep.
struct TunedTime {
  int in_flight = 0, gap = 0, split_from = 0;
  double us = 0;  // per token
};
template <typename V>
void describe_fields(V& v, Tag<TunedTime>) {
  v.field("in_flight", &TunedTime::in_flight);
  v.field("gap", &TunedTime::gap);
  v.field("split_from", &TunedTime::split_from);
  v.field("us", &TunedTime::us);
}

struct TuneSweep {
  int depth = 0, until = 0;  // KV rows; `depth` stands for all positions up to `until`
  std::vector<TunedTime> times;
};
template <typename V>
void describe_fields(V& v, Tag<TuneSweep>) {
  v.field("depth", &TuneSweep::depth);
  v.field("until", &TuneSweep::until);
  v.field("times", &TuneSweep::times);
}

struct TuneAnswer {
  static constexpr char kType[] = "tune";
  std::string gpu, table_row;
  int tokens = 0, launches = 0, split_depth = 0, split_tokens = 0;
  std::vector<TuneSweep> sweeps;
  std::vector<TunedTime> head, splits;
};
template <typename V>
void describe_fields(V& v, Tag<TuneAnswer>) {
  using T = TuneAnswer;
  v.field("gpu", &T::gpu);
  v.field("table_row", &T::table_row);
  v.field("tokens", &T::tokens);
  v.field("launches", &T::launches);
  v.field("split_depth", &T::split_depth);
  v.field("split_tokens", &T::split_tokens);
  v.field("sweeps", &T::sweeps);
  v.field("head", &T::head);
  v.field("splits", &T::splits);
}

struct LaneStarted {
  static constexpr char kType[] = "lane_started";
  size_t lane = 0;  // index into fault_lanes()
};
template <typename V>
void describe_fields(V& v, Tag<LaneStarted>) {
  v.field("lane", &LaneStarted::lane);
}

struct LaneDone {
  static constexpr char kType[] = "lane";
  size_t lane = 0;
  std::vector<std::string> failing;  // names of the checks that failed
  std::optional<double> r_rms;
  std::string note;
};
template <typename V>
void describe_fields(V& v, Tag<LaneDone>) {
  v.field("lane", &LaneDone::lane);
  v.field("failing", &LaneDone::failing);
  v.field("r_rms", &LaneDone::r_rms);
  v.field("note", &LaneDone::note);
}

using FromHost =
    std::variant<StageProgress, MemoryStated, ModelLoaded, ReferencesFound, TimedCheckChosen,
                 EngineMade, ParityJudged, ProfileTaken, SampleTaken, VerdictGiven, Done,
                 CaseInterrupted, JobFailed, Garbage, ProbeAnswer, CeilingAnswer, PlanAnswer,
                 DoctorAnswer, RepeatsAnswer, TuneAnswer, LaneStarted, LaneDone>;

nlohmann::json to_json(const FromHost& message);
// Returns Garbage where `j` is no message.
FromHost message_from_json(const nlohmann::json& j);

}  // namespace mkbench
