#include "kernels/launch_engine.h"

#include <algorithm>
#include <chrono>
#include <numeric>

#include "kernels/phase.h"
#include "kernels/prefill/prefill.h"

namespace mkbench {

LaunchEngine::LaunchEngine(LaunchEngineTraits traits, const ModelConfig& config,
                           const LaunchConfig& launch, size_t side_bytes)
    : config_(config),
      traits_(std::move(traits)),
      launch_(launch),
      side_(side_bytes),
      resident_(co_resident_blocks(launch, traits_.gpu)),
      hidden_(static_cast<size_t>(config.shape.layers) * static_cast<size_t>(config.shape.hidden)),
      cycles_(2) {
  // Kernels that do not write their clock leave it unknown.
  MKBENCH_CUDA(cudaMemset(cycles_.get(), 0, cycles_.bytes()));
  cudaDeviceProp properties{};
  MKBENCH_CUDA(cudaGetDeviceProperties(&properties, traits_.gpu));
  device_name_ = "cuda:" + std::to_string(traits_.gpu) + " " + properties.name;
  *status_.host() = KernelStatus{-1, 0, 0, 0, 0, 0, 0, 0};
}

int64_t LaunchEngine::fixed_bytes(const ModelShape& shape) {
  return 4LL * shape.layers * shape.hidden + 2 * 8;
}

EngineCapabilities LaunchEngine::capabilities() const {
  EngineCapabilities can = traits_.can;
  can.device = device_name_;
  can.max_context = traits_.max_context;
  return can;
}

void LaunchEngine::reset() {
  position_ = 0;
  pending_ = -1;
  timed_steps_ = 0;
  hidden_kept_ = false;
  rows_.clear();
  known_ = {};
  restore_derived({}, 0);
}

void LaunchEngine::poison() {
  poison_scratch();
  MKBENCH_CUDA(cudaMemset(hidden_.get(), 0xff, hidden_.bytes()));
  if (outputs_.size() > 0) MKBENCH_CUDA(cudaMemset(outputs_.get(), 0xff, outputs_.bytes()));
  hidden_kept_ = false;
  poison_rows(position_);
  // Waits, so that the next decode, which is timed, does not begin with this work.
  MKBENCH_CUDA(cudaDeviceSynchronize());
}

void LaunchEngine::prefill(std::span<const int32_t> ids) {
  if (ids.empty()) throw Error(ErrorKind::kBadInput, traits_.prefix + ": prefill: no ids");
  for (const int32_t id : ids) check_id(id);
  std::vector<int32_t> inputs;
  if (pending_ >= 0) inputs.push_back(pending_);
  inputs.insert(inputs.end(), ids.begin(), ids.end() - 1);
  check_room(static_cast<int64_t>(inputs.size()));
  const int steps = static_cast<int>(inputs.size());
  const bool batched = steps >= prefill::kLeastRows;
  rows_.add(position_, inputs, batched ? WrittenRows::Way::kBatch : WrittenRows::Way::kStep);
  if (batched) {
    append(inputs);
  } else if (steps > 0) {
    launch(inputs, steps, steps, {});
  }
  pending_ = ids.back();
}

std::vector<int32_t> LaunchEngine::decode(int n, const int32_t* forced, float* logits_out) {
  check_steps(n);
  if (pending_ < 0) {
    throw Error(ErrorKind::kBadInput,
                traits_.prefix + ": decode: no pending id, call prefill first");
  }
  std::vector<int32_t> inputs{pending_};
  for (int t = 1; forced != nullptr && t < n; ++t) {
    check_id(forced[t]);
    inputs.push_back(forced[t]);
  }
  return run(inputs, n, {.logits_out = logits_out});
}

std::vector<int32_t> LaunchEngine::decode_vectors(int n, const VectorSteps& steps) {
  if (!traits_.can.vectors) return Engine::decode_vectors(n, steps);
  check_steps(n);
  check_vector_steps(traits_.prefix + ": decode", n, steps, config_.shape.hidden, position_);
  if (steps.in == nullptr) {
    if (pending_ < 0) {
      throw Error(ErrorKind::kBadInput,
                  traits_.prefix + ": decode: no pending id, call prefill first");
    }
    return run({pending_}, n, steps);
  }
  // The vectors replace the embedding: a table of n rows, of which step t reads row t.
  std::vector<int32_t> rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return run(rows, n, steps);
}

void LaunchEngine::check_steps(int n) const {
  if (n < 1) {
    throw Error(ErrorKind::kBadInput,
                traits_.prefix + ": decode: " + std::to_string(n) + " steps, wanted 1 or more");
  }
  check_room(n);
}

// Runs n steps with outputs. `inputs` holds the ids of the first steps, or of all steps.
std::vector<int32_t> LaunchEngine::run(const std::vector<int32_t>& inputs, int n,
                                       const VectorSteps& wanted) {
  const int first = position_;
  launch(inputs, n, 0, wanted);
  std::vector<int32_t> ids(static_cast<size_t>(n));
  MKBENCH_CUDA(cudaMemcpy(ids.data(), outputs_.get(), 4 * ids.size(), cudaMemcpyDeviceToHost));
  std::vector<int32_t> fed = inputs;
  fed.insert(fed.end(), ids.begin() + std::ssize(inputs) - 1, ids.end() - 1);
  rows_.add(first, fed,
            wanted.in != nullptr ? WrittenRows::Way::kWithoutId : WrittenRows::Way::kStep);
  const auto none = std::find(ids.begin(), ids.end(), -1);
  if (none != ids.end()) end_without_token(ids, static_cast<size_t>(none - ids.begin()));
  pending_ = ids.back();
  return ids;
}

void LaunchEngine::end_without_token(std::vector<int32_t>& ids, size_t step) {
  position_ -= static_cast<int>(ids.size() - step) - 1;
  std::fill(ids.begin() + static_cast<int64_t>(step), ids.end(), -1);
  timed_steps_ = 0;  // the launch's times and states include the steps after `step`
  restore_derived({}, position_);
  hidden_kept_ = false;
}

void LaunchEngine::set_pending(int32_t id) {
  check_id(id);
  pending_ = id;
}

Snapshot LaunchEngine::save() {
  known_ = {position_, pending_, checksum(position_), derived()};
  return known_;
}

void LaunchEngine::restore(const Snapshot& s) {
  check_written("restore", s.position);
  if (checksum(s.position) != s.kv_checksum) {
    throw Error(ErrorKind::kIntegrity, traits_.prefix + ": restore: KV rows below position " +
                                           std::to_string(s.position) + " were modified");
  }
  restore_derived(s.derived, s.position);
  known_ = s;
  position_ = s.position;
  pending_ = s.pending;
  poison();
}

// Copies the times only when asked for, so that decode()'s clock does not include the copy.
DecodeTimes LaunchEngine::last_times() const {
  DecodeTimes times;
  if (timed_steps_ == 0) return times;
  std::vector<unsigned long long> ns(static_cast<size_t>(timed_steps_) + 1);
  unsigned long long cycles[2];
  MKBENCH_CUDA(cudaMemcpy(ns.data(), token_ns_.get(), 8 * ns.size(), cudaMemcpyDeviceToHost));
  MKBENCH_CUDA(cudaMemcpy(cycles, cycles_.get(), sizeof(cycles), cudaMemcpyDeviceToHost));
  times.host_ms = host_ms_;
  times.event_ms = stop_.ms_since(start_);
  const double total_ns = static_cast<double>(ns.back() - ns.front());
  times.device_ms = total_ns * 1e-6;
  times.sm_ghz = total_ns > 0 ? static_cast<double>(cycles[1] - cycles[0]) / total_ns : 0;
  for (size_t t = 1; t < ns.size(); ++t) {
    times.per_token_ms.push_back(static_cast<double>(ns[t] - ns[t - 1]) * 1e-6);
  }
  return times;
}

Progress LaunchEngine::progress() const {
  const volatile KernelStatus* status = status_.host();
  return {status->progress_position, -1, {}};
}

std::optional<std::vector<float>> LaunchEngine::hidden(int layer) {
  if (layer < 0 || layer >= config_.shape.layers || !hidden_kept_) return std::nullopt;
  std::vector<float> state(static_cast<size_t>(config_.shape.hidden));
  const float* from = hidden_.get() + static_cast<size_t>(layer) * state.size();
  MKBENCH_CUDA(cudaMemcpy(state.data(), from, 4 * state.size(), cudaMemcpyDeviceToHost));
  return state;
}

std::optional<std::vector<float>> LaunchEngine::kv_row(int layer, int position) {
  const bool written = position >= 0 && position < position_;
  if (layer < 0 || layer >= config_.shape.layers || !written) return std::nullopt;
  return read_row(layer, position);
}

bool LaunchEngine::skip_to(int position) {
  reset();
  if (position < 0) throw Error(ErrorKind::kBadInput, traits_.prefix + ": skip to a position < 0");
  check_room(position);
  zero_rows();
  position_ = position;
  pending_ = 0;
  poison();
  return true;
}

bool LaunchEngine::set_timeline(bool on) {
  if (recorder_) set_launch(unrecorded_);
  if (!on) return true;
  const std::optional<RecordedInstance> instance = recorded_instance();
  if (!instance) return false;
  require_co_resident(traits_.prefix, instance->launch, traits_.gpu);
  recorded_ = false;
  unrecorded_ = launch_;
  launch_ = instance->launch;
  recorder_.emplace(instance->roles, instance->launch.blocks, instance->most_readings);
  return true;
}

Timeline LaunchEngine::timeline() {
  if (!recorder_ || !recorded_)
    throw Error(ErrorKind::kRuntime, traits_.prefix + ": no decode has recorded a timeline");
  return recorder_->collect(traits_.prefix);
}

const volatile int32_t* LaunchEngine::position_word(const Engine& engine) {
  return &dynamic_cast<const LaunchEngine&>(engine).status_.host()->progress_position;
}

void LaunchEngine::check_written(const char* function, int position) const {
  if (position >= 0 && position <= position_) return;
  throw Error(ErrorKind::kBadInput, traits_.prefix + ": " + function + ": position " +
                                        std::to_string(position) + " is not in [0, " +
                                        std::to_string(position_) + "]");
}

void LaunchEngine::check_id(int32_t id) const {
  if (id >= 0 && id < config_.shape.vocab) return;
  throw Error(ErrorKind::kBadInput, traits_.prefix + ": token id " + std::to_string(id) +
                                        " is not in [0, " + std::to_string(config_.shape.vocab) +
                                        ")");
}

void LaunchEngine::check_room(int64_t steps) const {
  if (position_ + steps <= traits_.max_context) return;
  throw Error(ErrorKind::kBadInput, traits_.prefix + ": context: " + std::to_string(position_) +
                                        " rows + " + std::to_string(steps) + " steps > " +
                                        std::to_string(traits_.max_context) + " positions");
}

// Runs `steps` steps from position_ in one launch. The host's clock covers the copy of the input
// ids, what prepare() queues, and the kernel to its end.
void LaunchEngine::launch(const std::vector<int32_t>& inputs, int steps, int first_output,
                          const VectorSteps& wanted) {
  const size_t outputs = static_cast<size_t>(steps - first_output);
  const size_t hidden = static_cast<size_t>(config_.shape.hidden);
  const size_t logits = outputs * static_cast<size_t>(config_.shape.vocab);
  inputs_.reserve(inputs.size());
  outputs_.reserve(outputs);
  token_ns_.reserve(static_cast<size_t>(steps) + 1);
  if (wanted.logits_out != nullptr) {
    logits_.reserve(logits);
    MKBENCH_CUDA(cudaMemset(logits_.get(), 0xff, 4 * logits));
  }
  if (wanted.hidden_out != nullptr) {
    normed_.reserve(outputs * hidden);
    MKBENCH_CUDA(cudaMemset(normed_.get(), 0xff, 4 * outputs * hidden));
  }
  const size_t given = wanted.in != nullptr ? static_cast<size_t>(steps) * hidden : 0;
  vectors_.reserve(given);
  const Request request{
      .steps = steps,
      .first_output = first_output,
      .input_count = static_cast<int>(inputs.size()),
      .logits = wanted.logits_out != nullptr ? logits_.get() : nullptr,
      .keep_hidden = wanted.logits_out != nullptr || !traits_.hidden_with_logits_only,
      .vectors = wanted.in != nullptr ? vectors_.get() : nullptr,
      .normed = wanted.hidden_out != nullptr ? normed_.get() : nullptr};
  recorded_ = false;
  if (recorder_) recorder_->prepare(steps, config_.shape.layers);
  timed_steps_ = 0;
  hidden_kept_ = false;
  set_stood(std::nullopt);
  status_.host()->progress_position = -1;
  const auto host_start = std::chrono::steady_clock::now();
  MKBENCH_CUDA(
      cudaMemcpyAsync(inputs_.get(), inputs.data(), 4 * inputs.size(), cudaMemcpyHostToDevice));
  if (given > 0)
    MKBENCH_CUDA(cudaMemcpyAsync(vectors_.get(), wanted.in, 2 * given, cudaMemcpyHostToDevice));
  MKBENCH_CUDA(cudaMemsetAsync(outputs_.get(), 0xff, outputs_.bytes()));
  void* argument = prepare(request);
  launch_position_ = position_;
  running_ = true;
  start_.record();
  launches_ += start(argument);
  stop_.record();
  if (traits_.fault == PlantedFault::kWordsReset) reset_words_within();
  MKBENCH_CUDA(cudaDeviceSynchronize());
  running_ = false;
  const auto host_stop = std::chrono::steady_clock::now();
  check_fault();
  position_ += steps;
  host_ms_ = std::chrono::duration<double, std::milli>(host_stop - host_start).count();
  timed_steps_ = steps;
  recorded_ = recorder_.has_value();
  hidden_kept_ = request.keep_hidden;
  if (wanted.logits_out != nullptr) {
    MKBENCH_CUDA(cudaMemcpy(wanted.logits_out, logits_.get(), 4 * logits, cudaMemcpyDeviceToHost));
  }
  if (wanted.hidden_out != nullptr) {
    MKBENCH_CUDA(
        cudaMemcpy(wanted.hidden_out, normed_.get(), 4 * outputs * hidden, cudaMemcpyDeviceToHost));
  }
}

int64_t LaunchEngine::start(void* argument) {
  void* arguments[] = {argument};
  const dim3 grid(static_cast<unsigned>(launch_.blocks));
  const dim3 block(static_cast<unsigned>(launch_.threads));
  const auto shared_bytes = static_cast<size_t>(launch_.shared_bytes);
  // A cooperative launch rejects a grid that cannot be resident at once; an ordinary launch accepts it.
  if (traits_.fault == PlantedFault::kNotResident) {
    MKBENCH_CUDA(cudaLaunchKernel(launch_.kernel, grid, block, arguments, shared_bytes, nullptr));
  } else {
    MKBENCH_CUDA(
        cudaLaunchCooperativeKernel(launch_.kernel, grid, block, arguments, shared_bytes, nullptr));
  }
  return 1;
}

// PlantedFault::kWordsReset: zeroes words of the exchange once the launch has reached its second step.
void LaunchEngine::reset_words_within() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const volatile KernelStatus* status = status_.host();
  while (status->progress_position <= position_ && std::chrono::steady_clock::now() < limit) {
  }
  reset_words();
}

