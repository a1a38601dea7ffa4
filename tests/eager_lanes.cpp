#include "tests/eager_lanes.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <span>

#include "references/base/error.h"
#include "references/oracle.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"

namespace mkbench::testing {
namespace {

// Largest difference of a logit between the truth computed here and the committed one of HF, which
// device, thread count and BLAS change by their order of summation: below 3e-5 was measured at
// logits of 9.
constexpr double kTruthTolerance = 5e-4;

// The forced ids of decode() that follow the truth's path.
Ids forced_path(const ReferencePrompt& prompt) {
  Ids forced = {-1};  // ignored: step 0 takes the pending id
  for (size_t t = 0; t + 1 < prompt.steps.size(); ++t) forced.push_back(prompt.steps[t].token);
  return forced;
}

struct Forced {
  Ids tokens;
  std::vector<float> logits;  // [steps, vocab]
};

Forced run_forced(Engine& engine, const ReferencePrompt& prompt, int vocab) {
  Forced result;
  result.logits.resize(prompt.steps.size() * static_cast<size_t>(vocab));
  const Ids forced = forced_path(prompt);
  engine.reset();
  engine.prefill(prompt.ids);
  result.tokens =
      engine.decode(static_cast<int>(prompt.steps.size()), forced.data(), result.logits.data());
  return result;
}

// Expects an Error of `kind` whose one line names `part`.
void expect_error(ErrorKind kind, const std::string& part, const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& e) {
    const std::string message = e.what();
    INFO(message);
    CHECK(e.kind() == kind);
    CHECK(message.find(part) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
    return;
  }
  FAIL("no error that names " << part);
}

// A copy of `w` with an LM head that may be changed.
ModelWeights with_own_head(const ModelWeights& w, std::shared_ptr<std::vector<Bf16>>& head) {
  ModelWeights changed = w;
  head = std::make_shared<std::vector<Bf16>>(w.lm_head.data, w.lm_head.data + w.lm_head.size());
  changed.lm_head.data = head->data();
  changed.config.tie_word_embeddings = false;
  return changed;
}

// Counts decided steps of the strict prompts at which free-running tokens leave the truth's path.
int wrong_strict_tokens(Engine& engine, const GreedyReference& reference) {
  int wrong = 0;
  for (const ReferencePrompt& prompt : reference.prompts) {
    if (prompt.set != "strict") continue;
    engine.reset();
    engine.prefill(prompt.ids);
    const Ids tokens = engine.decode(static_cast<int>(prompt.steps.size()));
    for (size_t t = 0; t < tokens.size(); ++t) wrong += tokens[t] != prompt.steps[t].token;
  }
  return wrong;
}

void check_prefill_is_stepwise(const ModelWeights& weights, Lane lane) {
  const ModelShape& shape = weights.config.shape;
  for (const bool fp32 : {true, false}) {
    const Ids ids = walk(fp32 ? 530 : 130, shape.vocab);  // 530: two query chunks
    EagerOptions options = options_for(lane);
    options.fp32 = fp32;
    if (fp32) options.graph = options.compiled = false;
    const auto at_once = make_eager(weights, options), stepwise = make_eager(weights, options);
    at_once->prefill(ids);
    stepwise->prefill(std::span(ids).first(1));
    for (size_t i = 1; i < ids.size(); ++i) {
      stepwise->decode(1);
      stepwise->set_pending(ids[i]);
    }
    REQUIRE(at_once->position() == static_cast<int>(ids.size()) - 1);
    REQUIRE(stepwise->position() == at_once->position());
    double error = 0, norm = 0;
    for (int layer = 0; layer < shape.layers; ++layer) {
      for (const int position : {0, 1, 16, 128, 300, 511, 512, 528}) {
        if (position >= at_once->position()) continue;
        const auto a = at_once->kv_row(layer, position), b = stepwise->kv_row(layer, position);
        REQUIRE(a->size() == static_cast<size_t>(2 * shape.kv_width()));
        for (size_t i = 0; i < a->size(); ++i) {
          error += std::pow((*a)[i] - (*b)[i], 2);
          norm += std::pow((*b)[i], 2);
        }
      }
    }
    const double relative = std::sqrt(error / norm);
    CAPTURE(fp32, relative);
    // bf16 matmuls of one row and of many rows may sum in different orders and then round to
    // different neighbours, which are 2^-8 apart.
    CHECK(relative < (fp32 ? 1e-5 : 1e-2));
  }
}

void check_save_restore(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const auto engine = make_eager(weights, options_for(lane));
  engine->prefill(walk(40, vocab));
  const Snapshot snapshot = engine->save();
  CHECK(snapshot.position == 39);
  const Ids first = engine->decode(12);
  engine->restore(snapshot);
  CHECK(engine->position() == 39);
  CHECK(engine->save().kv_checksum == snapshot.kv_checksum);
  CHECK(engine->decode(12) == first);

  // The cache now holds another sequence of equal length: restore() must see that the prefix
  // differs.
  engine->reset();
  engine->prefill(walk(60, vocab, 5));
  expect_error(ErrorKind::kIntegrity, "modified", [&] { engine->restore(snapshot); });
  // Only the last row of the prefix differs.
  Ids changed = walk(40, vocab);
  changed[38] = (changed[38] + 1) % vocab;
  engine->reset();
  engine->prefill(changed);
  expect_error(ErrorKind::kIntegrity, "modified", [&] { engine->restore(snapshot); });
  // The snapshot lies beyond the sequence.
  engine->reset();
  expect_error(ErrorKind::kBadInput, "39", [&] { engine->restore(snapshot); });
}

void check_poison(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const auto engine = make_eager(weights, options_for(lane));
  engine->prefill(walk(70, vocab));
  const Ids expected = engine->decode(10);
  engine->reset();
  engine->prefill(walk(70, vocab));
  const uint64_t before = engine->save().kv_checksum;
  engine->poison();
  CHECK(engine->save().kv_checksum == before);
  CHECK_FALSE(engine->hidden(0).has_value());
  CHECK(engine->decode(10) == expected);
  // reset() alone leaves old rows behind, and no step may read them.
  engine->reset();
  engine->poison();
  engine->prefill(walk(70, vocab));
  CHECK(engine->decode(10) == expected);
}

void check_repeatable(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const auto engine = make_eager(weights, options_for(lane));
  std::vector<float> first(20 * static_cast<size_t>(vocab)), again(first.size());
  engine->prefill(walk(33, vocab));
  const Ids tokens = engine->decode(20, nullptr, first.data());
  for (int i = 0; i < 5; ++i) {
    // Another prompt in between must not change the results.
    engine->reset();
    engine->prefill(walk(50, vocab, i));
    engine->decode(3);
    engine->reset();
    engine->prefill(walk(33, vocab));
    CHECK(engine->decode(20, nullptr, again.data()) == tokens);
    CHECK(again == first);
    // A decode without logits must give equal tokens.
    engine->reset();
    engine->prefill(walk(33, vocab));
    CHECK(engine->decode(20) == tokens);
  }
}

void check_refusals(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  EagerOptions options = options_for(lane);
  options.max_context = 16;
  const auto engine = make_eager(weights, options);
  const auto refuses = [](const std::string& part, const std::function<void()>& work) {
    expect_error(ErrorKind::kBadInput, part, work);
  };
  refuses("pending", [&] { engine->decode(1); });
  refuses("no ids", [&] { engine->prefill({}); });
  for (const int32_t bad : {-1, vocab, std::numeric_limits<int32_t>::max()}) {
    refuses("id 1 is " + std::to_string(bad), [&] { engine->prefill(Ids{1, bad}); });
    refuses(std::to_string(bad), [&] { engine->set_pending(bad); });
  }
  refuses("17", [&] { engine->prefill(walk(18, vocab)); });
  CHECK(engine->position() == 0);

  engine->prefill(walk(10, vocab));
  for (const int n : {0, -1}) refuses(std::to_string(n), [&] { engine->decode(n); });
  refuses("holds 16", [&] { engine->decode(8); });
  const Ids forced = {-7, 1, vocab};  // the first is ignored, the last is not
  refuses("forced id 2", [&] { engine->decode(3, forced.data()); });
  CHECK(engine->position() == 9);
  // Fills the cache exactly, because none of the refused calls wrote a row.
  CHECK(engine->decode(7).size() == 7);
  refuses("holds 16", [&] { engine->decode(1); });
  refuses("position 16", [&] { engine->kv_row(0, 16); });
  refuses("layer", [&] { engine->hidden(weights.config.shape.layers); });

  options.max_context = weights.config.max_positions + 1;
  refuses("max_position_embeddings", [&] { make_eager(weights, options); });
  options.max_context = 0;
  refuses("max_context is 0", [&] { make_eager(weights, options); });
}

void check_lowest_of_equals(const ModelWeights& weights, Lane lane) {
  const int vocab = weights.config.shape.vocab;
  const size_t width = static_cast<size_t>(weights.config.shape.hidden);
  const Ids prompt = walk(20, vocab);
  const auto plain = make_eager(weights, options_for(lane));
  plain->prefill(prompt);
  const int32_t winner = plain->decode(1)[0];

  // Copies the winner's row of the head to rows all over the vocabulary, the first and the last
  // among them.
  std::shared_ptr<std::vector<Bf16>> head;
  const ModelWeights copies = with_own_head(weights, head);
  for (const int32_t id : {vocab - 1, vocab / 2, 7, 3}) {
    std::copy_n(weights.lm_head.row(winner).data(), width,
                head->data() + width * static_cast<size_t>(id));
    const auto engine = make_eager(copies, options_for(lane));
    engine->prefill(prompt);
    std::vector<float> logits(static_cast<size_t>(vocab));
    const int32_t token = engine->decode(1, nullptr, logits.data())[0];
    CAPTURE(winner, id);
    CHECK(logits[static_cast<size_t>(id)] == logits[static_cast<size_t>(winner)]);
    CHECK(token == argmax_lowest(logits));
    CHECK(token == std::min(winner, id));
  }
}

void check_nan_is_no_token(const ModelWeights& weights, Lane lane) {
  std::shared_ptr<std::vector<Bf16>> head;
  const ModelWeights broken = with_own_head(weights, head);
  (*head)[head->size() - 1] = Bf16{0x7fc0};
  const auto engine = make_eager(broken, options_for(lane));
  engine->prefill(walk(5, weights.config.shape.vocab));
  CHECK(engine->decode(1) == Ids{-1});
  expect_error(ErrorKind::kBadInput, "pending", [&] { engine->decode(1); });
}

void check_localiser_hooks(const ModelWeights& weights, Lane lane) {
  const ModelShape& shape = weights.config.shape;
  EagerOptions options = options_for(lane);
  options.fp32 = !lane.static_steps();
  const double tolerance = options.fp32 ? 1e-3 : 3e-2;  // of a row's norm
  const auto engine = make_eager(weights, options);
  Oracle oracle(weights);
  const auto check_row = [&](const std::vector<float>& got, const std::vector<float>& wanted) {
    REQUIRE(got.size() == wanted.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < wanted.size(); ++i) {
      error += std::pow(got[i] - wanted[i], 2);
      norm += std::pow(wanted[i], 2);
    }
    CHECK(std::sqrt(error / norm) < tolerance);
  };
  const Ids ids = walk(24, shape.vocab);
  for (const int32_t id : ids) oracle.step(id, false);
  engine->prefill(ids);
  CHECK_FALSE(engine->hidden(0).has_value());
  engine->decode(1);
  for (int layer = 0; layer < shape.layers; ++layer) {
    const auto hidden = engine->hidden(layer);
    REQUIRE(hidden.has_value());
    check_row(*hidden, oracle.hidden_states()[static_cast<size_t>(layer)]);
    for (const int position : {0, 11, 23})
      check_row(*engine->kv_row(layer, position), oracle.kv_row(layer, position));
  }
}

void check_times_and_counts(const ModelWeights& weights, Lane lane) {
  const auto engine = make_eager(weights, options_for(lane));
  CHECK(engine->capabilities().name == lane.name());
  CHECK(engine->capabilities().poison == !lane.static_steps());
  CHECK(engine->capabilities().max_context == 1024);
  CHECK(engine->capabilities().device.substr(0, 4) == (lane.cuda ? "cuda" : "cpu"));
  CHECK_FALSE(engine->capabilities().one_launch);
  engine->prefill(walk(4, weights.config.shape.vocab));
  CHECK(engine->launch_count() == 0);
  engine->decode(5);
  engine->decode(2);
  CHECK(engine->launch_count() == 2);
  CHECK(engine->progress().position == 10);
  CHECK(engine->progress().phase.empty());
  const DecodeTimes times = engine->last_times();
  CHECK(times.host_ms > 0);
  CHECK((times.event_ms > 0) == lane.cuda);
  CHECK(times.event_ms <= times.host_ms * 1.01 + 0.02);
}

}  // namespace

EagerOptions options_for(Lane lane) {
  EagerOptions options;
  options.cuda = lane.cuda;
  options.graph = lane.graph;
  options.compiled = lane.compiled;
  options.max_context = 1024;
  options.threads = 1;  // as in the capture of the references, and quicker for small matrices
  return options;
}

Ids walk(int count, int vocab, int seed) {
  Ids ids;
  for (int i = 0; i < count; ++i) ids.push_back((seed * 31 + i * i * 7 + i * 3) % vocab);
  return ids;
}

std::span<const float> row(const std::vector<float>& logits, size_t step, int vocab) {
  return {logits.data() + step * static_cast<size_t>(vocab), static_cast<size_t>(vocab)};
}

double mean_of(std::span<const float> z) {
  double sum = 0;
  for (const float x : z) sum += x;
  return sum / static_cast<double>(z.size());
}

double centred_distance_squared(std::span<const float> a, std::span<const float> b) {
  const double shift = mean_of(a) - mean_of(b);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double d = double{a[i]} - double{b[i]} - shift;
    sum += d * d;
  }
  return sum;
}

