// The parent's side of hosts, with a link that records what it is asked and answers as told.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/parent/hosts.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_link.h"
#include "tests/support/random_model.h"

namespace mkbench {
namespace {

using testing::FakeLink;

constexpr ModelShape kSmall{.hidden = 8,
                            .intermediate = 8,
                            .layers = 1,
                            .heads = 2,
                            .kv_heads = 1,
                            .head_dim = 4,
                            .vocab = 11};

const ModelWeights& small_weights() {
  static const ModelWeights weights = testing::random_model(kSmall);
  return weights;
}

struct Bench {
  std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
  HostEngine engine;
  explicit Bench(double timeout_s = 300)
      : engine(link, {.name = "ring", .max_context = 64}, small_weights(), timeout_s) {}

  void answer_decodes(double seconds) {
    const HostInterval interval{0, static_cast<int64_t>(seconds * 1e9)};
    link->answer = [interval](const ToHost& call) -> std::optional<FromHost> {
      if (const auto* decode = std::get_if<DecodeCall>(&call))
        return Decoded{{}, decode->n, interval, {}};
      if (std::holds_alternative<PrefillCall>(call)) return Prefilled{{}, interval};
      return std::nullopt;
    };
  }
  CallLimit decode(int n) {
    engine.decode(n, nullptr, nullptr);
    return link->asked.back().limit;
  }
  CallLimit prefill(size_t n) {
    engine.prefill(std::vector<int32_t>(n, 1));
    return link->asked.back().limit;
  }
};

TEST_CASE("a call's limit is ten times the slowest pace so far, between 20 s and --timeout") {
  for (const bool prefills : {false, true}) {
    Bench bench;
    const auto call = [&](int n) {
      return prefills ? bench.prefill(static_cast<size_t>(n)) : bench.decode(n);
    };
    bench.answer_decodes(1);
    CHECK(call(10).expected_s == 300);  // no pace is known yet
    CHECK(call(10).expected_s == 20);
    CHECK(call(50).expected_s == 50);  // 10 * 0.1 s * 50
    CHECK(call(50).longest_s == 300);
    CHECK(call(1000).expected_s == 300);
    bench.answer_decodes(0.1);
    CHECK(call(10).expected_s == 20);
    CHECK(call(50).expected_s == 50);  // the slowest counts, not the last
    bench.answer_decodes(4);
    call(10);
    CHECK(call(50).expected_s == 200);
  }
  Bench apart;  // prefill and decode each have a pace of their own
  apart.answer_decodes(4);
  apart.prefill(10);
  CHECK(apart.decode(10).expected_s == 300);
  Bench brief(5);
  brief.answer_decodes(1);
  CHECK(brief.decode(10).expected_s == 5);
  CHECK(brief.decode(10).expected_s == 5);
  CHECK(brief.decode(10).longest_s == 5);
}

TEST_CASE("opening may take two minutes, or --timeout where that is longer") {
  for (const double timeout : {5.0, 900.0}) {
    Bench bench(timeout);
    const CallLimit limit = bench.link->asked.front().limit;
    CHECK(limit.expected_s == 120);
    CHECK(limit.longest_s == std::max(120.0, timeout));
    const auto& open = std::get<OpenCall>(bench.link->asked.front().call);
    CHECK(open.request.name == "ring");
    CHECK(open.request.max_context == 64);
    CHECK(open.weights.sha256 == small_weights().sha256);
    CHECK(open.weights.name == "random");
    CHECK_FALSE(open.weights.folder.empty());  // weights in memory have been shared
    CHECK_FALSE(open.weights.stamp.empty());
  }
}

TEST_CASE("ids that were not asked for show as -1, and logits that were not written stay") {
  Bench bench;
  const auto decode = [&](int told, int n, float* logits) {
    bench.link->answer = [&bench, told, n, logits](const ToHost& call) -> std::optional<FromHost> {
      if (!std::holds_alternative<DecodeCall>(call)) return std::nullopt;
      const DecodeArena layout(n, logits != nullptr, kSmall.vocab);
      char* memory = bench.link->memory.at_least(layout.bytes);
      for (int i = 0; i < n; ++i)
        std::memcpy(memory + layout.ids + sizeof(int32_t) * static_cast<size_t>(i), &i, sizeof i);
      return Decoded{{}, told, {}, {}};
    };
    return bench.engine.decode(n, nullptr, logits);
  };
  using Ids = std::vector<int32_t>;
  CHECK(decode(3, 3, nullptr) == Ids{0, 1, 2});
  CHECK(decode(5, 3, nullptr) == Ids{0, 1, 2, -1, -1});
  CHECK(decode(2, 3, nullptr) == Ids{0, 1});
  CHECK(decode(-4, 3, nullptr).empty());
  // Forced ids lie where the host looks for them.
  std::vector<int32_t> seen(3);
  bench.link->answer = [&](const ToHost& call) -> std::optional<FromHost> {
    CHECK(std::get<DecodeCall>(call).forced);
    std::memcpy(seen.data(), bench.link->memory.at_least(1), 3 * sizeof(int32_t));
    return std::nullopt;
  };
  const Ids forced = {8, 9, 10};
  bench.engine.decode(3, forced.data(), nullptr);
  CHECK(seen == forced);
  std::vector<float> logits(2 * kSmall.vocab, 0.5F);
  decode(2, 2, logits.data());
  CHECK(logits == std::vector<float>(2 * kSmall.vocab, 0.5F));
}

TEST_CASE("a proxy keeps what its engine told last, and closes it") {
  const auto link = std::make_shared<FakeLink>();
  link->answer = [](const ToHost& call) -> std::optional<FromHost> {
    if (std::holds_alternative<OpenCall>(call)) return Opened{7, {}, "pinned", {3, 1}};
    if (std::holds_alternative<SetPendingCall>(call)) return Answered{{4, 2}};
    if (std::holds_alternative<RestoreCall>(call)) return Answered{{1, 3}};
    if (std::holds_alternative<SkipToCall>(call)) return Able{true, "", {50, 4}};
    if (std::holds_alternative<StateCall>(call)) return Floats{};
    return std::nullopt;
  };
  link->told = {12, 3, "o_proj"};
  {
    HostEngine engine(link, {}, small_weights(), 300);
    CHECK((engine.position() == 3 && engine.launch_count() == 1));
    CHECK(engine.settings() == "pinned");
    engine.set_pending(9);
    CHECK((engine.position() == 4 && engine.launch_count() == 2));
    engine.restore({});
    CHECK((engine.position() == 1 && engine.launch_count() == 3));
    CHECK(engine.skip_to(50));
    CHECK((engine.position() == 50 && engine.launch_count() == 4));
    CHECK_FALSE(engine.hidden(0).has_value());
    CHECK(engine.position() == 50);
    const Progress progress = engine.progress();
    CHECK(progress.position == 12);
    CHECK(progress.layer == 3);
    CHECK(progress.phase == "o_proj");
    CHECK(std::get<StateCall>(link->asked.back().call).engine == 7);
  }
  const auto* close = std::get_if<PlainCall>(&link->asked.back().call);
  REQUIRE(close != nullptr);
  CHECK((close->verb == Verb::kClose && close->engine == 7));
}

TEST_CASE("a dead host is not asked to close its engine, and one that dies of it is no error") {
  const auto link = std::make_shared<FakeLink>();
  { const HostEngine engine(link, {}, small_weights(), 300); }
  CHECK(link->count<PlainCall>() == 1);
  {
    const HostEngine engine(link, {}, small_weights(), 300);
    link->lives = false;
  }
  CHECK(link->count<PlainCall>() == 1);
  Bench failing;
  failing.link->answer = [](const ToHost&) -> std::optional<FromHost> {
    throw Error(ErrorKind::kHang, "stands still");
  };
}

// Hosts of fake links, by what they hold.
struct FakeHosts {
  std::map<std::string, std::vector<std::shared_ptr<FakeLink>>> links;
  std::map<std::string, HostKind> kinds;
  double timeout_s = 300;
  Hosts hosts{[this](HostKind kind, const std::string& holds) -> std::shared_ptr<HostLink> {
                kinds[holds] = kind;
                return links[holds].emplace_back(std::make_shared<FakeLink>());
              },
              timeout_s};
  std::unique_ptr<Engine> open(const std::string& name, bool cuda = false) {
    return hosts.open({.name = name, .max_context = 64, .cuda = cuda}, small_weights());
  }
  FakeLink& link(const std::string& holds) { return *links.at(holds).back(); }
};

TEST_CASE("each engine has the kind of host that its row names; the judge's runs share one") {
  FakeHosts fakes;
  for (const char* name : {"ring", "host-twin", "./somebody.so", "./engine.py", "eager",
                           "eager-fp32", "eager-head-fp32"})
    fakes.hosts.expect(name);
  const std::map<std::string, HostKind> wanted = {
      {"ring", HostKind::kCuda},          {"host-twin", HostKind::kCuda},
      {"./somebody.so", HostKind::kCuda}, {"./engine.py", HostKind::kPython},
      {"eager", HostKind::kTorch},        {"the judge's runs", HostKind::kTorch}};
  CHECK(fakes.kinds == wanted);
  for (const auto& [holds, links] : fakes.links) {
    CHECK(links.size() == 1);
    CHECK(links[0]->asked.empty());  // started, and not asked yet
  }
  fakes.link("ring").lives = false;
  fakes.hosts.expect("ring");
  CHECK(fakes.links["ring"].size() == 2);
  fakes.link("./engine.py").on_traceback({.message = "first", .traceback = "at 1"});
  fakes.link("./engine.py").on_traceback({.message = "last", .traceback = "at 2"});
  CHECK(fakes.hosts.tracebacks().size() == 1);
  CHECK(fakes.hosts.tracebacks().at("./engine.py").message == "last");
}

TEST_CASE("a turn stops every other host, and flushes in the engine's own") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring");
  const auto eager = fakes.open("eager");
  CHECK_FALSE(fakes.links.contains("the card"));
  auto truth = fakes.open("eager-fp32");
  const std::weak_ptr<FakeLink> runs = fakes.links.at("the judge's runs")[0];
  fakes.hosts.take_turn(*ring, FlushCall{.cuda = true, .gpu = 3});
  CHECK(fakes.link("ring").stops == 0);
  CHECK(fakes.link("eager").stops == 1);
  CHECK(fakes.link("the judge's runs").stops == 1);
  CHECK(std::get<FlushCall>(fakes.link("ring").asked.back().call).gpu == 3);
  CHECK(fakes.link("eager").count<FlushCall>() == 0);
  CHECK(fakes.link("ring").count<FinishCall>() == 1);  // what prepared the turn is over
  fakes.hosts.end_turn(*ring, {});
  CHECK(fakes.link("ring").count<FinishCall>() == 2);
  CHECK_FALSE(fakes.links.contains("the card"));  // on a CPU there is no card to try