std::optional<Standstill> LaunchEngine::standstill() const {
  if (running_) {
    const volatile KernelStatus* now = status_.host();
    KernelStatus status{};
    status.progress_position = now->progress_position;
    status.raised = now->raised;
    status.block = now->block;
    status.phase = now->phase;
    status.layer = now->layer;
    status.position = now->position;
    status.expected = now->expected;
    status.seen = now->seen;
    return find_standstill(status, false);
  }
  const std::lock_guard lock(stood_mutex_);
  return stood_;
}

void LaunchEngine::set_stood(std::optional<Standstill> stood) {
  const std::lock_guard lock(stood_mutex_);
  stood_ = std::move(stood);
}

void LaunchEngine::append(const std::vector<int32_t>& inputs) {
  timed_steps_ = 0;
  hidden_kept_ = false;
  set_stood(std::nullopt);
  launches_ += append_rows(
      inputs, [this](int position) { status_.host()->progress_position = position - 1; });
  position_ += static_cast<int>(inputs.size());
}

void LaunchEngine::check_fault() {
  KernelStatus* status = status_.host();
  collect_fault(*status);
  if (status->raised == 0) return;
  const KernelStatus f = *status;
  set_stood(find_standstill(f, true));
  forget_standstill();
  status->raised = 0;
  reset();
  throw fault_error(f);
}

Error LaunchEngine::fault_error(const KernelStatus& f) const {
  return {ErrorKind::kHang,
          traits_.prefix + ": block " + std::to_string(f.block) + " waited in vain before phase " +
              std::string(phase_name(static_cast<Phase>(f.phase))) + ", layer " +
              std::to_string(f.layer) + ", position " + std::to_string(f.position) + ": expected " +
              std::to_string(f.expected) + ", saw " + std::to_string(f.seen)};
}

}  // namespace mkbench
