// An engine in a host, as an Engine: each call goes over a HostLink.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "harness/hosts/holdings.h"
#include "harness/wire/host_link.h"
#include "references/engine.h"

namespace mkbench {

class HostEngine final : public Engine {
 public:
  // Opens the engine in the host. `timeout_s`: --timeout. Throws what HostLink::call() throws.
  HostEngine(std::shared_ptr<HostLink> link, const EngineRequest& request,
             const ModelWeights& weights, double timeout_s);
  // Closes the engine; a host that does not answer is ended.
  ~HostEngine() override;
  HostEngine(const HostEngine&) = delete;
  HostEngine& operator=(const HostEngine&) = delete;

  EngineCapabilities capabilities() const override { return opened_.capabilities; }
  // Throws Error(kIntegrity) if what the engine leaves behind grows from reset to reset.
  void reset() override;
  void poison() override { plain(Verb::kPoison); }
  void prefill(std::span<const int32_t> ids) override;
  std::vector<int32_t> decode(int n, const int32_t* forced, float* logits_out) override;
  void set_pending(int32_t id) override;
  std::vector<int32_t> decode_late(int32_t id, int n) override;
  void rewind(int position) override;
  Snapshot save() override;
  void restore(const Snapshot& snapshot) override;
  int position() const override { return state_.position; }
  int64_t launch_count() const override { return state_.launches; }
  DecodeTimes last_times() const override { return times_; }
  Progress progress() const override;
  void audit() override { plain(Verb::kAudit); }
  std::optional<std::vector<float>> hidden(int layer) override { return floats(layer, {}); }
  std::optional<std::vector<float>> kv_row(int layer, int position) override {
    return floats(layer, position);
  }
  std::optional<BugFits> explain(const BugQuestion& question) override;
  bool skip_to(int position) override;
  std::optional<std::string> stress(const Stress& stress) override;
  bool set_timeline(bool on) override;
  Timeline timeline() override;

  // Decodes n tokens, untimed, and returns what reached the card.
  LaunchTrace trace(int n);
  // Sets the label of the next decode's NVTX range. Under a profiler the decode may take up to the
  // full timeout: earlier paces do not predict it.
  void label_next(const RangeLabel& label, bool under_profiler);
  // Returns why the engine has no ablations, or an empty text.
  std::string ablate(Ablation ablation);
  // Appends the values of a weight to a file; false if the engine uses it as it was handed out.
  WeightTaken write_dequantised(const WeightShape& weight, const std::string& file);
  // When the last prefill() or decode() ran, by the clock of the harness's code in the host.
  const HostInterval& last_interval() const { return interval_; }
  const std::string& name() const { return name_; }  // as requested
  std::string settings() const override { return opened_.settings; }
  double open_ms() const { return open_ms_; }
  HostLink& link() const { return *link_; }

 private:
  // The slowest time of a unit of work (a token, a prefilled id) so far; negative: none yet.
  struct Pace {
    double seconds = -1;
  };
  // The limit of a call with so many units of work: by its pace, or in the first such call by the bytes
  // that each unit must move, the model's weights.
  CallLimit limit_of(const Pace& pace, int units) const;
  void learn(Pace& pace, int units);  // from interval_

  static constexpr double kSmallCallS = 60;  // limit of a call that neither prefills nor decodes

  void plain(Verb verb);
  std::vector<int32_t> decode(DecodeCall call, const int32_t* forced, float* logits_out);
  std::optional<std::vector<float>> floats(int layer, std::optional<int> position);
  template <typename Answer>
  Answer ask_host(const ToHost& call, const CallLimit& limit) {
    Answer answer = ask<Answer>(*link_, call, limit);
    if constexpr (requires { answer.state; }) state_ = answer.state;
    return answer;
  }

  std::shared_ptr<HostLink> link_;
  const std::string name_;
  const int vocab_;
  const double timeout_s_;
  Opened opened_;
  double open_ms_ = 0;
  EngineState state_;
  HostInterval interval_;
  DecodeTimes times_;
  Pace decode_pace_, prefill_pace_;
  bool first_ = true;      // no prefill or decode has returned yet
  bool profiled_ = false;  // label_next()
  const int64_t bytes_;    // of the model's weights
  Holdings holdings_;
  std::optional<RangeLabel> next_label_;
  mutable std::string phase_;  // holds the text that the last progress() refers to
};

}  // namespace mkbench
