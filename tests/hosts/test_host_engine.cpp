// Engines in hosts behave as engines in this process do: the host twin called directly, through a
// server in this process, and through a process.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "harness/hosts/host_engine.h"
#include "references/base/error.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"
#include "tests/support/random_model.h"
#include "tests/support/twin_links.h"

namespace mkbench {
namespace {

using testing::both_links;
using testing::kContext;
using testing::kOdd;
using testing::kTimeout;
using testing::request;
using testing::tiny;
using testing::twin_program;

std::vector<int32_t> random_ids(int n, uint64_t seed, int vocab) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) {
    ids.push_back(static_cast<int32_t>(splitmix64(seed + static_cast<uint64_t>(i)) %
                                       static_cast<uint64_t>(vocab)));
  }
  return ids;
}

// All that a call of an engine shows: its result or its error, and the state behind it. Floats are
// kept as their bits.
template <typename Call>
std::vector<std::string> shown(Engine& e, const Call& call) {
  std::vector<std::string> lines;
  try {
    lines = call(e);
  } catch (const Error& error) {
    lines = {"error " + std::to_string(static_cast<int>(error.kind())), error.what()};
  }
  lines.push_back("position " + std::to_string(e.position()));
  lines.push_back("launches " + std::to_string(e.launch_count()));
  return lines;
}

std::string text(const std::vector<int32_t>& ids) {
  std::string line = "ids";
  for (const int32_t id : ids) line += " " + std::to_string(id);
  return line;
}
std::string text(const std::vector<float>& values) {
  std::string line;
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    char word[12];
    std::snprintf(word, sizeof word, " %08x", bits);
    line += word;
  }
  return line;
}
std::string text(const std::optional<std::vector<float>>& values) {
  return values ? text(*values) : "none";
}
std::string text(const Snapshot& s) {
  return std::to_string(s.position) + " " + std::to_string(s.pending) + " " +
         std::to_string(s.kv_checksum) + text(s.derived);
}

// A decode with its logits, into memory that holds a value of its own before.
std::vector<std::string> decode_with_logits(Engine& e, int n, int vocab, const int32_t* forced) {
  std::vector<float> logits(static_cast<size_t>(n) * static_cast<size_t>(vocab), 0.75F);
  const std::vector<int32_t> ids = e.decode(n, forced, logits.data());
  return {text(ids), text(logits)};
}

using Lines = std::vector<std::string>;
using Call = std::function<Lines(Engine&)>;

