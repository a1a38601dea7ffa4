// Frames between a parent and a host, and the memory that both share.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "harness/wire/arena.h"
#include "harness/wire/channel.h"
#include "harness/wire/hang_report.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

struct Pair {
  int ends[2] = {-1, -1};
  Pair() { REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0); }
  ~Pair() {
    close_end(0);
    close_end(1);
  }
  void close_end(int i) {
    if (ends[i] >= 0) close(ends[i]);
    ends[i] = -1;
  }
};

using Got = FrameReader::Got;

TEST_CASE("frames are whole, however the socket cut them") {
  Pair source, cut;
  REQUIRE(send_frame(source.ends[0], {{"a", 1}}));
  REQUIRE(send_frame(source.ends[0], {{"b", std::string("x\xff") + "y"}}));  // not UTF-8
  REQUIRE(send_frame(source.ends[0], nlohmann::json::array()));
  std::vector<char> bytes(1000);
  const ssize_t size = read(source.ends[1], bytes.data(), bytes.size());
  REQUIRE(size > 12);
  FrameReader reader(cut.ends[1]);
  std::vector<std::string> frames;
  for (ssize_t i = 0; i < size; ++i) {
    CHECK(reader.read(0) == Got::kNothing);
    REQUIRE(write_all(cut.ends[0], &bytes[static_cast<size_t>(i)], 1));
    if (reader.read(0) == Got::kFrame) frames.push_back(reader.frame());
  }
  CHECK(frames == std::vector<std::string>{"{\"a\":1}", "{\"b\":\"x\xEF\xBF\xBDy\"}", "[]"});

  // All at once: what has arrived is handed out before more is waited for.
  REQUIRE(write_all(cut.ends[0], bytes.data(), static_cast<size_t>(size)));
  for (const std::string& frame : frames) {
    REQUIRE(reader.read(-1) == Got::kFrame);
    CHECK(reader.frame() == frame);
  }
  CHECK(reader.read(0) == Got::kNothing);
  cut.close_end(0);
  CHECK(reader.read(-1) == Got::kEnd);
}

TEST_CASE("a frame longer than any message is rubbish, also behind a good one") {
  const uint32_t sizes[] = {kMostFrameBytes, kMostFrameBytes + 1};
  for (const uint32_t size : sizes) {
    for (const bool behind : {false, true}) {
      Pair pair;
      if (behind) REQUIRE(send_frame(pair.ends[0], 1));
      std::string text(sizeof size, '\0');
      std::memcpy(text.data(), &size, sizeof size);
      REQUIRE(write_all(pair.ends[0], (text + "abc").data(), text.size() + 3));
      FrameReader reader(pair.ends[1]);
      if (behind) REQUIRE(reader.read(0) == Got::kFrame);
      CHECK(reader.read(0) == (size > kMostFrameBytes ? Got::kRubbish : Got::kNothing));
      if (size > kMostFrameBytes) CHECK_THAT(reader.frame(), ContainsText("abc"));
    }
  }
}

TEST_CASE("who writes to an end that is gone is told, and not ended by a signal") {
  Pair pair, other;
  pair.close_end(1);
  CHECK_FALSE(send_frame(pair.ends[0], {{"a", 1}}));
  // A pipe will do, and the next socket gets its frame once.
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(send_frame(ends[1], "piped"));
  REQUIRE(send_frame(other.ends[0], 1));
  for (const auto& [fd, text] : {std::pair(ends[0], "\"piped\""), {other.ends[1], "1"}}) {
    FrameReader reader(fd);
    CHECK(reader.read(0) == Got::kFrame);
    CHECK(reader.frame() == text);
    CHECK(reader.read(0) == Got::kNothing);
  }
  for (const int end : ends) close(end);
}

TEST_CASE("both sides of an arena see the same bytes, also after it has grown") {
  Arena parent;
  Arena host(parent.fd());
  { const Arena ended(parent.fd()); }  // closes nothing
  std::strcpy(parent.at_least(10), "one");
  CHECK(std::string(host.at_least(10)) == "one");
  constexpr size_t kMuch = size_t{3} << 20;
  // The host never makes room by itself: a size that it was not given is a defect.
  CHECK_THROWS_AS(host.at_least(kMuch), Error);
  char* grown = parent.at_least(kMuch);
  CHECK(std::string(grown) == "one");
  grown[kMuch - 1] = 'z';
  CHECK(host.at_least(kMuch)[kMuch - 1] == 'z');
  CHECK(parent.at_least(5) == grown);
  // Nobody can take away what the other side has mapped.
  CHECK(ftruncate(parent.fd(), 0) != 0);
}

