// The contract that every engine meets: kernels, baselines, the host twin and libraries from
// elsewhere look alike to the harness.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "references/base/error.h"
#include "references/bug_fit.h"
#include "references/planted_fault.h"
#include "references/standstill.h"
#include "references/stress.h"
#include "references/timeline.h"
#include "references/vector_steps.h"
#include "references/weight_storage.h"

namespace mkbench {

// What an engine claims about its arithmetic; the claim decides which limits of parity apply.
enum class PrecisionClass {
  kBf16,            // rounds like eager
  kFp32Accumulate,  // rounds only the KV cache, the RoPE table and one operand of a product
  kLossy,           // quantised: judged by tokens and divergence, never ranked beside the others
  kFp16,            // rounds where eager does, to fp16, which has three more bits
};
constexpr PrecisionClass kPrecisionClasses[] = {PrecisionClass::kBf16,
                                                PrecisionClass::kFp32Accumulate,
                                                PrecisionClass::kLossy, PrecisionClass::kFp16};
constexpr std::string_view precision_class_name(PrecisionClass c) {
  constexpr std::string_view kNames[] = {"bf16", "fp32-accumulate", "lossy", "fp16"};
  return kNames[static_cast<size_t>(c)];
}

struct EngineCapabilities {
  std::string name;         // resolved name: "eager", "plain", "host-twin"
  std::string device;       // "cpu" or "cuda:0 NVIDIA H200"
  int max_context = 0;      // positions that the KV cache holds: at most those asked for
  int context_limit = 0;    // the most positions that any engine of its kind takes; 0: any number
  bool logits = true;       // decode() can fill logits_out
  bool one_launch = false;  // a whole decode() is one kernel launch
  // Abilities that an engine from elsewhere may lack. Checks that need a missing one are reported
  // as not applicable.
  bool forced = true;         // decode() takes forced ids
  bool snapshots = true;      // save() and restore() work
  bool poison = true;         // poison() reaches outputs, scratch and unused KV rows
  bool counted = true;        // launch_count() counts launches
  bool rewind = false;        // rewind() works
  bool late_id = true;        // decode_late() works without another prefill
  bool deterministic = true;  // equal input gives equal bits
  bool vectors = false;       // decode_vectors() works; false for an engine in a host process
  PrecisionClass precision = PrecisionClass::kBf16;
};

// Times of the last decode() by up to three clocks; 0 where the engine has no such clock.
struct DecodeTimes {
  double host_ms = 0;                // steady_clock around the whole call, synchronised
  double event_ms = 0;               // CUDA events around the launch(es)
  double device_ms = 0;              // %globaltimer in the kernel, first step's start to the end
  double sm_ghz = 0;                 // mean SM clock seen by the kernel
  std::vector<double> per_token_ms;  // device time of each token, if the engine measures it
};

// Where a running engine is in its work; readable from another thread while decode() runs, and
// after a fault.
struct Progress {
  int position = -1;
  int layer = -1;          // -1 where the engine does not say
  std::string_view phase;  // empty where the engine does not say
};

// The result of save(). The KV rows themselves are not copied: rows below `position` are
// append-only.
struct Snapshot {
  int position = 0;
  int32_t pending = -1;
  uint64_t kv_checksum = 0;  // over KV rows [0, position); restore() compares it
  // Values that the engine derives from the rows as it goes (ring: max |k|) and needs again to
  // repeat a decode to the bit; empty where it derives none.
  std::vector<float> derived{};
};

// Greedy decoding of one sequence, batch 1. Not thread-safe, except progress() and standstill().
// Bad ids, n or positions throw Error(kBadInput) before any work; nothing is ever clamped.
class Engine {
 public:
  virtual ~Engine() = default;
  virtual EngineCapabilities capabilities() const = 0;

  // Empties the sequence: position 0, no pending id.
  virtual void reset() = 0;
  // Fills outputs, scratch and KV rows at and above position() with NaN / -1.
  virtual void poison() = 0;
  // Appends KV rows for the pending id (if any) and all ids but the last; the last one becomes
  // pending. ids.size() >= 1.
  virtual void prefill(std::span<const int32_t> ids) = 0;
  // Runs n steps: embeds the pending id, returns the n greedy ids (lowest index among equals).
  // forced: null, or n ids; forced[t] is the input of step t for t >= 1 (forced[0] is ignored: the
  // pending id is used). logits_out: null, or fp32 [n, vocab]. Afterwards the KV holds n more rows
  // and the last returned id is pending.
  virtual std::vector<int32_t> decode(int n, const int32_t* forced = nullptr,
                                      float* logits_out = nullptr) = 0;
  // decode() for a trunk that is one part of a model: the input of step t is row t of steps.in in
  // place of an embedding row, and hidden vectors come out. With steps.in no id has to be pending;
  // a pending id is dropped and writes no KV row. Afterwards the KV holds n more rows and the last
  // returned id is pending. Throws Error(kRuntime) without the capability.
  virtual std::vector<int32_t> decode_vectors(int /*n*/, const VectorSteps& /*steps*/) {
    throw Error(
        ErrorKind::kRuntime,
        capabilities().name + ": decode_vectors: this engine takes ids and gives logits alone");
  }
  // Replaces the pending id.
  virtual void set_pending(int32_t id) = 0;

  // Replaces the pending id and decodes n steps. An engine in a host process gets both in one call,
  // so that an id that is drawn at the last moment reaches it inside the timed part and not before.
  virtual std::vector<int32_t> decode_late(int32_t id, int n) {
    set_pending(id);
    return decode(n);
  }
  // Goes back to `position` <= position(): the rows below it stay. Nothing is pending then until
  // set_pending() or decode_late(). Throws Error(kRuntime) without the capability.
  virtual void rewind(int /*position*/) {
    throw Error(ErrorKind::kRuntime, capabilities().name + " cannot go back");
  }