  truth.reset();
  fakes.links.clear();  // only the hosts themselves hold their links now
  fakes.hosts.take_turn(*ring, {});
  CHECK_FALSE(runs.expired());
  fakes.hosts.end_judges_runs();
  CHECK(runs.expired());
}

TEST_CASE("only the judge's runs are ended before timing; the host of the card is stopped") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring");
  fakes.hosts.about_card();
  fakes.hosts.end_judges_runs();
  fakes.hosts.take_turn(*ring, {});
  CHECK(fakes.link("the card").stops == 1);
  CHECK(fakes.link("the card").count<FlushCall>() == 0);
  fakes.hosts.about_card();
  CHECK(fakes.links["the card"].size() == 1);
}

TEST_CASE(
    "work that the engine's own host does not show is found by a flush from another process") {
  for (const bool busy : {false, true}) {
    FakeHosts fakes;
    const auto ring = fakes.open("ring", true);
    FakeLink& card = fakes.link("the card");
    CHECK(card.count<FlushCall>() > 1);  // how long it takes on the quiet card
    card.flush_ms = [&] { return busy && fakes.link("ring").alive() ? 100 : 0.2; };
    const auto end = [&] { fakes.hosts.end_turn(*ring, FlushCall{.cuda = true, .gpu = 0}); };
    if (busy) {
      CHECK_THROWS_WITH(
          end(), ContainsText("5 of 5 flushes of L2 by another process waited and took up to 1"));
      CHECK_FALSE(fakes.link("ring").alive());  // what it has left ends with it
      fakes.hosts.expect("ring");
      CHECK(fakes.links["ring"].size() == 2);
    } else {
      CHECK_NOTHROW(end());
      CHECK(fakes.link("ring").alive());
    }
  }
}

