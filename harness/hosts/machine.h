// What this machine has, put together from what hosts have found out.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "harness/hosts/hosts.h"

namespace mkbench {

// Answers of two hosts; if one is missing, its `problem` says why.
struct MachineFacts {
  std::optional<CardFacts> card;
  std::string card_problem;
  std::optional<TorchTold> torch;
  std::string torch_problem;
};

// Asks the hosts. A host that cannot start is a problem, not an error; Interrupted passes through.
MachineFacts examine_machine(Hosts& hosts, const CardCall& call);

// The machine as a plan needs it.
struct MachineProbe {
  bool usable = false;             // the kernels and libtorch can use the requested GPU
  std::string reason, what_to_do;  // set where the GPU is not usable
  std::string device;              // "cuda:0 NVIDIA H200"; empty: no GPU
  int64_t l2_bytes = 0;
  double pin_gb_per_s = 0;  // see DeviceInfo
  bool exclusive = false;   // one process at a time may use the GPU
  // What makes times untrustworthy now: on the machine, and on the card.
  std::vector<std::string> host_unfit, card_unfit;
  std::vector<DeviceInfo> devices;
  // For each model of the CardCall, why the ring megakernel cannot run it; empty text: it can.
  // Filled in only if the GPU is usable.
  std::map<std::string, std::string> ring_obstacles;
  std::map<std::string, std::string> ring_paces;          // RingObstacle::pace of each
  nlohmann::json environment = nlohmann::json::object();  // the report's `environment`
};

MachineProbe probe_of(const MachineFacts& facts, int gpu);

}  // namespace mkbench
