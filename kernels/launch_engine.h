// The base of the megakernels' engines: one sequence, one cooperative launch for each call, three
// clocks around it, and faults of the device turned into errors. A derived engine adds its kernel's
// parameters and its KV cache.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda_event.h"
#include "kernels/device_buffer.h"
#include "kernels/fault.h"
#include "kernels/launch_checks.h"
#include "kernels/side_stream.h"
#include "kernels/timeline_recorder.h"
#include "kernels/written_rows.h"
#include "references/engine.h"

namespace mkbench {

// Properties of the derived engine that LaunchEngine needs.
struct LaunchEngineTraits {
  EngineCapabilities can;  // all of them but device and max_context
  std::string prefix;      // begins error messages
  int gpu = 0;
  int max_context = 0;
  // True when the kernel stores hidden states only in launches with logits, because the stores
  // would slow down timed launches.
  bool hidden_with_logits_only = false;
  PlantedFault fault = PlantedFault::kNone;
  int stall_block = -1;
};

class LaunchEngine : public Engine {
 public:
  EngineCapabilities capabilities() const final;
  void reset() final;
  void poison() final;
  void prefill(std::span<const int32_t> ids) final;
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) final;
  std::vector<int32_t> decode_vectors(int n, const VectorSteps& steps) final;
  void set_pending(int32_t id) final;
  // Derived values are afterwards as if the rows at and above `position` had never been written. They
  // are known where the sequence began and where it was last saved, restored or rewound; rows between
  // there and `position` are written once more.
  void rewind(int position) final;
  Snapshot save() final;
  void restore(const Snapshot& s) final;
  int position() const final { return position_; }
  int64_t launch_count() const final { return launches_; }
  DecodeTimes last_times() const final;
  Progress progress() const final;
  std::optional<Standstill> standstill() const final;
  std::optional<std::vector<float>> hidden(int layer) final;
  std::optional<std::vector<float>> kv_row(int layer, int position) final;
  bool skip_to(int position) final;
  bool set_timeline(bool on) final;
  Timeline timeline() final;
  // Host memory in which the running launch of a LaunchEngine keeps its position.
  static const volatile int32_t* position_word(const Engine& engine);

 protected:
  // One launch: `steps` steps from position() on.
  struct Request {
    int steps;
    int first_output;  // steps before it run without the LM head
    int input_count;
    float* logits;  // device memory (steps - first_output, vocab), or null
    bool keep_hidden;
    // Device memory (steps, hidden), or null: a table that replaces the embedding; the input ids are
    // then its row numbers.
    const Bf16* vectors;
    float* normed;  // device memory (steps - first_output, hidden), or null
  };

  // The caller has made the checks of launch_checks.h: the device of `traits` is current, its
  // memory suffices and the grid fits.
  // side_bytes: the most bytes that one SideStream::read() copies while a launch runs.
  LaunchEngine(LaunchEngineTraits traits, const ModelConfig& config, const LaunchConfig& launch,
               size_t side_bytes = 0);

  // Bytes of device memory that this class allocates when constructed.
  static int64_t fixed_bytes(const ModelShape& shape);

  // Returns the kernel's only argument, valid until the next call, and queues device work that the
  // launch needs first. Called inside the timed interval.
  virtual void* prepare(const Request& request) = 0;
  // Queues the work of prepare()'s argument on the default stream, and returns the number of launches.
  // Here one, cooperative unless PlantedFault::kNotResident is planted.
  virtual int64_t start(void* argument);
  // Computes the KV rows of many ids from position() on, by batched prefill. After each chunk of
  // rows, calls `reached` with the position that follows it. Returns the number of launches.
  virtual int64_t append_rows(std::span<const int32_t> ids,
                              const std::function<void(int)>& reached) = 0;
  // Sets all bits of everything that a launch writes except the KV cache.
  virtual void poison_scratch() = 0;
  // Sets all bits of the KV rows at and above `position`.
  virtual void poison_rows(int position) = 0;
  // Sets all KV rows to zero.
  virtual void zero_rows() = 0;
  // A checksum of KV rows [0, positions).
  virtual uint64_t checksum(int positions) const = 0;
  // K then V of one written position, [2 * kv_width].
  virtual std::vector<float> read_row(int layer, int position) const = 0;
  // Values derived from KV rows and kept beside them, see Snapshot::derived.
  virtual std::vector<float> derived() const { return {}; }
  // Restores what derived() returned at `position`. Empty `values` (after a reset or a NaN logit,
  // or from a snapshot without any) mean: compute them from the KV rows below `position`.
  virtual void restore_derived(const std::vector<float>& /*values*/, int /*position*/) {}
  // Completes `status` after a launch, for kernels that report a fault in other memory.
  virtual void collect_fault(KernelStatus& /*status*/) const {}
  // The error to throw for the fault in `f`; by default the Error(kHang) of an expired wait.
  virtual Error fault_error(const KernelStatus& f) const;

