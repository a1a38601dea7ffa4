// scripts/torch_decoder.py: decoders of references/decoder.py behind the proxy that every engine has.
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <string>

#include "tests/scripts/python_engine.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

// A host that holds a Decoder: one of tests/engines/counting_decoder.py with these lines in its body.
struct PythonDecoder : PythonEngine {
  explicit PythonDecoder(const std::string& body, const std::string& base = "Decoder") {
    write(
        fmt::format("import sys, time, torch\nsys.path.append('{}')\nimport counting_decoder\n\n\n"
                    "class Decoder(counting_decoder.{}):\n"
                    "    def prefill(self, ids):\n"
                    "        open(__file__ + '.prefills', 'a').write('1')\n"
                    "        super().prefill(ids)\n\n{}\n",
                    (kRoot / "tests/engines").string(), base, body));
  }
  uintmax_t prefills() const { return fs::file_size(request.name + ".prefills"); }
};

// Ids forced, set late and after going back are what the formula says.
void check_answers(Engine& engine) {
  engine.reset();
  engine.poison();
  engine.prefill(std::vector<int32_t>{3, 1, 4});
  CHECK(engine.position() == 2);
  const int32_t first = mix({3, 1, 4});
  CHECK(engine.decode(2) == std::vector<int32_t>{first, mix({3, 1, 4, first})});
  CHECK(engine.position() == 4);
  const int32_t led[] = {0, 2, 4};
  engine.reset();
  engine.prefill(std::vector<int32_t>{3, 1, 4});
  CHECK(engine.decode(3, led) ==
        std::vector<int32_t>{first, mix({3, 1, 4, 2}), mix({3, 1, 4, 2, 4})});
  engine.reset();
  engine.prefill(std::vector<int32_t>{3, 1});
  const int32_t late = mix({3, 5});
  CHECK(engine.decode_late(5, 2) == std::vector<int32_t>{late, mix({3, 5, late})});
  engine.prefill(std::vector<int32_t>{2, 0});  // appends to what is there
  CHECK(engine.position() == 5);
  CHECK(engine.decode(1) == std::vector<int32_t>{mix({3, 5, late, mix({3, 5, late}), 2, 0})});
}

TEST_CASE("a decoder in Python is an engine") {
  PythonDecoder python("    settings = 'tf32=0'");
  Engine& engine = python.open();
  CHECK(engine.settings() == "tf32=0");
  const EngineCapabilities can = engine.capabilities();
  CHECK(can.name == "counting@altered.py");
  CHECK(can.device == "cpu");
  CHECK(can.max_context == 40);
  CHECK((can.logits && can.forced && can.late_id && can.rewind));
  CHECK_FALSE((can.snapshots || can.poison || can.counted || can.one_launch || can.deterministic));
  CHECK(can.precision == PrecisionClass::kLossy);
  check_answers(engine);

  std::vector<float> logits(2 * 6, -1);
  engine.reset();
  engine.prefill(std::vector<int32_t>{3, 1, 4});
  const std::vector<int32_t> ids = engine.decode(2, nullptr, logits.data());
  for (size_t at = 0; at < logits.size(); ++at)
    CHECK(logits[at] == (static_cast<int32_t>(at % 6) == ids[at / 6] ? 10 : 0));
  CHECK(engine.last_times().event_ms == 0);
  CHECK(engine.launch_count() > 0);  // decodes: its launches are not counted
  CHECK_FALSE(engine.hidden(0).has_value());
  CHECK_FALSE(engine.skip_to(3));
  CHECK_THROWS_AS(engine.save(), Error);
}

TEST_CASE("a closed decoder's memory is free, though its parts refer to each other") {
  PythonDecoder python(
      "    def open(self, folder, device, max_context):\n"
      "        super().open(folder, device, max_context)\n"
      "        self.part = self\n\n"
      "    def __del__(self):\n"
      "        open(__file__ + '.gone', 'w')\n");
  python.open();
  CHECK_FALSE(fs::exists(python.request.name + ".gone"));
  python.engine.reset();
  CHECK(fs::exists(python.request.name + ".gone"));
}

TEST_CASE("a decoder in Python shows hidden states and KV rows") {
  PythonDecoder python(
      "    def show(self, layer, position=None):\n"
      "        if layer == 1:\n            return None\n"
      "        return [7, layer] if position is None else torch.tensor([[position], [9]])");
  Engine& engine = python.open();
  engine.prefill(std::vector<int32_t>{3, 1, 4});
  engine.decode(1);
  CHECK(engine.hidden(2) == std::vector<float>{7, 2});
  CHECK(engine.kv_row(2, 1) == std::vector<float>{1, 9});
  CHECK_FALSE((engine.hidden(1) || engine.kv_row(1, 0)));
}