TEST_CASE("a hang is told with as much as its process has answered") {
  struct Row {
    HangReport report;
    const char* line;
  };
  const auto report = [](bool answered, bool killed, HangTold told, const char* call = "decode") {
    HangReport made{.engine = "e", .call = call, .line = {}};
    made.answered = answered, made.killed = killed, made.told = std::move(told);
    return made;
  };
  for (auto& [found, line] :
       {Row{report(false, true, {}),
            "'decode' of e does not return, and its process does not answer"},
        Row{report(true, true, {}, "open"), "'open' of e does not return"},
        Row{report(true, true, {.launches = 0}),
            "'decode' of e does not return after 0 launches, and it has no progress word"},
        Row{report(true, false, {.launches = 2, .position = 0}),
            "'decode' of e stood still after 2 launches, its progress word says position 0"},
        Row{report(true, true, {.decodes = 0}),
            "'decode' of e does not return in decode() call 1, and it has no progress word"},
        Row{report(true, true, {.decodes = 3}, "prefill"),
            "'prefill' of e does not return after 3 decode() calls, and it has no progress word"},
        Row{report(true, false, {.launches = 0, .position = 7, .layer = 0, .phase = "qkv"}),
            "'decode' of e stood still after 0 launches, its progress word says position 7, layer "
            "0, "
            "phase qkv"}}) {
    HangReport explained = found;
    explain_hang(explained);
    CHECK(explained.line == std::string("HANG: ") + line);
  }
}

TEST_CASE("a grid of which the card holds the first blocks alone is told from cuda-gdb's lists") {
  const auto told = [](const std::string& size, const std::string& blocks) {
    HangReport report{.engine = "e", .call = "decode", .line = "HANG"};
    report.stacks = {
        {.tool = "gdb", .text = "#0 wait()", .why = ""},
        {.tool = "cuda-gdb",
         .text = "  Kernel Parent Dev Grid Status   SMs Mask GridDim BlockDim Invocation\n"
                 "       0      -   0    1 Active 0x00000001 (4,1,1) (32,1,1) small()\n"
                 "*      3      -   0    2 Active 0x00ffffff " +
                 size +
                 "\n"
                 "  BlockIdx To BlockIdx Count   State\nKernel 0\n"
                 "   (0,0,0)     (3,0,0)     4 running\nKernel 3\n" +
                 blocks + "#0 f<8><<<(170,1,1)>>>\n",
         .why = ""}};
    return report;
  };
  const std::string first = "*  (0,0,0)   (131,0,0)   132 running\n";
  HangReport found = told("(170,1,1) (128,1,1) void f<8>(x=0x7f, n=(1,2))", first);
  explain_stacks(found);
  CHECK(found.line ==
        "HANG; of the 170 blocks of kernel 'void f<8>' the card holds the first 132: if these wait "
        "for "
        "the others, they wait for blocks that cannot start");
  CHECK(found.finding.cause == HangCause::kNotResident);
  found = told("(100,2,1) (128,1,1)", "*  (0,0,0)   (31,1,0)   132 running\n");
  explain_stacks(found);
  CHECK_THAT(found.line, ContainsText("HANG; of the 200 blocks the card holds the first 132: "));
  for (const auto& [size, blocks] :
       {std::pair<std::string, std::string>{"(132,1,1) (128,1,1)", first},
        {"(170,1,1) (128,1,1)", ""},
        {"(170,1,1) (128,1,1)", "*  (1,0,0)   (132,0,0)   132 running\n"},
        {"(170,1,1) (128,1,1)", "*  (0,0,0)   (131,0,0)   131 running\n"},
        {"(170,1,1) (128,1,1)", first + "   (140,0,0)   (141,0,0)   2 running\n"}}) {
    HangReport other = told(size, blocks);
    explain_stacks(other);
    CHECK((other.line == "HANG" && other.finding.cause == HangCause::kUnknown));
  }
  HangReport knows = told("(170,1,1) (128,1,1)", first);
  knows.told.launch.emplace();
  explain_stacks(knows);
  CHECK(knows.line == "HANG");
}

TEST_CASE("ids and logits of a decode have places of their own") {
  for (const int n : {0, 1, 16, 17}) {
    const DecodeArena without(n, false, 100), with(n, true, 100);
    const size_t ids = static_cast<size_t>(n) * sizeof(int32_t);
    CHECK(with.ids >= ids);
    CHECK(with.logits >= with.ids + ids);
    CHECK(with.ids % 64 == 0);
    CHECK(without.bytes >= without.ids + ids);
    CHECK(with.bytes == with.logits + static_cast<size_t>(n) * 100 * sizeof(float));
  }
}

}  // namespace
}  // namespace mkbench