  // Where the blocks of the last launch stand; nullopt if unknown. `ended`: the launch is over and
  // `status` is complete; otherwise it still runs, and the caller is not the engine's thread.
  virtual std::optional<Standstill> find_standstill(const KernelStatus& status,
                                                    bool ended) const = 0;
  // Clears what find_standstill() has read; called once a launch's fault has been collected.
  virtual void forget_standstill() {}
  // PlantedFault::kWordsReset: zeroes words of the exchange during a launch, on stream side().get().
  virtual void reset_words() {}

  // The launch of the kernel instance that records a timeline, and the roles of its blocks; nullopt if
  // the kernel that this engine launches has no such instance.
  struct RecordedInstance {
    LaunchConfig launch;
    std::vector<std::string> roles;
    int most_readings = 1;  // how often a block reads its clocks in a step, at most
  };
  virtual std::optional<RecordedInstance> recorded_instance() const = 0;

  // Sets the parameters that all kernels have under the same names.
  template <typename Params>
  void fill_common(Params& p, const Request& r) const {
    p.inputs = inputs_.get();
    p.outputs = outputs_.get();
    p.logits = r.logits;
    p.hidden = r.keep_hidden ? hidden_.get() : nullptr;
    p.token_ns = token_ns_.get();
    p.cycles = cycles_.get();
    p.status = status_.device();
    p.timeline = recorder_ ? recorder_->buffers() : TimelineBuffers{};
    p.vocab = config_.shape.vocab;
    p.max_context = traits_.max_context;
    p.position = position_;
    p.steps = r.steps;
    p.input_count = r.input_count;
    p.first_output = r.first_output;
    p.context_bias = context_bias();
    p.stall_block = traits_.stall_block;
    p.eps = static_cast<float>(config_.rms_norm_eps);
  }

  // The planted fault's change to the number of positions that a step attends to.
  int context_bias() const {
    if (traits_.fault == PlantedFault::kCacheLengthPlus) return 1;
    return traits_.fault == PlantedFault::kCacheLength ? -1 : 0;
  }

  // From now on launches another kernel, and records no timelines. The caller has checked that the
  // kernel's grid fits.
  void set_launch(const LaunchConfig& launch) {
    recorder_.reset();
    launch_ = launch;
  }

  const ModelConfig& config() const { return config_; }
  const LaunchEngineTraits& traits() const { return traits_; }
  const SideStream& side() const { return side_; }
  // Position of the last launch's first step; the kernel's grid; how many blocks the device holds.
  int launch_position() const { return launch_position_; }
  int grid() const { return launch_.blocks; }
  int resident() const { return resident_; }

 private:
  void check_id(int32_t id) const;
  void check_written(const char* function, int position) const;
  void derive_at(int position);
  void check_room(int64_t steps) const;
  void check_steps(int n) const;
  std::vector<int32_t> run(const std::vector<int32_t>& inputs, int n, const VectorSteps& wanted);
  void launch(const std::vector<int32_t>& inputs, int steps, int first_output,
              const VectorSteps& wanted);
  void append(const std::vector<int32_t>& inputs);
  void reset_words_within();
  void set_stood(std::optional<Standstill> stood);
  void check_fault();
  // Ends the sequence with the KV row of step `step`, which yielded no token.
  void end_without_token(std::vector<int32_t>& ids, size_t step);

  const ModelConfig config_;
  const LaunchEngineTraits traits_;
  LaunchConfig launch_;
  std::string device_name_;
  const SideStream side_;
  const int resident_;
  std::atomic<bool> running_{false};  // the device works on a launch
  std::atomic<int> launch_position_{0};
  mutable std::mutex stood_mutex_;
  std::optional<Standstill> stood_;            // the last launch's, if it raised a hang
  DeviceBuffer<float> hidden_;                 // (layers, hidden)
  DeviceBuffer<unsigned long long> cycles_;    // (2)
  DeviceBuffer<unsigned long long> token_ns_;  // this and the next five grow as calls need
  DeviceBuffer<int> inputs_, outputs_;
  DeviceBuffer<float> logits_, normed_;
  DeviceBuffer<Bf16> vectors_;
  MappedValue<KernelStatus> status_;
  std::optional<TimelineRecorder> recorder_;  // set while timelines are recorded
  LaunchConfig unrecorded_;                   // what set_timeline(false) goes back to
  bool recorded_ = false;                     // a launch has recorded a timeline
  Event start_, stop_;
  double host_ms_ = 0;        // time of the last launch by the host's clock
  int timed_steps_ = 0;       // steps of the last launch; 0 when its times do not count
  bool hidden_kept_ = false;  // hidden_ holds the last launch's states
  int position_ = 0;
  WrittenRows rows_;  // below position_
  Snapshot known_;    // a position at or below position_, and what derived() returned there
  int32_t pending_ = -1;
  int64_t launches_ = 0;
};

}  // namespace mkbench