// Every function of an engine, good calls and bad ones, in an order that all engines survive.
std::vector<std::pair<std::string, Call>> all_calls(const ModelConfig& config) {
  const int vocab = config.shape.vocab, last = config.shape.layers - 1;
  const auto saved = std::make_shared<std::map<const Engine*, Snapshot>>();
  const auto nothing = [](const auto& work) {
    return [work](Engine& e) {
      work(e);
      return Lines{};
    };
  };
  const auto prefill = [=](std::vector<int32_t> ids) {
    return nothing([ids](Engine& e) { e.prefill(ids); });
  };
  const auto decode = [](int n) { return [n](Engine& e) { return Lines{text(e.decode(n))}; }; };
  const auto with_logits = [=](int n, std::vector<int32_t> forced = {}) {
    return [=](Engine& e) {
      return decode_with_logits(e, n, vocab, forced.empty() ? nullptr : forced.data());
    };
  };
  const auto set_pending = [=](int32_t id) {
    return nothing([id](Engine& e) { e.set_pending(id); });
  };
  const auto restore = [=](const std::function<void(Snapshot&)>& change) {
    return nothing([=](Engine& e) {
      Snapshot s = saved->at(&e);
      change(s);
      e.restore(s);
    });
  };
  const auto row = [](int layer, int position) {
    return [=](Engine& e) { return Lines{text(e.kv_row(layer, position))}; };
  };
  const auto hidden = [](int layer) {
    return [=](Engine& e) { return Lines{text(e.hidden(layer))}; };
  };
  return {
      {"no pending id", decode(1)},
      {"prefill", prefill(random_ids(20, 1, vocab))},
      {"prefill of one id", prefill({5})},
      {"prefill of none", prefill({})},
      {"prefill of a bad id", prefill({1, vocab})},
      {"decode", decode(5)},
      {"logits", with_logits(5)},
      {"forced",
       [=](Engine& e) { return Lines{text(e.decode(4, random_ids(4, 2, vocab).data()))}; }},
      {"forced with logits", with_logits(3, random_ids(3, 3, vocab))},
      {"a bad forced id", with_logits(3, {1, -1, 1})},
      {"no steps", decode(0)},
      {"fewer than none", decode(-1)},
      {"fewer than none with logits",
       [](Engine& e) {
         float logits = 0;
         return Lines{text(e.decode(-1, nullptr, &logits))};
       }},
      {"beyond the context", decode(kContext)},
      {"set_pending", set_pending(7)},
      {"a bad pending id", set_pending(-1)},
      {"after set_pending", with_logits(2)},
      {"save",
       [saved](Engine& e) {
         (*saved)[&e] = e.save();
         return Lines{text(saved->at(&e))};
       }},
      {"behind the snapshot", with_logits(3)},
      {"hidden of the first layer", hidden(0)},
      {"hidden of the last layer", hidden(last)},
      {"hidden of no layer", hidden(last + 1)},
      {"first row", row(0, 0)},
      {"last row", row(last, 30)},
      {"restore", restore([](Snapshot&) {})},
      {"again behind the snapshot", with_logits(3)},
      {"a tampered snapshot", restore([](Snapshot& s) { s.kv_checksum ^= 1; })},
      {"a snapshot from ahead", restore([](Snapshot& s) { s.position = kContext; })},
      {"poison", nothing([](Engine& e) { e.poison(); })},
      {"after poison", with_logits(2)},
      {"audit", nothing([](Engine& e) { e.audit(); })},
      {"skip_to", [](Engine& e) { return Lines{e.skip_to(50) ? "skips" : "cannot skip"}; }},
      {"reset", nothing([](Engine& e) { e.reset(); })},
      {"after reset", prefill({1, 2, 3})},
      {"a decode after reset", with_logits(4)},
  };
}

// Checks that an engine in each kind of host shows what the one in this process shows.
void check_equal(const ModelWeights& weights, const EngineRequest& asked) {
  for (const std::shared_ptr<HostLink>& link : both_links()) {
    INFO(link->facts().program << " " << link->facts().pid);
    const auto direct = twin_program().factory.make(asked, weights);
    HostEngine hosted(link, asked, weights, kTimeout);
    for (const auto& [name, call] : all_calls(weights.config)) {
      INFO(name);
      const Lines wanted = shown(*direct, call), got = shown(hosted, call);
      CHECK(got == wanted);
    }
  }
}

TEST_CASE("every function of an engine gives the same bits through a host") {
  check_equal(tiny(), request());
  // The list above has calls that work and calls that fail.
  const auto direct = twin_program().factory.make(request(), tiny());
  int failed = 0;
  for (const auto& [name, call] : all_calls(tiny().config))
    failed += shown(*direct, call).front().starts_with("error");
  CHECK(failed >= 10);
}

TEST_CASE("capabilities, settings, times and bytes come from the host") {
  for (const std::shared_ptr<HostLink>& link : both_links()) {
    const auto direct = twin_program().factory.make(request(), tiny());
    HostEngine hosted(link, request(), tiny(), kTimeout);
    const EngineCapabilities a = direct->capabilities(), b = hosted.capabilities();
    CHECK(b.name == a.name);
    CHECK(b.device == a.device);
    CHECK(b.max_context == a.max_context);
    CHECK(b.logits == a.logits);
    CHECK(b.one_launch == a.one_launch);
    CHECK(b.forced == a.forced);
    CHECK(b.snapshots == a.snapshots);
    CHECK(b.poison == a.poison);
    CHECK(b.counted == a.counted);
    CHECK(hosted.settings().empty());
    EngineRequest judge = request();
    judge.name = "eager";
    CHECK(HostEngine(link, judge, tiny(), kTimeout).settings() == "pinned=1");
    hosted.prefill(std::vector<int32_t>{1, 2, 3});
    const HostInterval prefilled = hosted.last_interval();
    CHECK(prefilled.end > prefilled.begin);
    hosted.decode(4, nullptr, nullptr);
    CHECK(hosted.last_interval().begin >= prefilled.end);
    CHECK(hosted.last_times().host_ms > 0);
    CHECK(hosted.last_times().host_ms <= hosted.last_interval().ms());
    CHECK(hosted.open_ms() > 0);
    CHECK_THAT(hosted.ablate(Ablation::kNoWaits), ContainsText("host-twin has no ablations"));
    CHECK(ask<Described>(*link, DescribeCall{request(), tiny().config}, {60, 60}).bytes ==
          twin_program().factory.bytes(request(), tiny().config));
  }
}

