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
  static void fields(auto& v) {
    list_fields(v, "stage", &StageProgress::stage, "engine", &StageProgress::engine, "done",
                &StageProgress::done, "total", &StageProgress::total, "position",
                &StageProgress::position, "layer", &StageProgress::layer, "phase",
                &StageProgress::phase);
  }
};

// Memory that the case needs and that the job's device has free, before anything is loaded.
struct MemoryStated {
  static constexpr char kType[] = "memory";
  int64_t bytes_needed = 0, bytes_free = 0;
  static void fields(auto& v) {
    list_fields(v, "bytes_needed", &MemoryStated::bytes_needed, "bytes_free",
                &MemoryStated::bytes_free);
  }
};

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
  static void fields(auto& v) {
    list_fields(v, "model_id", &ModelLoaded::model_id, "weights_sha256",
                &ModelLoaded::weights_sha256, "lagset", &ModelLoaded::lagset, "shape",
                &ModelLoaded::shape);
  }
};

// The references that judge the case, as the report names them.
struct ReferencesFound {
  static constexpr char kType[] = "references";
  std::string reference, reference_sha256, reference_versions;
  static void fields(auto& v) {
    list_fields(v, "reference", &ReferencesFound::reference, "reference_sha256",
                &ReferencesFound::reference_sha256, "reference_versions",
                &ReferencesFound::reference_versions);
  }
};

// What the timed ids are compared with.
struct TimedCheckChosen {
  static constexpr char kType[] = "timed_check";
  std::string timed_check, ids_sha256, generated_text;
  static void fields(auto& v) {
    list_fields(v, "timed_check", &TimedCheckChosen::timed_check, "ids_sha256",
                &TimedCheckChosen::ids_sha256, "generated_text", &TimedCheckChosen::generated_text);
  }
};

struct EngineMade {
  static constexpr char kType[] = "engine";
  std::string engine;
  EngineFacts facts;
  static void fields(auto& v) {
    list_fields(v, "engine", &EngineMade::engine, "facts", &EngineMade::facts);
  }
};

struct ParityJudged {
  static constexpr char kType[] = "parity";
  std::string engine;
  ParityReport parity;
  static void fields(auto& v) {
    list_fields(v, "engine", &ParityJudged::engine, "parity", &ParityJudged::parity);
  }
};

// The ablations of an engine, or why there are none.
struct ProfileTaken {
  static constexpr char kType[] = "profile";
  std::string engine, reason;  // reason: empty where there is a profile
  ProfileReport profile;
  static void fields(auto& v) {
    list_fields(v, "engine", &ProfileTaken::engine, "reason", &ProfileTaken::reason, "profile",
                &ProfileTaken::profile);
  }
};

struct SampleTaken {
  static constexpr char kType[] = "sample";
  std::string engine;
  Sample sample;
  int64_t launches = 0;  // all launches of the engine so far
  std::string throttle;  // what limits the card's clocks; "none" or empty: nothing
  static void fields(auto& v) {
    list_fields(v, "engine", &SampleTaken::engine, "sample", &SampleTaken::sample, "launches",
                &SampleTaken::launches, "throttle", &SampleTaken::throttle);
  }
};

// The verdict on one engine, or on the whole case where `engine` is empty.
struct VerdictGiven {
  static constexpr char kType[] = "verdict";
  std::string engine;
  Verdict verdict = Verdict::kSkipped;
  std::string reason;
  static void fields(auto& v) {
    list_fields(v, "engine", &VerdictGiven::engine, "verdict", &VerdictGiven::verdict, "reason",
                &VerdictGiven::reason);
  }
};

// ---- from a host: ends ----

// The last message of a job that ended by itself.
struct Done {
  static constexpr char kType[] = "done";
  static void fields(auto&) {}
};

// The case ended early because of Ctrl-C.
struct CaseInterrupted {
  static constexpr char kType[] = "interrupted";
  static void fields(auto&) {}
};

// A job other than a case failed.
struct JobFailed {
  static constexpr char kType[] = "error";
  ErrorKind kind = ErrorKind::kRuntime;
  std::string message;
  static void fields(auto& v) {
    list_fields(v, "kind", &JobFailed::kind, "message", &JobFailed::message);
  }
};

// LineReader makes this of a line that is no message.
struct Garbage {
  static constexpr char kType[] = "garbage";
  std::string text, problem;
  static void fields(auto& v) {
    list_fields(v, "text", &Garbage::text, "problem", &Garbage::problem);
  }
};

// ---- from a host: answers to jobs that are no cases ----

struct ListedDevice {
  int index = 0;
  std::string name, sm;
  int64_t free_bytes = 0, total_bytes = 0;
  static void fields(auto& v) {
    list_fields(v, "index", &ListedDevice::index, "name", &ListedDevice::name, "sm",
                &ListedDevice::sm, "free_bytes", &ListedDevice::free_bytes, "total_bytes",
                &ListedDevice::total_bytes);
  }
};

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
  static void fields(auto& v) {
    list_fields(v, "usable", &ProbeAnswer::usable, "reason", &ProbeAnswer::reason, "what_to_do",
                &ProbeAnswer::what_to_do, "device", &ProbeAnswer::device, "l2_bytes",
                &ProbeAnswer::l2_bytes, "other_processes", &ProbeAnswer::other_processes, "devices",
                &ProbeAnswer::devices, "ring_obstacles", &ProbeAnswer::ring_obstacles,
                "environment", &ProbeAnswer::environment);
  }
};

