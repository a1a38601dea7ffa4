#include "harness/cli/commands/list.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/engines/registry.h"
#include "harness/hosts/machine.h"
#include "harness/report/known_errors.h"
#include "harness/report/verdict.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "references/model_row.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr char kListedModel[] = "synthetic";  // the model for which "megakernel" is resolved

constexpr const char* kMadeOf[] = {"CUDA and C++", "libtorch", "Python"};  // by HostKind

// "cpu, cuda"
std::string devices_of(const EngineRow& row) {
  return fmt::format("{}{}{}", row.cpu ? "cpu" : "", row.cpu && row.cuda ? ", " : "",
                     row.cuda ? "cuda" : "");
}

void list_role(Role role, bool verbose) {
  for (const EngineRow& row : engine_rows()) {
    if ((row.roles & role) == 0) continue;
    fmt::print("  {:<12} {} ({})\n", row.name, row.help, devices_of(row));
    if (!verbose) continue;
    fmt::print("  {:<12} in {}; precision {}{}{}\n", "", kMadeOf[static_cast<size_t>(row.host)],
               precision_class_name(row.precision), row.settings.empty() ? "" : "; ", row.settings);
  }
}

void list_engines(bool verbose) {
  fmt::print(
      "engines\n"
      "  {:<12} the best CUDA kernel that can run here: ring if supported, else plain (cuda)\n",
      kMegakernel);
  list_role(kCandidate, verbose);
  fmt::print(
      "  {:<12} an engine of your own with references/engine_abi.h (cpu, cuda: as it declares)\n"
      "  {:<12} an engine of your own in Python, like references/decoder.py (cpu, cuda)\n"
      "baselines\n",
      "PATH.so", "PATH.py");
  list_role(kYardstick, verbose);
  fmt::print("  {:<12} {} judges parity and is not timed\nceiling\n", kNoBaseline, kJudgeName);
  list_role(kCeiling, verbose);
}

void list_models() {
  fmt::print("models\n");
  for (const ModelRow& row : model_rows()) {
    if (!row.help.empty()) {
      fmt::print("  {:<12} {}\n", row.name, row.help);
    } else if (!row.lagset.empty()) {
      fmt::print("    {:<16} for depths of at least {} KV rows\n", row.name,
                 synthetic_min_depth(row.lagset));
    }
  }
  fmt::print(
      "  DIR          a snapshot folder: config.json and safetensors\n"
      "  ORG/NAME     a model of the hub in the local cache (mkbench fetch ORG/NAME)\n");
}

}  // namespace

int list_devices(const CardSettings& settings, const Invocation& invocation) {
  Hosts hosts(invocation.start_host, settings.timeout_s);
  const MachineProbe probe =
      probe_of(examine_machine(hosts, CardCall{.gpu = settings.gpu, .models = {kListedModel}}),
               settings.gpu);
  fmt::print("devices\n");
  for (const DeviceInfo& device : probe.devices) {
    fmt::print("  cuda:{}  {}, sm {}.{}, {} MiB free of {} MiB\n", device.index, device.name,
               device.sm_major, device.sm_minor, device.free_bytes >> 20, device.total_bytes >> 20);
  }
  const nlohmann::json& cpu = probe.environment.at("cpu");
  fmt::print("  cpu     {}, {} threads\n", cpu["name"].get<std::string>(),
             cpu["threads"].get<int>());
  if (!probe.usable) {
    fmt::print("no usable GPU: {}\n", probe.reason);
    return 0;
  }
  const std::string& obstacle = probe.ring_obstacles.at(kListedModel);
  fmt::print("megakernel on cuda:{} is {}\n", settings.gpu,
             obstacle.empty() ? "ring" : "plain: " + obstacle);
  return 0;
}

namespace {

void require_list_arguments(CardSettings& settings) {
  for (const std::string& word : settings.arguments) {
    if (word != "engines" && word != "models" && word != "devices" && word != "errors" &&
        word != "root")
      bad_usage(fmt::format(
          "mkbench list: '{}' is not one of engines, models, devices, errors, root", word));
  }
}

int list_command(const CardSettings& settings, const Invocation& invocation) {
  const auto wants = [&](const char* word) {
    const auto& words = settings.arguments;
    return words.empty() || std::find(words.begin(), words.end(), word) != words.end();
  };
  if (wants("engines")) list_engines(settings.verbose);
  if (wants("models")) list_models();
  // The table of docs/troubleshooting.md; printed only if the arguments name it.
  if (!settings.arguments.empty() && wants("errors")) fmt::print("{}", render_known_errors());
  // The folder that holds references/engine_abi.h and the examples, for a compiler's -I.
  if (!settings.arguments.empty() && wants("root")) fmt::print("{}\n", data_root().string());
  return wants("devices") ? list_devices(settings, invocation) : 0;
}

}  // namespace

CommandRow list_row() {
  return command_row<CardSettings>(
      "list", "engines, models, devices; known errors; mkbench's folder",
      "[engines|models|devices|errors|root]", {}, require_list_arguments, list_command);
}

}  // namespace mkbench
