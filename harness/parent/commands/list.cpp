#include <fmt/format.h>

#include <algorithm>

#include "harness/parent/commands/commands.h"
#include "harness/parent/launch.h"
#include "harness/report/verdict.h"
#include "references/base/error.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr char kListedModel[] = "synthetic";  // the one for which megakernel is resolved

void list_engines() {
  fmt::print(
      "engines\n"
      "  megakernel   the best CUDA kernel that can run here: ring where it can, else plain "
      "(cuda)\n"
      "  ring         one launch, weights stream through shared memory (cuda, sm_90 and later,\n"
      "               Qwen3-0.6B's layer shape)\n"
      "  plain        one cooperative launch decodes n tokens (cuda, sm_80 and later)\n"
      "  host-twin    the same schedule as tasks on CPU threads (cpu)\n"
      "  PATH.so      somebody else's, behind references/engine_abi.h (cpu, cuda: as it says)\n"
      "baselines\n"
      "  eager        libtorch, op by op (cpu, cuda)\n"
      "  none         eager judges parity and is not timed\n");
}

void list_models() {
  fmt::print(
      "models\n"
      "  tiny         trained, 4 layers, byte-level, tied; committed\n"
      "  tiny-untied  the same with an untied head and another theta; committed\n"
      "  synthetic    the analytic checkpoint of Qwen3-0.6B's shapes, made in memory; lag set by "
      "depth\n");
  for (const char* name : {"none", "short", "deep", "far", "early", "late"}) {
    fmt::print("    synthetic:{:<6} from {} KV rows on\n", name, synthetic_min_depth(name));
  }
  fmt::print(
      "  DIR          a snapshot folder: config.json and safetensors\n"
      "  ORG/NAME     a hub id in the local cache\n");
}

int list_devices_of_machine(const Options& options) {
  CaseJob job;
  job.kind = "probe";
  job.gpu = options.gpu;
  job.models = {kListedModel};
  const WorkerAnswer answer = ask_worker(job, "probe", 60);
  if (answer.interrupted) return exit_code(Verdict::kInterrupted);
  if (!answer.ok) {
    throw Error(answer.hung ? ErrorKind::kHang : ErrorKind::kRuntime,
                "listing devices: " + answer.problem);
  }
  fmt::print("devices\n");
  for (const auto& device : answer.message["devices"]) {
    fmt::print("  cuda:{}  {}, sm {}, {} MiB free of {} MiB\n", device["index"].get<int>(),
               device["name"].get<std::string>(), device["sm"].get<std::string>(),
               device["free_bytes"].get<int64_t>() >> 20,
               device["total_bytes"].get<int64_t>() >> 20);
  }
  const auto& cpu = answer.message["environment"]["cpu"];
  fmt::print("  cpu     {}, {} threads\n", cpu["name"].get<std::string>(),
             cpu["threads"].get<int>());
  if (!answer.message.value("usable", false)) {
    fmt::print("no usable GPU: {}\n", answer.message.value("reason", ""));
    return 0;
  }
  const std::string obstacle = answer.message["ring_obstacles"].value(kListedModel, "");
  fmt::print("megakernel on cuda:{} is {}\n", options.gpu,
             obstacle.empty() ? "ring" : "plain: " + obstacle);
  return 0;
}

}  // namespace

int list_command(const Options& options) {
  const auto wants = [&](const char* word) {
    const auto& words = options.arguments;
    return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  if (wants("engines")) list_engines();
  if (wants("models")) list_models();
  return wants("devices") ? list_devices_of_machine(options) : 0;
}

}  // namespace mkbench
