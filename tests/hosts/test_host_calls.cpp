// An engine in a host as the parent calls it, with a link that records what it is asked and answers as told.
#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "harness/hosts/host_engine.h"
#include "harness/hosts/hosts.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_link.h"
#include "tests/support/micro_model.h"
#include "tests/support/random_model.h"

namespace mkbench {
namespace {

using testing::FakeLink;
using testing::kOdd;
using testing::odd_weights;

struct Bench {
  std::shared_ptr<FakeLink> link = std::make_shared<FakeLink>();
  HostEngine engine;
  explicit Bench(double timeout_s = 300)
      : engine(link, {.name = "ring", .max_context = 64}, odd_weights(), timeout_s) {}

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

TEST_CASE("what a step reads is asked once a folder; only a hang ends more than the answer") {
  const testing::TemporaryFolder place;
  testing::write_file(place.path() / "config.json", "{}");
  const auto link = std::make_shared<FakeLink>();
  Hosts hosts([&](HostKind, const std::string&) { return link; }, 300);
  FakeLink& truth = *link;
  std::optional<Error> error;
  truth.answer = [&](const ToHost& call) -> std::optional<FromHost> {
    if (!std::holds_alternative<DescribeCall>(call)) return std::nullopt;
    if (error) throw Error(*error);
    return Described{0, {.fixed = 7}};
  };
  const auto reads = [&] { return hosts.step_reads("hf-fp32", place.path()); };
  CHECK(reads().fixed == 7);
  CHECK(reads().fixed == 7);
  CHECK(truth.count<DescribeCall>() == 1);
  CHECK(std::get<DescribeCall>(truth.asked.back().call).folder == place.path());
  CHECK(std::get<DescribeCall>(truth.asked.back().call).request.precision ==
        EngineRequest::Precision::kFp32);
  error.emplace(ErrorKind::kRuntime, "why");
  testing::write_file(place.path() / "config.json", "{ }");
  CHECK(reads().unknown == "why");
  CHECK_FALSE(reads().known());
  CHECK(truth.count<DescribeCall>() == 2);
  for (const ErrorKind kind : {ErrorKind::kHang, ErrorKind::kTimeout}) {
    error.emplace(kind, "why");
    testing::write_file(place.path() / "config.json", kind == ErrorKind::kHang ? "{  }" : "{   }");
    CHECK_THROWS_AS(reads(), Error);
  }
}

TEST_CASE("an engine whose card fills up from reset to reset is told so") {
  Bench bench;
  int64_t taken = 0;
  bench.link->answer = [&](const ToHost& call) -> std::optional<FromHost> {
    const auto* plain = std::get_if<PlainCall>(&call);
    if (plain == nullptr || plain->verb != Verb::kReset) return std::nullopt;
    return Answered{{.position = 0, .launches = 0, .device_bytes = taken += 1 << 20}};
  };
  for (int i = 0; i < Holdings::kSequences; ++i) bench.engine.reset();
  try {
    bench.engine.reset();
    FAIL("nothing was said");
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kIntegrity);
    CHECK_THAT(error.what(), ContainsText("engine ring: its calls leave memory behind: 1.05 MB"));
  }
}

TEST_CASE("a call's limit is ten times the slowest pace so far, between 20 s and --timeout") {
  for (const bool prefills : {false, true}) {
    Bench bench;
    const auto call = [&](int n) {
      return prefills ? bench.prefill(static_cast<size_t>(n)) : bench.decode(n);
    };
    bench.answer_decodes(1);
    CHECK(call(10).expected_s == 20);  // no pace is known yet
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
  CHECK(apart.decode(10).expected_s == 20);
  Bench brief(5);
  brief.answer_decodes(1);
  CHECK(brief.decode(10).expected_s == 5);
  CHECK(brief.decode(10).expected_s == 5);
  CHECK(brief.decode(10).longest_s == 5);
}

TEST_CASE("before a pace is known, a call's limit is a second for 10 GB of weights") {
  const ModelConfig& config = odd_weights().config;
  const double bytes = 2 * static_cast<double>(config.shape.parameters(config.tie_word_embeddings));
  const auto units = static_cast<int>(25 * 1e10 / bytes);
  Bench bench;
  const CallLimit first = bench.prefill(static_cast<size_t>(units));
  CHECK(first.expected_s == Approx(25).epsilon(1e-4));
  CHECK((first.longest_s == 300 && first.compiling == Compiling::kFirstCall));
  const CallLimit later = bench.decode(1);  // of a pace of its own, which is not known yet
  CHECK((later.expected_s == 20 && later.compiling == Compiling::kLaterCall));
  CHECK(bench.decode(1).compiling == Compiling::kNo);
  bench.engine.label_next({}, true);  // a profiler makes calls slower than their pace
  CHECK(bench.decode(1).expected_s == 300);
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
    CHECK(open.weights.sha256 == odd_weights().sha256);
    CHECK(open.weights.name == "random");
    CHECK_FALSE(open.weights.folder.empty());  // weights in memory have been shared
    CHECK_FALSE(open.weights.stamp.empty());
  }
}

TEST_CASE("compiling or importing may take 15 minutes; a Python engine with a row keeps its name") {
  for (const std::string name : {"hf", "./hf.py", "compiled"}) {
    auto link = std::make_shared<FakeLink>();
    link->answer = [](const ToHost& call) -> std::optional<FromHost> {
      if (!std::holds_alternative<OpenCall>(call)) return std::nullopt;
      return Opened{7, {.name = "hf@hf.py", .device = {}}, "", {}};
    };
    const HostEngine engine(link, {.name = name, .max_context = 64}, odd_weights(), 5);
    CHECK(link->asked.front().limit.expected_s == 900);
    const std::string& asked = std::get<OpenCall>(link->asked.front().call).request.name;
    CHECK(asked == (name == "hf" ? (data_root() / "baselines/hf_decoder.py").string() : name));
    CHECK(engine.capabilities().name == (name == "hf" ? "hf" : "hf@hf.py"));
    CHECK(engine.name() == name);
  }
}

TEST_CASE("ids that were not asked for show as -1, and logits that were not written stay") {
  Bench bench;
  const auto decode = [&](int told, int n, float* logits) {
    bench.link->answer = [&bench, told, n, logits](const ToHost& call) -> std::optional<FromHost> {
      if (!std::holds_alternative<DecodeCall>(call)) return std::nullopt;
      const DecodeArena layout(n, logits != nullptr, kOdd.vocab);
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
  std::vector<float> logits(2 * kOdd.vocab, 0.5F);
  decode(2, 2, logits.data());
  CHECK(logits == std::vector<float>(2 * kOdd.vocab, 0.5F));
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
    HostEngine engine(link, {}, odd_weights(), 300);
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
  { const HostEngine engine(link, {}, odd_weights(), 300); }
  CHECK(link->count<PlainCall>() == 1);
  {
    const HostEngine engine(link, {}, odd_weights(), 300);
    link->lives = false;
  }
  CHECK(link->count<PlainCall>() == 1);
  Bench failing;
  failing.link->answer = [](const ToHost&) -> std::optional<FromHost> {
    throw Error(ErrorKind::kHang, "stands still");
  };
}

TEST_CASE("an answer of another kind is an error that names the one wanted") {
  FakeLink link;
  CHECK_THROWS_WITH(ask<Saved>(link, PingCall{}, {}), ContainsText("wanted 'saved'"));
}

}  // namespace
}  // namespace mkbench