TEST_CASE("an engine that cannot be made, and a question that a host cannot answer, say so") {
  for (const std::shared_ptr<HostLink>& link : both_links()) {
    const auto message = [&](const std::function<void()>& work) -> std::string {
      try {
        work();
      } catch (const Error& error) {
        return std::to_string(static_cast<int>(error.kind())) + " " + error.what();
      }
      return "nothing";
    };
    EngineRequest unknown = request(), card = request();
    unknown.name = "typo";
    card.cuda = true;
    CHECK(message([&] { HostEngine(link, unknown, tiny(), kTimeout); }) ==
          message([&] { twin_program().factory.make(unknown, tiny()); }));
    CHECK(message([&] { HostEngine(link, card, tiny(), kTimeout); }) ==
          message([&] { twin_program().factory.make(card, tiny()); }));
    CHECK_THAT(message([&] {
                 link->call(PrefillCall{77, 1}, {60, 60});
               }),
               ContainsText("no engine has the number 77"));
    CHECK_THAT(message([&] {
                 link->call(TorchCall{}, {60, 60});
               }),
               ContainsText("twin-host has no call 'torch'"));
    CHECK(link->alive());
  }
}

TEST_CASE("weights that are only in memory reach a host, tied and untied") {
  for (const bool tied : {true, false}) {
    INFO("tied " << tied);
    const ModelWeights weights = testing::random_model(kOdd, {.tied = tied, .seed = 3});
    REQUIRE(weights.folder.empty());
    check_equal(weights, request());
  }
}

TEST_CASE("engines of several weights live in one host beside each other") {
  for (const std::shared_ptr<HostLink>& link : both_links()) {
    struct Both {
      std::unique_ptr<Engine> direct, hosted;
    };
    std::vector<Both> engines;
    for (const uint64_t seed : {1, 2}) {
      const ModelWeights weights = testing::random_model(kOdd, {.seed = seed});
      for (int i = 0; i < 2; ++i) {
        engines.push_back({twin_program().factory.make(request(), weights),
                           std::make_unique<HostEngine>(link, request(), weights, kTimeout)});
      }
    }
    // In turn, each with a sequence of its own.
    for (int round = 0; round < 3; ++round) {
      if (round == 2) engines.erase(engines.begin() + 1);  // closes one: the others go on
      for (size_t i = 0; i < engines.size(); ++i) {
        const Call call = [&](Engine& e) {
          e.prefill(random_ids(4, 10 * i + static_cast<uint64_t>(round), kOdd.vocab));
          return decode_with_logits(e, 3, kOdd.vocab, nullptr);
        };
        CHECK(shown(*engines[i].hosted, call) == shown(*engines[i].direct, call));
      }
    }
  }
}

TEST_CASE("a fault of each site acts in the host as it acts here") {
  const Call run = [](Engine& e) {
    Lines lines;
    for (int i = 0; i < 2; ++i) {
      e.reset();
      e.prefill(random_ids(20, 1, tiny().config.shape.vocab));
      for (const std::string& line : decode_with_logits(e, 6, tiny().config.shape.vocab, nullptr))
        lines.push_back(line);
    }
    return lines;
  };
  const auto sound = twin_program().factory.make(request(), tiny());
  const Lines right = shown(*sound, run);
  using F = PlantedFault;
  for (const F fault : {F::kRopeTheta, F::kTensorZero, F::kGelu, F::kNanLogit, F::kBypassed,
                        F::kStaleOutput, F::kStopsEarly, F::kRepeatsDiffer}) {
    INFO(planted_fault_name(fault));
    const auto direct = twin_program().factory.make(request(fault), tiny());
    const Lines wanted = shown(*direct, run);
    CHECK(wanted != right);
    for (const std::shared_ptr<HostLink>& link : both_links()) {
      HostEngine hosted(link, request(fault), tiny(), kTimeout);
      CHECK(shown(hosted, run) == wanted);
    }
  }
}

}  // namespace
}  // namespace mkbench
