// A server with a scripted engine: what each call asks of the engine, the program and the arena; and the
// loop around it.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "harness/host/serve.h"
#include "harness/host/server.h"
#include "harness/wire/channel.h"
#include "references/base/error.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/scripted_engine.h"

namespace mkbench::testing {
namespace {

std::vector<std::string> done;          // what engines and the program did, in order
std::function<void(int)> at_decode;     // Script::before of the engines
std::vector<const void*> weights_read;  // of each engine that was made
bool counted = true;                    // capability of engines that are opened

Script told() {
  Script script;
  script.before = [](int decode) {
    if (at_decode) at_decode(decode);
  };
  script.called = [](const char* call) { done.emplace_back(call); };
  return script;
}

class ToldEngine final : public ScriptedEngine {
 public:
  ToldEngine() : ScriptedEngine(told()) {}
  EngineCapabilities capabilities() const override {
    EngineCapabilities can = ScriptedEngine::capabilities();
    can.counted = counted;
    return can;
  }
  void audit() override { done.emplace_back("audit"); }
  Timeline timeline() override {
    Timeline timeline;
    for (int step = 0; step < 4; ++step) timeline.spans.push_back({step, step + 1, 0, -1, step});
    return timeline;
  }
};

constexpr EngineMaker kMaker{
    .name = "told",
    .make = [](const ModelWeights& weights, const EngineRequest&) -> std::unique_ptr<Engine> {
      weights_read.push_back(weights.embed_tokens.data);
      return std::make_unique<ToldEngine>();
    },
    .bytes = [](const ModelConfig&, const EngineRequest&) { return int64_t{1}; },
    .ablate = [](Engine&, Ablation) { done.emplace_back("ablate"); }};

HostProgram with_all() {
  return {
      .name = "all",
      .factory = EngineFactory({&kMaker}),
      .finish = [] { done.emplace_back("finish"); },
      .flush = [](const FlushCall& call) { done.push_back("flush " + std::to_string(call.gpu)); },
      .trace =
          [](const std::function<void()>& work) {
            work();
            return LaunchTrace{.kernels = 7};
          },
      .card =
          [](const CardCall&) {
            return CardFacts{{}, "90", {}, {}};
          },
      .torch = [](const TorchCall&) { return TorchTold{"2", {}, {}, {}, {}, {}}; },
      .tune =
          [](const TuneCall&, const std::function<void(const std::string&)>& say) {
            say("half");
            return Tuned{};
          },
      .device_bytes = [] { return int64_t{77}; }};
}

struct Served {
  HostProgram program;
  Arena arena{};
  std::vector<FromHost> told{};
  Server server{program, arena, [this](const FromHost& one) { told.push_back(one); }};