TEST_CASE("work that stays when the engine's host has ended is another program's") {
  FakeHosts fakes{.links = {}, .kinds = {}, .timeout_s = 0.2};
  const auto ring = fakes.open("ring", true);
  int flushes = 0;
  // Time slices let some pass.
  fakes.link("the card").flush_ms = [&] { return ++flushes % 5 > 0 ? 20 : 0.2; };
  CHECK_THROWS_WITH(fakes.hosts.end_turn(*ring, FlushCall{.cuda = true, .gpu = 0}),
                    ContainsText("another program uses the card") && ContainsText("0.2 s after"));
}

TEST_CASE("what the context of a process takes is found by its first flush") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  int64_t free = 1000;
  const auto free_bytes = [&] { return free; };
  const auto bytes = [&](const char* name) {
    return fakes.hosts.context_bytes(name, flush, free_bytes);
  };
  for (const auto& [name, taken] : {std::pair{"ring", 100}, std::pair{"eager", 250}}) {
    fakes.hosts.expect(name);
    fakes.link(name).answer = [&free, taken = taken](const ToHost&) -> std::optional<FromHost> {
      free -= taken;
      return std::nullopt;
    };
  }
  CHECK(bytes("ring") == 100);
  CHECK(bytes("ring") == 100);
  CHECK(fakes.link("ring").count<FlushCall>() == 1);
  CHECK(fakes.hosts.held_context_bytes() == 100);
  CHECK(bytes("eager") == 250);
  CHECK(fakes.hosts.held_context_bytes() == 350);
  // A process of Python flushes nothing before it has an engine, and holds nothing before.
  CHECK(bytes("./engine.py") == 250);
  CHECK(fakes.hosts.held_context_bytes() == 350);
  {
    const auto engine = fakes.open("./engine.py", true);
    CHECK(fakes.link("./engine.py").count<FlushCall>() == 0);
    CHECK(fakes.hosts.held_context_bytes() == 600);
  }
  fakes.link("./engine.py").end(ErrorKind::kCuda, "gone");
  fakes.link("ring").end(ErrorKind::kCuda, "gone");
  CHECK(fakes.hosts.held_context_bytes() == 250);
  CHECK(fakes.hosts.context_bytes("ring", {}, free_bytes) == 0);  // on a CPU
  fakes.hosts.hold_one(true);
  CHECK(bytes("eager") == 0);
}

