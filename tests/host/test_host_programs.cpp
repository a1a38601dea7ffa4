// The hosts that are shipped, as processes: they belong to this build and do what their parts do.
#include <sys/wait.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "harness/device/device_info.h"
#include "harness/host/cuda_program.h"
#include "harness/host/factory.h"
#include "harness/host/makers.h"
#include "harness/hosts/host_engine.h"
#include "harness/hosts/host_process.h"
#include "harness/wire/build_id.h"
#include "references/greedy_reference.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

constexpr CallLimit kAmple{120, 120};

std::shared_ptr<HostProcess> start(const std::string& program) {
  return std::make_shared<HostProcess>(
      HostCommand{.argv = {program}, .build = build_id(), .holds = program});
}

const ModelWeights& tiny() {
  static const ModelWeights weights = load_model(resolve_model("tiny"));
  return weights;
}

struct Answer {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  bool operator==(const Answer&) const = default;
};

Answer answer_of(Engine& engine, const std::vector<int32_t>& prompt, int n) {
  Answer answer;
  answer.logits.resize(static_cast<size_t>(n) * static_cast<size_t>(tiny().config.shape.vocab));
  engine.prefill(prompt);
  answer.ids = engine.decode(n, nullptr, answer.logits.data());
  return answer;
}

TEST_CASE("engines of both programs decode what HF decoded, host-twin to the bit as it does here") {
  const auto files = find_references(data_dir(), "tiny");
  REQUIRE_FALSE(files.empty());
  const GreedyReference reference = read_reference(files[0]);
  const ReferencePrompt& prompt = reference.prompts.front();
  REQUIRE(prompt.set == "strict");
  const int n = static_cast<int>(prompt.steps.size());
  std::vector<int32_t> wanted;
  for (const ReferenceStep& step : prompt.steps) wanted.push_back(step.token);

  EngineRequest request{.name = "host-twin", .max_context = 256, .cuda = false};
  const auto cuda = start(MKBENCH_HOST_CUDA), torch = start(MKBENCH_HOST_TORCH);
  HostEngine twin(cuda, request, tiny(), 120);
  const Answer hosted = answer_of(twin, prompt.ids, n);
  const EngineFactory factory(cuda_makers());
  const auto direct = factory.make(request, tiny());
  CHECK(hosted == answer_of(*direct, prompt.ids, n));
  CHECK(hosted.ids == wanted);

  request.name = "eager";
  HostEngine eager(torch, request, tiny(), 120);
  CHECK(answer_of(eager, prompt.ids, n).ids == wanted);
  CHECK_FALSE(eager.settings().empty());
  for (HostEngine* on_cpu : {&twin, &eager}) CHECK_FALSE(on_cpu->trace(1).problem.empty());
  CHECK(cuda->facts().program == "mkbench-host-cuda");
  CHECK(torch->facts().program == "mkbench-host-torch");

  // A plugin's file and a typo are refused by the program that would make them.
  for (const char* name : {"./nothing.so", "typo"}) {
    request.name = name;
    CHECK_THROWS_WITH(HostEngine(cuda, request, tiny(), 120), ContainsText(name));
  }
  CHECK(ask<Flushed>(*cuda, FlushCall{}, kAmple).ms >= 0);
  ask<Answered>(*cuda, FinishCall{}, kAmple);
  ask<Answered>(*torch, FinishCall{}, kAmple);
}

TEST_CASE("each program answers its own questions about the machine, and only these") {
  const auto cuda = start(MKBENCH_HOST_CUDA), torch = start(MKBENCH_HOST_TORCH);
  const auto card = ask<CardFacts>(*cuda, CardCall{.compute = true, .models = {"tiny"}}, kAmple);
  const auto told = ask<TorchTold>(*torch, TorchCall{.compute_on = 0}, kAmple);
  CHECK_FALSE(told.version.empty());
  CHECK_FALSE(told.settings.empty());
  CHECK_FALSE(card.architectures.empty());
  CHECK_THROWS_WITH(cuda->call(TorchCall{}, kAmple), ContainsText("has no call 'torch'"));
  CHECK_THROWS_WITH(torch->call(CardCall{}, kAmple), ContainsText("has no call 'card'"));
  CHECK_THROWS_WITH(torch->call(TuneCall{}, kAmple), ContainsText("has no call 'tune'"));

  // What the program answers is what its code finds here.
  const CardFacts here = card_facts(CardCall{.compute = true, .models = {"tiny"}});
  CHECK(here.architectures == card.architectures);
  const bool usable = judge_device(here.devices, 0, here.architectures).usable();
  for (const CardFacts* facts : {&here, &card}) {
    CHECK(facts->check.has_value() == usable);
    CHECK(facts->ring_obstacles.empty() == !usable);
    CHECK(facts->devices.runtime_cuda_version >= 12080);
  }
  CHECK_FALSE(card_facts(CardCall{}).check);  // was not asked for
  CHECK(told.check.has_value() == told.cuda_available);
  if (told.check) CHECK(told.check->ok);
}

TEST_CASE("a program that no parent has started says so") {
  const std::string command =
      std::string("exec ") + MKBENCH_HOST_CUDA + " 3<&- 4<&- 5<&- 6<&- 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  char text[200] = {};
  CHECK(fread(text, 1, sizeof text - 1, pipe) > 0);
  const int status = pclose(pipe);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 2);
  CHECK(std::string(text) == "mkbench-host-cuda: is started by mkbench, not by hand\n");
}

}  // namespace
}  // namespace mkbench
