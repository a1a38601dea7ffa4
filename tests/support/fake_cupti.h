// What a test sets of tests/device/fake_cupti.cpp, which takes the place of libcupti.
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>
#include <string>

struct FakeCupti {
  uint32_t version = CUPTI_API_VERSION;
  size_t dropped = 0;
  std::string failing{};    // the function that fails
  uint64_t now_ns = 5'000;  // everything takes 1000 ns
};

FakeCupti& fake_cupti();
size_t fake_kinds_enabled();
void fake_kernel(uint32_t call, uint32_t graph = 0);
void fake_copy(uint32_t call);
void fake_memset(uint32_t call);
void fake_wait(CUpti_ActivitySynchronizationType type);