TEST_CASE(
    "work that a second look does not find costs a turn its time, and an engine that goes on") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  const auto ring = fakes.open("ring", true), plain = fakes.open("plain", true);
  int slow = 0;
  fakes.link("the card").flush_ms = [&] { return slow-- > 0 ? 30 : 0.2; };
  const auto doubt = [&](Engine& engine, int slow_flushes) {
    slow = slow_flushes;
    return fakes.hosts.end_turn(engine, flush);
  };
  CHECK(doubt(*ring, 2).empty());  // less than half of five
  for (int i = 0; i < 3; ++i) {
    CHECK_THAT(doubt(*ring, 5), ContainsText("5 of 5 flushes") && ContainsText("up to 30.00 ms"));
    CHECK_THAT(doubt(*ring, 3), ContainsText("3 of 5 flushes"));
    CHECK(doubt(*ring, 0).empty());
  }
  for (int i = 0; i < 2; ++i) CHECK_FALSE(doubt(*plain, 5).empty());
  CHECK_FALSE(doubt(*ring, 5).empty());  // each engine's turns are counted for themselves
  CHECK_THROWS_WITH(doubt(*plain, 5), ContainsText("left work on its device"));
  CHECK_FALSE(fakes.link("plain").alive());
  CHECK(fakes.link("ring").alive());
}

