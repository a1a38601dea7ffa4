// Parts of the messages in calls.h: field lists of structs that are defined elsewhere, and structs
// that several messages share.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "harness/device/device_check.h"
#include "harness/device/device_info.h"
#include "harness/measure/sample.h"
#include "references/base/fields.h"
#include "references/config.h"
#include "references/engine.h"
#include "references/engine_maker.h"

namespace mkbench {

constexpr std::string_view enum_text(Activation a) { return activation_name(a); }
inline std::vector<Activation> enum_values(Tag<Activation>) {
  return {Activation::kSilu, Activation::kGeluTanh};
}
template <typename V>
void describe_fields(V& v, Tag<ModelShape>) {
  using S = ModelShape;
  list_fields(v, "hidden", &S::hidden, "intermediate", &S::intermediate, "layers", &S::layers,
              "heads", &S::heads, "kv_heads", &S::kv_heads, "head_dim", &S::head_dim, "vocab",
              &S::vocab, "qk_norm", &S::qk_norm, "qkv_bias", &S::qkv_bias, "norm_offset",
              &S::norm_offset, "activation", &S::activation, "embedding_multiplier",
              &S::embedding_multiplier);
}
constexpr std::string_view enum_text(RopeScaling s) { return rope_type(s); }
inline std::vector<RopeScaling> enum_values(Tag<RopeScaling>) {
  return {RopeScaling::kNone, RopeScaling::kLinear, RopeScaling::kLlama3};
}
template <typename V>
void describe_fields(V& v, Tag<Rope>) {
  using R = Rope;
  list_fields(v, "theta", &R::theta, "theta_key", &R::theta_key, "scaling", &R::scaling, "factor",
              &R::factor, "low_freq_factor", &R::low_freq_factor, "high_freq_factor",
              &R::high_freq_factor, "original_positions", &R::original_positions);
}
template <typename V>
void describe_fields(V& v, Tag<ModelConfig>) {
  using C = ModelConfig;
  list_fields(v, "shape", &C::shape, "rope", &C::rope, "rms_norm_eps", &C::rms_norm_eps,
              "tie_word_embeddings", &C::tie_word_embeddings, "max_positions", &C::max_positions,
              "outline_bytes", &C::outline_bytes, "outline_values", &C::outline_values, "routes",
              &C::routes, "reads", &C::reads);
}
constexpr std::string_view enum_text(EngineRequest::Precision precision) {
  constexpr std::string_view kNames[] = {"own", "head-fp32", "fp32"};
  return kNames[static_cast<size_t>(precision)];
}
inline std::vector<EngineRequest::Precision> enum_values(Tag<EngineRequest::Precision>) {
  using enum EngineRequest::Precision;
  return {kOwn, kHeadFp32, kFp32};
}
template <typename V>
void describe_fields(V& v, Tag<EngineRequest>) {
  using R = EngineRequest;
  list_fields(v, "name", &R::name, "max_context", &R::max_context, "depth", &R::depth, "settings",
              &R::settings, "fault", &R::fault, "cuda", &R::cuda, "gpu", &R::gpu, "threads",
              &R::threads, "spin_scale", &R::spin_scale, "precision", &R::precision, "reads",
              &R::reads);
}
constexpr std::string_view enum_text(PrecisionClass c) { return precision_class_name(c); }
inline std::vector<PrecisionClass> enum_values(Tag<PrecisionClass>) {
  return {std::begin(kPrecisionClasses), std::end(kPrecisionClasses)};
}
template <typename V>
void describe_fields(V& v, Tag<EngineCapabilities>) {
  using C = EngineCapabilities;
  list_fields(v, "name", &C::name, "device", &C::device, "max_context", &C::max_context,
              "context_limit", &C::context_limit, "logits", &C::logits, "one_launch",
              &C::one_launch, "forced", &C::forced, "snapshots", &C::snapshots, "poison",
              &C::poison, "counted", &C::counted, "rewind", &C::rewind, "late_id", &C::late_id,
              "deterministic", &C::deterministic, "precision", &C::precision);
}
template <typename V>
void describe_fields(V& v, Tag<Snapshot>) {
  using S = Snapshot;
  list_fields(v, "position", &S::position, "pending", &S::pending, "kv_checksum", &S::kv_checksum,
              "derived", &S::derived);
}
// The logits travel as bytes in the arena.
template <typename V>
void describe_fields(V& v, Tag<ObservedRun>) {
  using R = ObservedRun;
  list_fields(v, "ids", &R::ids, "prompt", &R::prompt, "found", &R::found);
}
template <typename V>
void describe_fields(V& v, Tag<BugQuestion>) {
  using Q = BugQuestion;
  list_fields(v, "runs", &Q::runs, "tau", &Q::tau, "seconds", &Q::seconds);
}
template <typename V>
void describe_fields(V& v, Tag<BugFit>) {
  using F = BugFit;
  list_fields(v, "name", &F::name, "text", &F::text, "error", &F::error, "rounding", &F::rounding,
              "wrong", &F::wrong, "surprise", &F::surprise);
}
template <typename V>
void describe_fields(V& v, Tag<BugFits>) {
  using F = BugFits;
  list_fields(v, "best", &F::best, "truth", &F::truth, "tried", &F::tried, "known", &F::known,
              "timed_out", &F::timed_out);
}
template <typename V>
void describe_fields(V& v, Tag<Stress>) {
  using S = Stress;
  list_fields(v, "count_from", &S::count_from, "delay_us", &S::delay_us, "delay_seed",
              &S::delay_seed);
}
// The spans are not listed, because they travel as bytes in the arena.
template <typename V>
void describe_fields(V& v, Tag<Timeline>) {
  using T = Timeline;
  list_fields(v, "roles", &T::roles, "phases", &T::phases, "lost", &T::lost, "whole_steps",
              &T::whole_steps, "clock", &T::clock, "quality", &T::quality);
}
template <typename V>
void describe_fields(V& v, Tag<DeviceInfo>) {
  using D = DeviceInfo;
  list_fields(v, "index", &D::index, "name", &D::name, "uuid", &D::uuid, "pci_bus_id",
              &D::pci_bus_id, "sm_major", &D::sm_major, "sm_minor", &D::sm_minor, "sm_count",
              &D::sm_count, "l2_bytes", &D::l2_bytes, "pin_gb_per_s", &D::pin_gb_per_s,
              "total_bytes", &D::total_bytes, "exclusive", &D::exclusive, "free_bytes",
              &D::free_bytes, "state", &D::state);
}
template <typename V>
void describe_fields(V& v, Tag<DeviceList>) {
  using L = DeviceList;
  list_fields(v, "driver_cuda_version", &L::driver_cuda_version, "runtime_cuda_version",
              &L::runtime_cuda_version, "driver_version", &L::driver_version, "error", &L::error,
              "devices", &L::devices);
}
template <typename V>
void describe_fields(V& v, Tag<DeviceCheck>) {
  using C = DeviceCheck;
  list_fields(v, "ok", &C::ok, "got", &C::got, "wanted", &C::wanted, "blocks", &C::blocks, "error",
              &C::error);
}

// A call without arguments.
enum class Verb { kReset, kPoison, kAudit, kClose };
inline std::string_view enum_text(Verb verb) {
  constexpr std::string_view kTexts[] = {"reset", "poison", "audit", "close"};
  return kTexts[static_cast<size_t>(verb)];
}
inline std::vector<Verb> enum_values(Tag<Verb>) {
  return {Verb::kReset, Verb::kPoison, Verb::kAudit, Verb::kClose};
}

// The snapshot folder from which a host reads the weights, and what the parent has found in it.
struct WeightsPlace {
  std::string folder, name, lagset, sha256;
  std::string stamp;  // sizes and times of the files that the parent judged (shared_snapshot.h)
  static void fields(auto& v) {
    list_fields(v, "folder", &WeightsPlace::folder, "name", &WeightsPlace::name, "lagset",
                &WeightsPlace::lagset, "sha256", &WeightsPlace::sha256, "stamp",
                &WeightsPlace::stamp);
  }
};

struct RingObstacle {
  std::string model, obstacle;  // obstacle: empty if ring can run the model
  std::string pace{};           // what chose ring's pace on this card, where it can run
  static void fields(auto& v) {
    list_fields(v, "model", &RingObstacle::model, "obstacle", &RingObstacle::obstacle, "pace",
                &RingObstacle::pace);
  }
};

// One setting of ring and its time. Sweeps differ in which numbers of the setting they vary.
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

// The state of an engine after a call; its proxy keeps the latest one.
struct EngineState {
  int position = 0;
  int64_t launches = 0;
  int64_t device_bytes = 0;  // after a reset: taken on the engine's GPU by all programs; else 0
  static void fields(auto& v) {
    list_fields(v, "position", &EngineState::position, "launches", &EngineState::launches,
                "device_bytes", &EngineState::device_bytes);
  }
};

// An interval in ns of CLOCK_MONOTONIC, which is the same for all processes of a machine.
struct HostInterval {
  int64_t begin = 0, end = 0;
  double ms() const { return static_cast<double>(end - begin) / 1e6; }
  static void fields(auto& v) {
    list_fields(v, "begin", &HostInterval::begin, "end", &HostInterval::end);
  }
};

}  // namespace mkbench