  virtual Snapshot save() = 0;
  // Goes back to `s`, which must be of this sequence: checks the checksum and poisons rows at and
  // above s.position. Throws Error(kIntegrity) when the prefix was modified.
  virtual void restore(const Snapshot& s) = 0;

  virtual int position() const = 0;  // KV rows written
  // Kernel launches (on a CPU: decode calls) since construction.
  virtual int64_t launch_count() const = 0;
  virtual DecodeTimes last_times() const = 0;
  virtual Progress progress() const = 0;
  // What is known of a hung launch; nullopt if the engine knows nothing. Called from another thread
  // while a call does not return, or after a call that threw Error(kHang). Takes up to a second, or
  // for ever if the device's driver does not answer.
  virtual std::optional<Standstill> standstill() const { return std::nullopt; }

  // Called between runs, off the clock: the engine checks memory that must not have changed and
  // that only its own code can reach. Throws Error(kIntegrity).
  virtual void audit() {}

  // hidden() and kv_row() let localise() find where an error begins; nullopt: not offered.
  // Hidden state after `layer` of the last step, fp32 [hidden].
  virtual std::optional<std::vector<float>> hidden(int /*layer*/) { return std::nullopt; }
  // K then V of one position over all kv heads, widened to fp32, [2 * kv_width].
  virtual std::optional<std::vector<float>> kv_row(int /*layer*/, int /*position*/) {
    return std::nullopt;
  }

  // The `count` values that enter the products with the weight `name`, in the order of its shape;
  // nullopt: the engine uses it as it was handed out.
  virtual std::optional<std::vector<float>> dequantised(const std::string& /*name*/,
                                                        int64_t /*count*/) {
    return std::nullopt;
  }

  // How the engine keeps that weight; nullopt: it does not say.
  virtual std::optional<WeightStorage> storage(const std::string& /*name*/) { return std::nullopt; }

  // What the engine has chosen for this card, for reports; empty where it chooses nothing.
  virtual std::string settings() const { return {}; }

  // A hook of mkbench's own engines for `mkbench soak`, between launches: later launches run under
  // `stress`. Returns which part of it is left out and why ("": none); nullopt without a hook.
  virtual std::optional<std::string> stress(const Stress& /*stress*/) { return std::nullopt; }

  // Diagnostics, between decodes: switches timelines of later decodes on or off. Returns false if
  // the engine cannot record one.
  virtual bool set_timeline(bool /*on*/) { return false; }
  // The timeline of the last decode(), if timelines were on by then. Throws Error(kRuntime).
  virtual Timeline timeline() {
    throw Error(ErrorKind::kRuntime, capabilities().name + ": it offers no timeline");
  }

  // Diagnostics of the fp32 truth: how well known bugs explain what another engine gave on the same
  // weights; does not touch the sequence. nullopt: not offered.
  virtual std::optional<BugFits> explain(const BugQuestion& /*question*/) { return std::nullopt; }

  // Diagnostics: makes `position` zero KV rows count as decoded, with id 0 pending. The times of
  // the steps that follow are real, their tokens mean nothing. Returns false where an engine cannot
  // do it.
  virtual bool skip_to(int /*position*/) { return false; }

  // One step with `id` in place of the pending id.
  int32_t step(int32_t id, float* logits_out = nullptr) {
    set_pending(id);
    return decode(1, nullptr, logits_out)[0];
  }
};

// Forwards calls to another engine; derived classes change some. decode_late() arrives there as
// set_pending() and decode(); decode_vectors() is not forwarded and throws.
class WrappedEngine : public Engine {
 public:
  explicit WrappedEngine(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}

  EngineCapabilities capabilities() const override { return engine_->capabilities(); }
  void reset() override { engine_->reset(); }
  void poison() override { engine_->poison(); }
  void prefill(std::span<const int32_t> ids) override { engine_->prefill(ids); }
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override {
    return engine_->decode(n, forced, logits_out);
  }
  void set_pending(int32_t id) override { engine_->set_pending(id); }
  void rewind(int position) override { engine_->rewind(position); }
  Snapshot save() override { return engine_->save(); }
  void restore(const Snapshot& s) override { engine_->restore(s); }
  int position() const override { return engine_->position(); }
  int64_t launch_count() const override { return engine_->launch_count(); }
  DecodeTimes last_times() const override { return engine_->last_times(); }
  Progress progress() const override { return engine_->progress(); }
  std::optional<Standstill> standstill() const override { return engine_->standstill(); }
  void audit() override { engine_->audit(); }
  std::optional<std::vector<float>> hidden(int layer) override { return engine_->hidden(layer); }
  std::optional<std::vector<float>> kv_row(int layer, int position) override {
    return engine_->kv_row(layer, position);
  }
  std::optional<std::vector<float>> dequantised(const std::string& name, int64_t count) override {
    return engine_->dequantised(name, count);
  }
  std::optional<WeightStorage> storage(const std::string& name) override {
    return engine_->storage(name);
  }
  std::string settings() const override { return engine_->settings(); }
  std::optional<std::string> stress(const Stress& stress) override {
    return engine_->stress(stress);
  }
  bool set_timeline(bool on) override { return engine_->set_timeline(on); }
  Timeline timeline() override { return engine_->timeline(); }
  bool skip_to(int position) override { return engine_->skip_to(position); }

 private:
  const std::unique_ptr<Engine> engine_;
};

}  // namespace mkbench