  template <typename Answer>
  Answer ask(const ToHost& call) {
    const FromHost answer = server.answer(call);
    if (const auto* failed = std::get_if<Failed>(&answer)) UNSCOPED_INFO(failed->message);
    REQUIRE(std::holds_alternative<Answer>(answer));
    return std::get<Answer>(answer);
  }
  int open(bool cuda = false) {
    static const ModelWeights tiny = load_model(resolve_model("tiny"));
    const WeightsPlace place{tiny.folder, tiny.name, tiny.lagset, tiny.sha256,
                             snapshot_stamp(tiny.folder)};
    return ask<Opened>(OpenCall{{.name = "told", .max_context = 9, .cuda = cuda}, place}).engine;
  }
  void prefill(int engine, const std::vector<int32_t>& ids) {
    std::memcpy(arena.at_least(4 * ids.size()), ids.data(), 4 * ids.size());
    ask<Prefilled>(PrefillCall{engine, static_cast<int>(ids.size())});
  }
  Ids decode(const DecodeCall& call) {
    const auto count = static_cast<size_t>(ask<Decoded>(call).ids);
    const DecodeArena layout(call.n, call.logits, kTiny.vocab);
    Ids ids(count);
    std::memcpy(ids.data(), arena.at_least(layout.bytes) + layout.ids, 4 * count);
    return ids;
  }
  std::vector<std::string> does(const std::function<void()>& work) {
    done.clear();
    work();
    return done;
  }
};

using Done = std::vector<std::string>;

TEST_CASE("a call's time ends with the work on the card, for an engine on a card") {
  Served served{with_all()};
  for (const bool cuda : {true, false}) {
    const int engine = served.open(cuda);
    const Done wanted =
        cuda ? Done{"prefill", "finish", "decode", "finish"} : Done{"prefill", "decode"};
    CHECK(served.does([&] {
      served.prefill(engine, {1, 2});
      served.decode({.engine = engine, .n = 3});
    }) == wanted);
    for (const auto& [verb, name] :
         {std::pair(Verb::kReset, "reset"), {Verb::kPoison, "poison"}, {Verb::kAudit, "audit"}})
      CHECK(served.does([&] { served.ask<Answered>(PlainCall{engine, verb}); }) == Done{name});
    // Only a reset asks how full the card is.
    const auto card_after = [&](Verb verb) {
      return served.ask<Answered>(PlainCall{engine, verb}).state.device_bytes;
    };
    CHECK((card_after(Verb::kReset) == (cuda ? 77 : 0) && card_after(Verb::kPoison) == 0));
    CHECK(served.does([&] { served.ask<Able>(AblateCall{engine}); }) == Done{"ablate"});
  }
  CHECK(served.does([&] { served.ask<Answered>(FinishCall{}); }) == Done{"finish"});
  CHECK(served.does([&] { served.ask<Flushed>(FlushCall{.gpu = 5}); }) == Done{"flush 5"});
}

TEST_CASE("a program answers what it offers, and names what it does not") {
  Served all{with_all()}, bare{{"bare", EngineFactory({&kMaker}), {}, {}, {}, {}, {}, {}}};
  CHECK(all.ask<CardFacts>(CardCall{}).architectures == "90");
  CHECK(all.ask<TorchTold>(TorchCall{}).version == "2");
  all.ask<Tuned>(TuneCall{});
  REQUIRE(all.told.size() == 1);
  CHECK(std::get<StageTold>(all.told[0]).stage == "half");
  for (const ToHost& call : {ToHost(CardCall{}), ToHost(TorchCall{}), ToHost(TuneCall{})})
    CHECK_THAT(bare.ask<Failed>(call).message, ContainsText("bare has no call '"));
  CHECK(bare.does([&] {
    bare.ask<Answered>(FinishCall{});
    bare.ask<Flushed>(FlushCall{});
  }) == Done{});
  for (Served* served : {&all, &bare}) {
    const int engine = served->open(/*cuda=*/true);
    served->prefill(engine, {1, 2});
    const LaunchTrace trace = served->ask<Traced>(TraceCall{engine, 3}).trace;
    CHECK(trace.problem == (served == &all ? "" : "bare has no launch recorder"));
    CHECK(trace.tokens == (served == &all ? 3 : 0));
  }
}

TEST_CASE("tokens in ranges of their own are those of one decode") {
  Served served{with_all()};
  const RangeLabel one_by_one{
      .message = "m", .category = "c", .opens = "o", .closes = true, .tokens = true};
  for (const std::optional<int32_t> late : {std::optional<int32_t>(), std::optional(9)}) {
    std::vector<Ids> found;
    for (const bool tokens : {false, true}) {
      const int engine = served.open();
      served.prefill(engine, {1, 2});
      RangeLabel label = one_by_one;
      label.tokens = tokens;
      const DecodeCall call{.engine = engine, .n = 3, .late = late, .label = label};
      CHECK(served.does([&] { found.push_back(served.decode(call)); }) ==
            Done(tokens ? 3 : 1, "decode"));
    }
    CHECK(found[0].size() == 3);
    CHECK(found[0] == found[1]);
  }
  const int engine = served.open();
  served.prefill(engine, {1, 2});
  for (const bool forced : {true, false}) {
    const Failed failed = served.ask<Failed>(DecodeCall{
        .engine = engine, .n = 2, .forced = forced, .logits = !forced, .label = one_by_one});
    CHECK(failed.kind == ErrorKind::kBadInput);
  }
}

TEST_CASE("whatever an engine throws is an answer with its name, and a hang is told of the call") {
  Served served{with_all()};
  CHECK(served.server.hang().launches == HangTold{}.launches);
  weights_read.clear();
  const int engine = served.open();
  served.prefill(engine, {1, 2, 3});
  const auto thrown = [&](const std::function<void(int)>& work) {
    at_decode = work;
    const Failed failed = served.ask<Failed>(DecodeCall{.engine = engine, .n = 1});
    at_decode = nullptr;
    return std::pair(failed.kind, failed.message);
  };
  CHECK(thrown([](int) { throw Error(ErrorKind::kHang, "still"); }) ==
        std::pair(ErrorKind::kHang, std::string("still")));
  CHECK(thrown([](int) { throw std::bad_alloc(); }) ==
        std::pair(ErrorKind::kEnvUnfit, std::string("told: out of host memory")));
  CHECK(thrown([](int) { throw std::runtime_error("odd"); }) ==
        std::pair(ErrorKind::kRuntime, std::string("told: odd")));
  served.decode({.engine = engine, .n = 2});
  served.decode({.engine = engine, .n = 2});
  CHECK(served.server.hang().launches == 1);  // before the second of two
  CHECK(served.server.hang().decodes == -1);
  CHECK(served.server.hang().position == 6);
  CHECK(served.server.progress().position == 6);
  counted = false;
  const int other = served.open();
  counted = true;
  CHECK(weights_read.size() == 2);
  CHECK(weights_read[0] == weights_read[1]);  // loaded once for both
  served.ask<Answered>(PlainCall{engine, Verb::kClose});
  CHECK(served.server.progress().position == ProgressTold{}.position);
  CHECK(served.ask<Failed>(RewindCall{engine, 1}).message == "no engine has the number 1");
  served.prefill(other, {1});
  CHECK(served.server.hang().launches == -1);
  CHECK(served.server.hang().decodes == 0);
  served.ask<Answered>(PlainCall{other, Verb::kClose});
  served.open();
  CHECK(weights_read.back() != nullptr);
}

// The next frame from the other end; nothing once that is closed.
std::optional<FromHost> next_from(FrameReader& reader) {
  FrameReader::Got got = FrameReader::Got::kNothing;
  while (got == FrameReader::Got::kNothing) got = reader.read(-1);
  if (got != FrameReader::Got::kFrame) return std::nullopt;
  return answer_from_json(nlohmann::json::parse(reader.frame()));
}

TEST_CASE(
    "a host answers whatever comes on either channel, until its parent closes that of calls") {
  int calls[2], progress[2];
  REQUIRE((socketpair(AF_UNIX, SOCK_STREAM, 0, calls) == 0 &&
           socketpair(AF_UNIX, SOCK_STREAM, 0, progress) == 0));
  const pid_t host = fork();
  if (host == 0) {
    alarm(30);  // the test fails, and does not hang, where no answer comes
    // Above the descriptors of channel.h, because one of those may be in use here.
    const int theirs[] = {fcntl(calls[1], F_DUPFD, 20), fcntl(progress[1], F_DUPFD, 20),
                          fcntl(Arena().fd(), F_DUPFD, 20), fcntl(STDERR_FILENO, F_DUPFD, 20)};
    for (const int at : {0, 1, 2, 3}) dup2(theirs[at], kCallFd + at);
    _exit(serve(with_all()));
  }
  close(calls[1]);
  close(progress[1]);
  FrameReader answers(calls[0]), places(progress[0]);
  CHECK(std::get<Hello>(next_from(answers).value()).program == "all");
  REQUIRE(write(progress[0], "?!", 2) == 2);
  CHECK(std::holds_alternative<ProgressTold>(next_from(places).value()));
  CHECK(std::holds_alternative<HangTold>(next_from(places).value()));
  for (const std::string text : {"{ no JSON", R"({"type": "no such call"})"}) {
    const auto size = static_cast<uint32_t>(text.size());
    REQUIRE((write_all(calls[0], &size, sizeof size) && write_all(calls[0], text.data(), size)));
    const Failed failed = std::get<Failed>(next_from(answers).value());
    CHECK(failed.message.starts_with("call not understood: "));
  }
  send_frame(calls[0], to_json(ToHost(FinishCall{})));
  CHECK(std::holds_alternative<Answered>(next_from(answers).value()));
  shutdown(calls[0], SHUT_WR);
  CHECK_FALSE(next_from(answers));
  int status = -1;
  REQUIRE(waitpid(host, &status, 0) == host);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
  close(calls[0]);
  close(progress[0]);
}

TEST_CASE("spans lie in the arena, as many as there is room for") {
  Served served{with_all()};
  const int engine = served.open();
  for (const auto& [room, spans] : {std::pair(-1, 0), {0, 0}, {2, 2}, {4, 4}, {5, 4}}) {
    const TimelineTold told = served.ask<TimelineTold>(TimelineCall{engine, room});
    CHECK((told.spans == spans && told.timeline.spans.empty()));
    const auto* found = reinterpret_cast<const TimelineSpan*>(served.arena.at_least(1000));
    for (int i = 0; i < spans; ++i) CHECK((found[i].t0_ns == i && found[i].step == i));
  }
}

}  // namespace
}  // namespace mkbench::testing