Case load_case(const std::string& model) {
  Case c;
  c.weights = load_model(resolve_model(model), 0);
  const auto found = find_references(data_dir(), model);
  REQUIRE(found.size() == 1);
  c.reference = read_reference(found[0]);
  REQUIRE(c.reference.weights_sha256 == c.weights.sha256);
  return c;
}

void check_truth(const Case& c, Lane lane) {
  EagerOptions options = options_for(lane);
  options.fp32 = true;
  const auto engine = make_eager(c.weights, options);
  const int vocab = c.weights.config.shape.vocab;
  double worst = 0;
  for (const ReferencePrompt& prompt : c.reference.prompts) {
    const Forced run = run_forced(*engine, prompt, vocab);
    for (size_t t = 0; t < prompt.steps.size(); ++t) {
      const ReferenceStep& step = prompt.steps[t];
      const auto z = row(run.logits, t, vocab);
      for (size_t i = 0; i < step.top_ids.size(); ++i) {
        const double got = z[static_cast<size_t>(step.top_ids[i])];
        worst = std::max(worst, std::abs(got - double{step.top_logits[i]}));
      }
      if (step.margin > 2 * kTruthTolerance) CHECK(run.tokens[t] == step.token);
      CHECK(std::abs(mean_of(z) - step.mean) < kTruthTolerance);
    }
  }
  CAPTURE(worst);
  CHECK(worst < kTruthTolerance);
}

