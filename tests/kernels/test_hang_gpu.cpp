// Hangs planted in the megakernels on a card: each is named as what it is.
#include <unistd.h>

#include <chrono>
#include <string>
#include <thread>

#include "kernels/plain/faults.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/instances/delayed.h"
#include "references/base/error.h"
#include "references/snapshot.h"
#include "tests/support/ring_models.h"

namespace mkbench {
namespace {

using namespace testing;

constexpr int kContext = 512, kSteps = 400, kVocab = 1000;

ModelWeights tiny() { return load_folder(data_dir() / "tiny", "tiny"); }

// What explains the hang of a decode that comes back by itself.
HangFinding finding_of(Engine& e, int prompt) {
  e.prefill(random_ids(prompt, 100));
  try {
    e.decode(kSteps);
  } catch (const Error& error) {
    INFO(error.what());
    REQUIRE(error.kind() == ErrorKind::kHang);
    REQUIRE(e.standstill().has_value());
    return explain(*e.standstill());
  }
  FAIL("no hang");
  return {};
}

// What explains a decode that never comes back, seen from another thread. The decode's thread stays.
HangFinding finding_of_endless(Engine& e) {
  e.prefill(random_ids(1, 100));
  std::thread([&e] {
    try {
      e.decode(2);
    } catch (...) {
    }
  }).detach();
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < limit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const auto stood = e.standstill();
    if (stood && explain(*stood).waiter >= 0) return explain(*stood);
  }
  return {};
}

TEST_CASE("plain names an arrival that is lost", "[hang]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const auto e =
      make_plain(tiny(), {.max_context = kContext, .spin_scale = 0.05, .stall_block = 5});
  const HangFinding found = finding_of(*e, 1);
  INFO(found.text);
  CHECK(found.cause == HangCause::kArrivalLost);
  CHECK(found.text.find("waits in phase attention of layer 0, step 0") != std::string::npos);
}

TEST_CASE("plain names a grid that does not fit and a counter that is reset", "[hang]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  for (const auto& [fault, cause] :
       {std::pair{PlantedFault::kNotResident, HangCause::kNotResident},
        std::pair{PlantedFault::kWordsReset, HangCause::kWordsReset}}) {
    const auto e =
        make_plain(tiny(), {.max_context = kContext, .spin_scale = 0.05, .fault = fault});
    const HangFinding found = finding_of(*e, 1);
    INFO(found.text);
    CHECK(found.cause == cause);
  }
}

TEST_CASE("ring names words that are lost, and words that are reset", "[hang]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto lost =
      make_ring(four_layers(), {.max_context = kContext, .spin_scale = 0.05, .stall_block = 5});
  const HangFinding found = finding_of(*lost, 1);
  INFO(found.text);
  CHECK(found.cause == HangCause::kArrivalLost);
  CHECK(found.awaited == std::vector<int>{5});
  const auto reset =
      make_ring(four_layers(),
                {.max_context = kContext, .spin_scale = 0.05, .fault = PlantedFault::kWordsReset});
  const HangFinding after = finding_of(*reset, 1);
  INFO(after.text);
  CHECK(after.cause == HangCause::kWordsReset);
}

// The last cases of the file: what they launch never ends, so the process leaves without destructors.
TEST_CASE("a block of plain that never comes back is named", "[.][endless-plain]") {
  if (no_gpu()) SKIP_TEST("no GPU");
  const auto e = plain::make_plain_with_hook(
      tiny(), {.max_context = kContext, .spin_scale = 0.05, .fault = PlantedFault::kBlockDelayed});
  const HangFinding found = finding_of_endless(*e);
  const bool right = found.cause == HangCause::kBlockDelayed && found.awaited.size() == 1;
  std::fprintf(stderr, "%s\n", found.text.c_str());
  _exit(right ? 0 : 1);
}

TEST_CASE("a block of ring that never comes back is named", "[.][endless-ring]") {
  if (no_ring_gpu()) SKIP_TEST("no GPU of compute capability 9.0 or later");
  const auto e = make_ring(four_layers(), {.max_context = kContext,
                                           .spin_scale = 0.05,
                                           .stall_block = 5,
                                           .kernel = ring::delayed_kernel()});
  const HangFinding found = finding_of_endless(*e);
  const bool right =
      found.cause == HangCause::kBlockDelayed && found.awaited == std::vector<int>{5};
  std::fprintf(stderr, "%s\n", found.text.c_str());
  _exit(right ? 0 : 1);
}

}  // namespace
}  // namespace mkbench
