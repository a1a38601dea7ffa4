// Which driver runs which lane; the rows come from scripts/requirements/cuda_lanes.txt.
#include <string>

#include "harness/device/cuda_lanes.h"
#include "tests/support/catch2.h"

using namespace mkbench;

TEST_CASE("versions of CUDA are numbers") {
  struct Row {
    const char* text;
    int number;
  };
  const Row rows[] = {{"12.8", 12080}, {"13", 13000}, {"13.0.2", 13000}, {"12.10", 12100},
                      {"", 0},         {"x", 0},      {"12.", 0},        {"12x8", 0}};
  for (const Row& row : rows) {
    CAPTURE(row.text);
    CHECK(cuda_version_number(row.text) == row.number);
  }
}

// Set-up must judge drivers as doctor does: tests/scripts/test_house_setup.py asks it for these rows.
TEST_CASE("a driver has a lane, the newest that it runs") {
  REQUIRE(cuda_lanes().size() == 2);
  struct Row {
    const char* driver;
    int driver_cuda;
    const char* lane;  // "" for none
  };
  const Row rows[] = {
      {"580.65.06", 13000, "13"},
      {"581.57", 13000, "13"},
      {"595.10", 13020, "13"},
      {"570.86", 12080, "12.8"},
      {"575.57.08", 12090, "12.8"},
      {"579.99", 12090, "12.8"},
      {"550.54.15", 12040, ""},
      {"569.99", 12060, ""},
      {"", 0, ""},
      {"", 12090, "12.8"},
      {"", 13000, "13"},
      {"570.86", 0, "12.8"},
      {"580.65.06", 12080, "12.8"},  // an older libcuda comes first on the library path
      {"550.54.15", 13000, "13"},    // forward compatibility: a newer libcuda on an older driver
  };
  for (const Row& row : rows) {
    CAPTURE(row.driver, row.driver_cuda);
    const CudaLane* lane = lane_for_driver(row.driver, row.driver_cuda);
    CHECK((lane == nullptr ? "" : lane->name) == row.lane);
  }
}

TEST_CASE("a driver is judged by the lane of the binary") {
  CHECK(lane_of_cuda(12040) == nullptr);
  CHECK(lane_of_cuda(12090)->name == "12.8");
  CHECK(lane_of_cuda(13020)->name == "13");
  struct Row {
    const char* driver;
    int driver_cuda, built;
    const char *in_reason, *in_advice;
  };
  const Row rows[] = {
      {"580.65.06", 13000, 13000, "", ""},
      {"580.65.06", 13000, 12080, "", ""},
      {"570.86", 12080, 12090, "", ""},
      {"570.86", 12080, 13000, "the driver 570.86 (CUDA 12.8) is too old for CUDA 13.0",
       "580 or later, or build for CUDA 12.8"},
      {"575.57", 0, 13000, "the driver 575.57 is too old", "scripts/setup.sh --cuda 12.8"},
      {"550.54", 12040, 12080, "(needs 570 or later)", "570 or later (570 is the oldest"},
      {"550.54", 12040, 13000, "(needs 580 or later)", "580 or later (570 is the oldest"},
  };
  for (const Row& row : rows) {
    const DriverFault fault = driver_fault(row.driver, row.driver_cuda, row.built);
    CAPTURE(row.driver, row.built, fault.reason, fault.what_to_do);
    CHECK(fault.reason.empty() == (*row.in_reason == 0));
    CHECK(fault.reason.find(row.in_reason) != std::string::npos);
    CHECK(fault.what_to_do.find(row.in_advice) != std::string::npos);
  }
}