// The ceiling of the roofline; the report holds it as `calibration`.
struct CeilingAnswer {
  static constexpr char kType[] = "ceiling";
  double read_gb_per_s = 0, plain_gb_per_s = 0, bulk_gb_per_s = 0;
  std::string bulk_pattern;
  int64_t buffer_bytes = 0, bytes_per_sample = 0;
  int samples = 0;
  static void fields(auto& v) {
    list_fields(v, "read_gb_per_s", &CeilingAnswer::read_gb_per_s, "plain_gb_per_s",
                &CeilingAnswer::plain_gb_per_s, "bulk_gb_per_s", &CeilingAnswer::bulk_gb_per_s,
                "bulk_pattern", &CeilingAnswer::bulk_pattern, "buffer_bytes",
                &CeilingAnswer::buffer_bytes, "bytes_per_sample", &CeilingAnswer::bytes_per_sample,
                "samples", &CeilingAnswer::samples);
  }
};

// Memory of a planned case, and the least time that its reads must take.
struct PlanAnswer {
  static constexpr char kType[] = "plan";
  int64_t bytes_needed = 0, bytes_free = 0;
  double least_seconds = 0;
  static void fields(auto& v) {
    list_fields(v, "bytes_needed", &PlanAnswer::bytes_needed, "bytes_free", &PlanAnswer::bytes_free,
                "least_seconds", &PlanAnswer::least_seconds);
  }
};

struct DoctorAnswer {
  static constexpr char kType[] = "doctor";
  bool ready = false;  // the GPU that was asked for can be used
  std::vector<std::string> lines;
  static void fields(auto& v) {
    list_fields(v, "ready", &DoctorAnswer::ready, "lines", &DoctorAnswer::lines);
  }
};

// For each candidate, the sha256 of its ids and logits on the repeated prompts.
struct RepeatsAnswer {
  static constexpr char kType[] = "repeats";
  std::map<std::string, std::string> hashes;
  static void fields(auto& v) { list_fields(v, "hashes", &RepeatsAnswer::hashes); }
};

// One setting of ring and its time. Which numbers of the setting vary depends on the sweep.
struct TunedTime {
  int in_flight = 0, gap = 0, split_from = 0;
  double us = 0;  // per token
  static void fields(auto& v) {
    list_fields(v, "in_flight", &TunedTime::in_flight, "gap", &TunedTime::gap, "split_from",
                &TunedTime::split_from, "us", &TunedTime::us);
  }
};

struct TuneSweep {
  int depth = 0, until = 0;  // KV rows; `depth` stands for all positions up to `until`
  std::vector<TunedTime> times;
  static void fields(auto& v) {
    list_fields(v, "depth", &TuneSweep::depth, "until", &TuneSweep::until, "times",
                &TuneSweep::times);
  }
};

struct TuneAnswer {
  static constexpr char kType[] = "tune";
  std::string gpu, table_row;
  int tokens = 0, launches = 0, split_depth = 0, split_tokens = 0;
  std::vector<TuneSweep> sweeps;
  std::vector<TunedTime> head, splits;
  static void fields(auto& v) {
    list_fields(v, "gpu", &TuneAnswer::gpu, "table_row", &TuneAnswer::table_row, "tokens",
                &TuneAnswer::tokens, "launches", &TuneAnswer::launches, "split_depth",
                &TuneAnswer::split_depth, "split_tokens", &TuneAnswer::split_tokens, "sweeps",
                &TuneAnswer::sweeps, "head", &TuneAnswer::head, "splits", &TuneAnswer::splits);
  }
};

struct LaneStarted {
  static constexpr char kType[] = "lane_started";
  size_t lane = 0;  // index into fault_lanes()
  static void fields(auto& v) { list_fields(v, "lane", &LaneStarted::lane); }
};

struct LaneDone {
  static constexpr char kType[] = "lane";
  size_t lane = 0;
  std::vector<std::string> failing;  // names of the checks that failed
  std::optional<double> r_rms;
  std::string note;
  static void fields(auto& v) {
    list_fields(v, "lane", &LaneDone::lane, "failing", &LaneDone::failing, "r_rms",
                &LaneDone::r_rms, "note", &LaneDone::note);
  }
};

using FromHost =
    std::variant<StageProgress, MemoryStated, ModelLoaded, ReferencesFound, TimedCheckChosen,
                 EngineMade, ParityJudged, ProfileTaken, SampleTaken, VerdictGiven, Done,
                 CaseInterrupted, JobFailed, Garbage, ProbeAnswer, CeilingAnswer, PlanAnswer,
                 DoctorAnswer, RepeatsAnswer, TuneAnswer, LaneStarted, LaneDone>;

nlohmann::json to_json(const FromHost& message);
// Returns Garbage where `j` is no message.
FromHost message_from_json(const nlohmann::json& j);

}  // namespace mkbench