TEST_CASE("a decoder that can go back and take ids prefills once") {
  for (const char* body : {"    pass", "    set_pending = property()",  // without the one ability
                           "    def decode(self, n):\n        return super().decode(n)"}) {
    INFO(body);
    PythonDecoder python(body);
    Engine& engine = python.open();
    CHECK(engine.capabilities().rewind);
    CHECK(engine.capabilities().late_id);
    engine.prefill(std::vector<int32_t>{3, 1, 4});
    engine.decode(3);
    engine.rewind(1);
    CHECK(engine.position() == 1);
    CHECK(error_of([&] { engine.decode(1); }).kind() ==
          ErrorKind::kBadInput);  // nothing is pending
    const int32_t late = mix({3, 5});
    CHECK(engine.decode_late(5, 2) == std::vector<int32_t>{late, mix({3, 5, late})});
    CHECK(error_of([&] { engine.rewind(4); }).kind() == ErrorKind::kBadInput);
    CHECK(python.prefills() == 1);
  }
}

// Lines of a decoder with save() and restore(); `rows`: those of a state that was saved, in Python.
std::string slots(const std::string& rows) {
  return "    slots = {}\n\n"
         "    def save(self, slot):\n"
         "        open(__file__ + '.slots', 'a').write(f'{slot} ')\n"
         "        self.slots[slot] = list(self.rows), self.pending\n"
         "        return -sum(7 ** at * (id_ + 1) for at, id_ in enumerate(self.rows))\n\n"
         "    def restore(self, slot):\n"
         "        rows, self.pending = self.slots[slot]\n"
         "        self.rows = " +
         rows;
}

TEST_CASE("a decoder goes back to any of its last four states") {
  PythonDecoder python(slots("list(rows)"));
  Engine& engine = python.open();
  CHECK(engine.capabilities().snapshots);
  engine.prefill(std::vector<int32_t>{3, 1, 4});
  const Snapshot start = engine.save();
  CHECK((start.position == 2 && start.pending == 4));
  const std::vector<int32_t> ids = engine.decode(1);
  const Snapshot second = engine.save();
  engine.decode(1);
  const Snapshot third = engine.save();
  engine.decode(1);
  engine.save();
  engine.restore(start);
  CHECK(engine.position() == 2);
  CHECK(engine.decode(1) == ids);
  engine.restore(start);
  engine.set_pending(5);
  CHECK(engine.decode(1) == std::vector<int32_t>{mix({3, 1, 5})});
  engine.save();  // in place of `second`, which is the least recently used one now
  const Error error = error_of([&] { engine.restore(second); });
  CHECK(error.kind() == ErrorKind::kRuntime);
  CHECK_THAT(error.what(), ContainsText("no saved state of position 3 with this checksum"));
  engine.reset();
  engine.prefill(std::vector<int32_t>{2, 2});
  engine.restore(third);
  CHECK(engine.position() == 4);
  CHECK(engine.decode(1) == std::vector<int32_t>{mix({3, 1, 4, ids[0], mix({3, 1, 4, ids[0]})})});
  CHECK(python.prefills() == 2);
  std::ifstream file(python.request.name + ".slots");
  std::string order;
  std::getline(file, order);
  CHECK(order == "0 1 2 3 0 0 1 2 ");
}

TEST_CASE("a state that is not what was saved is an error of integrity") {
  PythonDecoder python(slots("[0] * len(rows)"));
  Engine& engine = python.open();
  engine.prefill(std::vector<int32_t>{3, 1, 4});
  const Snapshot start = engine.save();
  const Error error = error_of([&] { engine.restore(start); });
  CHECK(error.kind() == ErrorKind::kIntegrity);
  CHECK_THAT(error.what(),
             ContainsText("restore: found checksum ffff") && ContainsText(", wanted"));
}

TEST_CASE("what a decoder lacks is made up for by prefilling again") {
  PythonDecoder python("    pass", "Plain");
  Engine& engine = python.open();
  const EngineCapabilities can = engine.capabilities();
  CHECK(can.name == "decoder@altered.py");
  CHECK(engine.settings().empty());
  CHECK(can.precision == PrecisionClass::kBf16);
  CHECK((can.forced && can.deterministic));
  CHECK_FALSE((can.logits || can.late_id || can.rewind));
  check_answers(engine);
  CHECK(python.prefills() == 7);  // four calls, two forced ids, one late id
  CHECK_THAT(error_of([&] { engine.rewind(0); }).what(), ContainsText("it cannot go back"));
  std::vector<float> logits(6);
  CHECK_THAT(error_of([&] { engine.decode(1, nullptr, logits.data()); }).what(),
             ContainsText("it has no logits"));
}