void check_error_of_bf16(const Case& c, Lane lane) {
  EagerOptions options = options_for(lane);
  options.fp32 = true;
  const auto truth = make_eager(c.weights, options);
  options.fp32 = false;
  options.head_fp32 = true;
  const auto rounded = make_eager(c.weights, options);
  const int vocab = c.weights.config.shape.vocab;
  double ours = 0, theirs = 0;
  for (const ReferencePrompt& prompt : c.reference.prompts) {
    const Forced t = run_forced(*truth, prompt, vocab), b = run_forced(*rounded, prompt, vocab);
    for (size_t s = 0; s < prompt.steps.size(); ++s) {
      ours += centred_distance_squared(row(b.logits, s, vocab), row(t.logits, s, vocab));
      theirs += std::pow(prompt.steps[s].baseline_error_norm, 2);
    }
  }
  const double r_rms = std::sqrt(ours / theirs);
  CAPTURE(r_rms);
  CHECK(r_rms <= 1.25);
  // A ratio far below 1 would mean that eager does not round where HF does.
  CHECK(r_rms >= 0.75);
}

void check_tokens(const Case& c, Lane lane) {
  const auto engine = make_eager(c.weights, options_for(lane));
  const int vocab = c.weights.config.shape.vocab;
  int flips = 0, decided = 0;
  for (const ReferencePrompt& prompt : c.reference.prompts) {
    const Forced run = run_forced(*engine, prompt, vocab);
    for (size_t t = 0; t < prompt.steps.size(); ++t) {
      const ReferenceStep& step = prompt.steps[t];
      CAPTURE(prompt.name, t, step.margin);
      // Self-consistency has no tolerance.
      CHECK(run.tokens[t] == argmax_lowest(row(run.logits, t, vocab)));
      flips += run.tokens[t] != step.token;
      if (!step.decided) continue;
      ++decided;
      CHECK(run.tokens[t] == step.token);
    }
  }
  CHECK(decided > 0);
  const double expected = c.reference.baseline_flips;
  CHECK(flips <= expected + 3 * std::sqrt(std::max(1.0, expected)));
  CHECK(wrong_strict_tokens(*engine, c.reference) == 0);
}