TEST_CASE("work that appears between two turns is blamed on the engine that ran last") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  const auto ring = fakes.open("ring", true), plain = fakes.open("plain", true);
  int slow = 0;  // flushes of the card that take long
  fakes.link("the card").flush_ms = [&] { return slow-- > 0 ? 30 : 0.2; };
  const auto turn = [&](Engine& engine) {
    fakes.hosts.take_turn(engine, flush);
    fakes.hosts.end_turn(engine, flush);
  };
  turn(*ring);
  const int tries = fakes.link("the card").count<FlushCall>();
  fakes.hosts.end_turn(*ring, FlushCall{.cuda = false, .gpu = 0});
  CHECK(fakes.link("the card").count<FlushCall>() == tries);  // a turn on the CPU
  slow = 2;                                                   // less than half of five
  turn(*plain);
  CHECK(fakes.link("ring").alive());
  FakeLink& guilty = fakes.link("plain");
  slow = 5;  // gone at the second look
  turn(*ring);
  turn(*plain);
  CHECK(guilty.alive());
  slow = 10;
  CHECK_NOTHROW(turn(*ring));  // the card is quiet again once plain's host has ended
  CHECK_FALSE(guilty.alive());
  CHECK(guilty.end_kind == ErrorKind::kIntegrity);
  CHECK_THAT(guilty.end_reason, ContainsText("plain left work on its device"));
  CHECK(fakes.link("ring").alive());
}

TEST_CASE("where one process holds engines, an idle host ends before another one opens") {
  FakeHosts fakes;
  fakes.hosts.hold_one(true);
  fakes.hosts.expect("ring");
  CHECK(fakes.links.empty());  // nothing starts before its turn
  auto truth = fakes.open("eager-fp32");
  const auto eager = fakes.open("eager");  // the judge and its other runs share a host
  CHECK(fakes.links.size() == 1);
  CHECK(fakes.links["eager"].size() == 1);
  auto plain = fakes.open("plain");
  const std::weak_ptr<FakeLink> host = fakes.links["plain"][0];
  fakes.links.clear();
  plain.reset();
  plain = fakes.open("plain");  // its own host is kept
  CHECK(fakes.links.empty());
  plain.reset();
  const auto ring = fakes.open("ring");
  CHECK(host.expired());
  CHECK(fakes.links.size() == 1);  // the judge's host still holds engines and was kept
  const auto again = fakes.open("eager-fp32");
  CHECK_FALSE(fakes.links.contains("eager"));  // it took the new engine too
}

TEST_CASE("a host that cannot be stopped costs the engine whose turn it is nothing") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring"), plain = fakes.open("plain"), eager = fakes.open("eager");
  fakes.link("eager").stopping = [&fakes] {
    fakes.link("eager").lives = false;
    throw Error(ErrorKind::kHang, "cannot be stopped");
  };
  CHECK_NOTHROW(fakes.hosts.take_turn(*ring, {}));
  CHECK(fakes.link("plain").stops == 1);
  CHECK(fakes.link("ring").count<FlushCall>() == 1);
}

TEST_CASE("what ends a turn too late, or not at all, has left work behind") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring");
  const auto failing = [&](ErrorKind kind) {
    fakes.link("ring").answer = [kind](const ToHost& call) -> std::optional<FromHost> {
      if (std::holds_alternative<FinishCall>(call)) throw Error(kind, "why");
      return std::nullopt;
    };
    try {
      fakes.hosts.end_turn(*ring, {});
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kRuntime;
  };
  CHECK(failing(ErrorKind::kHang) == ErrorKind::kIntegrity);
  CHECK_FALSE(fakes.link("ring").alive());
  CHECK(failing(ErrorKind::kTimeout) == ErrorKind::kIntegrity);
  CHECK(failing(ErrorKind::kCuda) == ErrorKind::kCuda);  // a fault of its own kind
  CHECK(fakes.link("ring").asked.back().limit.longest_s == 5);

  // A call returns once its work is done: what takes another 0.25 s was not waited for.
  fakes.link("ring").answer = [](const ToHost& call) -> std::optional<FromHost> {
    if (std::holds_alternative<FinishCall>(call)) usleep(300'000);
    return std::nullopt;
  };
  CHECK_THROWS_WITH(fakes.hosts.end_turn(*ring, {}), ContainsText("it was busy 0."));
}

TEST_CASE("an answer of another kind is an error that names the one wanted") {
  FakeLink link;
  CHECK_THROWS_WITH(ask<Saved>(link, PingCall{}, {}), ContainsText("wanted 'saved'"));
}

}  // namespace
}  // namespace mkbench