TEST_CASE("bad ids and too many positions do not reach a decoder") {
  PythonDecoder python("    pass");
  Engine& engine = python.open();
  const auto refused = [&](const auto& call) {
    const Error error = error_of(call);
    CHECK(error.kind() == ErrorKind::kBadInput);
    return std::string(error.what());
  };
  CHECK_THAT(refused([&] { engine.decode(1); }), ContainsText("no pending id"));
  CHECK_THAT(refused([&] {
               engine.prefill(std::vector<int32_t>{1, 6});
             }),
             ContainsText("token id 6 is not in [0, 6)"));
  CHECK_THAT(refused([&] { engine.prefill({}); }), ContainsText("prefill: no ids"));
  CHECK_THAT(refused([&] { engine.prefill(std::vector<int32_t>(42, 1)); }),
             ContainsText("41 positions needed, 40 there"));
  engine.prefill(std::vector<int32_t>(38, 1));
  CHECK_THAT(refused([&] { engine.decode(4); }), ContainsText("41 positions needed, 40 there"));
  const int32_t forced[] = {-1, -1};
  CHECK_THAT(refused([&] { engine.decode(2, forced); }), ContainsText("token id -1"));
  CHECK_THAT(refused([&] { engine.set_pending(6); }), ContainsText("token id 6"));
  CHECK(engine.decode(3).size() == 3);
  CHECK(python.prefills() == 1);
}

TEST_CASE("logits that a decoder does not write are NaN, and ids are integers") {
  PythonDecoder silent(
      "    def decode(self, n, forced=None, logits=None):\n        return super().decode(n)");
  silent.open().prefill(std::vector<int32_t>{1, 2});
  std::vector<float> logits(6, 1);
  silent.engine->decode(1, nullptr, logits.data());
  for (const float logit : logits) CHECK(std::isnan(logit));

  for (const auto& [returned, told] : {std::pair{"torch.zeros(n)", "found ids of torch.float32"},
                                       {"torch.zeros(n, dtype=torch.bool)", "of torch.bool"},
                                       {"None", "NoneType"}}) {
    INFO(returned);
    PythonDecoder python(fmt::format("    def decode(self, n):\n        return {}", returned));
    python.open().prefill(std::vector<int32_t>{1, 2});
    const Error error = error_of([&] { python.engine->decode(1); });
    CHECK(error.kind() == ErrorKind::kRuntime);
    CHECK_THAT(error.what(), ContainsText(told));
  }
}

TEST_CASE("a decoder's position is read while it runs") {
  PythonDecoder python(
      "    position = 77\n\n    def decode(self, n):\n        time.sleep(0.4)\n"
      "        return super().decode(n)");
  python.open().prefill(std::vector<int32_t>{1, 2});
  python.engine->decode(1);
  CHECK(python.engine->progress().position == 77);
}

TEST_CASE("a decoder without a position shows progress only where ids are forced one by one") {
  PythonDecoder python(
      "    def decode(self, n):\n        engine = sys._getframe(1).f_locals['self']\n"
      "        open(__file__ + '.places', 'a').write(f'{engine.progress()[0]} ')\n"
      "        return super().decode(n)");
  python.open().prefill(std::vector<int32_t>{1, 2});
  python.engine->decode(1);
  const int32_t forced[] = {0, 2};
  python.engine->decode(2, forced);
  python.engine->decode(1);
  std::ifstream file(python.request.name + ".places");
  std::string places;
  std::getline(file, places);
  CHECK(places == "-1 2 3 -1 ");
}

TEST_CASE("a decoder is opened with at most its context_limit") {
  for (const int limit : {0, 39, 40, 41}) {
    PythonDecoder python("    context_limit = " + std::to_string(limit));
    const EngineCapabilities can = python.open().capabilities();
    CHECK(can.context_limit == limit);
    CHECK(can.max_context == (limit == 39 ? 39 : 40));
  }
}

TEST_CASE("a decoder that is not as references/decoder.py says is bad input") {
  for (const auto& [body, told] :
       {std::pair{"    prefill = None", "its Decoder has no prefill()"},
        {"    name = 'a b'", "name: found 'a b', wanted up to 40 of letters"},
        {"    precision = 'fp8'",
         "precision: found 'fp8', wanted one of bf16, fp32-accumulate, lossy, fp16"},
        {"    context_limit = -1", "context_limit: found -1, wanted a number of positions"},
        {"    settings = 1", "settings: found 1, wanted text"},
        {"    deterministic = 1", "deterministic: found 1, wanted True or False"}}) {
    PythonDecoder python(body);
    const Error error = error_of([&] { python.open(); });
    CHECK(error.kind() == ErrorKind::kBadInput);
    CHECK_THAT(error.what(), ContainsText(told));
  }
}

}  // namespace
}  // namespace mkbench
