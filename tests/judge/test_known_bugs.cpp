// The diagnosis names planted bugs: each of tests/plugins/bugs.inc is planted
// in a decoder that was written apart from the search, and found by its logits,
// and by its ids alone. Bugs that no list has are never named with confidence.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "baselines/eager.h"
#include "harness/judge/diagnosis.h"
#include "harness/plugin/engine.h"
#include "references/model_row.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"

using namespace mkbench;

namespace {

struct PlantedBug {
  std::string name, model, fits;  // fits: words; empty where no known bug fits
};
struct Found {
  Diagnosis diagnosis;
  int64_t wrong = 0;  // ids
};
#define BUG(name, model, fits, text) {#name, model, fits},
const std::vector<PlantedBug> kPlanted = {
#include "tests/plugins/bugs.inc"
};
#undef BUG

class WithoutLogits final : public WrappedEngine {
 public:
  using WrappedEngine::WrappedEngine;
  EngineCapabilities capabilities() const override {
    EngineCapabilities c = WrappedEngine::capabilities();
    c.logits = false;
    return c;
  }
};

// The truth, with all the time in the world: what is found depends on no clock.
class Patient final : public WrappedEngine {
 public:
  Patient(std::unique_ptr<Engine> truth, Engine& same)
      : WrappedEngine(std::move(truth)), truth_(same) {}
  std::optional<BugFits> explain(const BugQuestion& question) override {
    BugQuestion all = question;
    all.seconds = 1e9;
    return truth_.explain(all);
  }

 private:
  Engine& truth_;
};

// A checkpoint with its reference and its fp32 truth.
struct Subject {
  ModelWeights weights;
  GreedyReference reference;
  std::unique_ptr<Engine> truth;
};

const Subject& subject(const std::string& model) {
  static auto& subjects = *new std::map<std::string, Subject>;  // libtorch outlives no static
  Subject& s = subjects[model];
  if (!s.truth) {
    s.weights = load_model(resolve_model(model));
    s.reference = read_reference(find_references(data_dir(), model).at(0));
    auto truth = make_eager(s.weights, {.fp32 = true, .max_context = 1024, .threads = 1});
    Engine& same = *truth;
    s.truth = std::make_unique<Patient>(std::move(truth), same);
  }
  return s;
}

std::unique_ptr<Engine> with_bug(const PlantedBug& bug, bool logits) {
  setenv("NAIVE_BUG", bug.name.c_str(), 1);
  std::unique_ptr<Engine> engine =
      make_plugin(subject(bug.model).weights, {.path = MKBENCH_BUGGY, .max_context = 1024});
  if (logits) return engine;
  return std::make_unique<WithoutLogits>(std::move(engine));
}

// The rows of a reference as the judge makes them: teacher-forced ids, wrong
// where they differ.
std::vector<ParityRow> rows_of(Engine& engine, const GreedyReference& reference) {
  std::vector<ParityRow> rows;
  for (const ReferencePrompt& prompt : reference.prompts) {
    engine.reset();
    engine.prefill(prompt.ids);
    std::vector<int32_t> forced = {0};
    for (const ReferenceStep& step : prompt.steps) forced.push_back(step.token);
    const auto ids = engine.decode(static_cast<int>(prompt.steps.size()), forced.data());
    for (size_t t = 0; t < ids.size(); ++t) {
      ParityRow row;
      row.prompt = prompt.name;
      row.position = prompt.steps[t].position;
      const bool decided = prompt.steps[t].margin > reference.pairwise_d;
      if (decided && ids[t] != prompt.steps[t].token) row.verdict = StepVerdict::kWrong;
      rows.push_back(row);
    }
  }
  return rows;
}

// Diagnosed from the first wrong step or, with right ids and wrong logits, from
// the first step.
Found diagnosed(const PlantedBug& bug, bool logits) {
  const Subject& s = subject(bug.model);
  const std::unique_ptr<Engine> engine = with_bug(bug, logits);
  const std::vector<ParityRow> rows = rows_of(*engine, s.reference);
  const ReferencePrompt* failing = &s.reference.prompts.front();
  int step = 0;
  const auto is_wrong = [](const ParityRow& row) { return row.verdict == StepVerdict::kWrong; };
  const auto wrong = std::find_if(rows.begin(), rows.end(), is_wrong);
  if (wrong != rows.end()) {
    while (failing->name != wrong->prompt) ++failing;
    step = wrong->position - failing->steps.front().position;
  }
  double clock = 0;  // stands still: every bug is tried
  return {
      diagnose(*engine, *s.truth, replay_windows(s.reference, rows, *failing, step, logits),
               s.weights.config.shape.vocab, s.reference.pairwise_d, [&clock] { return clock; }),
      std::count_if(rows.begin(), rows.end(), is_wrong)};
}

bool has_word(const std::string& words, const std::string& word) {
  std::istringstream list(words);
  for (std::string one; list >> one;) {
    if (one == word) return true;
  }
  return false;
}

}  // namespace

// A sample that has bugs of RoPE, norms, attention, weights, the stream and the embedding, and one
// without a name.
TEST_CASE("a sample of planted bugs is named, by logits and by ids alone") {
  for (size_t i = 11; i < kPlanted.size(); i += 16) {
    for (const bool logits : {false, true}) {
      const PlantedBug& bug = kPlanted[i];
      const auto [d, wrong] = diagnosed(bug, logits);
      CAPTURE(bug.name, logits, wrong, d.text);
      if (!logits && wrong == 0) continue;  // passes by its ids
      CHECK((bug.fits.empty() ? d.names.size() != 1
                              : !d.names.empty() && has_word(bug.fits, d.names[0])));
    }
  }
}