void check_planted_faults(const Case& c, Lane lane) {
  for (const PlantedFault fault :
       {PlantedFault::kRopeTheta, PlantedFault::kSwapGateUp, PlantedFault::kCacheLength}) {
    EagerOptions options = options_for(lane);
    options.fault = fault;
    const auto engine = make_eager(c.weights, options);
    CAPTURE(static_cast<int>(fault));
    CHECK(wrong_strict_tokens(*engine, c.reference) > 0);
  }
}

void check_contract(const ModelWeights& weights, Lane lane) {
  SECTION("prefill equals single steps") { check_prefill_is_stepwise(weights, lane); }
  SECTION("save and restore") { check_save_restore(weights, lane); }
  SECTION("repeatable") { check_repeatable(weights, lane); }
  SECTION("refusals") { check_refusals(weights, lane); }
  SECTION("lowest index among equals") { check_lowest_of_equals(weights, lane); }
  SECTION("NaN is no token") { check_nan_is_no_token(weights, lane); }
  SECTION("localiser hooks") { check_localiser_hooks(weights, lane); }
  SECTION("times and counts") { check_times_and_counts(weights, lane); }
  SECTION(lane.static_steps() ? "buckets" : "poison") {
    (lane.static_steps() ? check_buckets : check_poison)(weights, lane);
  }
}

}  // namespace mkbench::testing
