// What arrives on the socket between the parent and a host, which may be somebody else's program.
#include <nlohmann/json.hpp>

#include "harness/wire/calls.h"
#include "harness/wire/channel.h"
#include "tests/fuzz/input.h"

using namespace mkbench;
using nlohmann::json;

namespace {

// `read` and to_json() must agree on what was accepted.
template <typename Read>
void round_trip(const json& message, Read&& read) {
  json written;
  if (!fuzz::accepts({ErrorKind::kBadInput}, [&] { written = to_json(read(message)); })) return;
  json again;
  const bool read_back =
      fuzz::accepts({ErrorKind::kBadInput}, [&] { again = to_json(read(written)); });
  fuzz::expect(read_back && again.dump(-1, ' ', false, json::error_handler_t::replace) ==
                                written.dump(-1, ' ', false, json::error_handler_t::replace),
               "what was read is written so that it reads back");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::MemoryFile file(data, size);
  FrameReader reader(file.descriptor());
  for (;;) {
    const FrameReader::Got got = reader.read(0);
    if (got == FrameReader::Got::kNothing) continue;
    if (got != FrameReader::Got::kFrame) return 0;
    fuzz::expect(reader.frame().size() <= size, "a frame is no longer than what arrived");
    const json message = json::parse(reader.frame(), nullptr, false);
    round_trip(message, call_from_json);
    round_trip(message, answer_from_json);
  }
}
