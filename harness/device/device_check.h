// One real operation on the device: proof that this binary's code runs there and computes.
#pragma once

#include <string>

namespace mkbench {

struct DeviceCheck {
  bool ok = false;
  double got = 0, wanted = 0;  // the sum of bf16 products, exact in fp32
  int blocks = 0;              // blocks of the cooperative grid; 0 if libtorch was checked
  std::string error;           // one line; empty when ok
};

// Multiplies and adds bf16 numbers in one cooperative launch over the whole card, with a grid-wide
// barrier inside, and compares the sum with the exact one. Never throws; a failure is returned.
DeviceCheck check_device(int gpu);

}  // namespace mkbench
