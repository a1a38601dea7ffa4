// Calls and answers are read back as they were written; anything else is refused, naming the field.
#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "harness/wire/build_id.h"
#include "harness/wire/calls.h"
#include "references/base/json_fields.h"
#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

using nlohmann::json;

// Gives every field of a struct another value than its default, each number only once.
template <typename T>
struct StructFiller {
  T& object;
  int& next;

  template <typename M, typename Owner>
  void field(const char*, M Owner::*member, const char* = "") {
    set(object.*member);
  }
  template <typename M>
  void set(M& v) {
    if constexpr (std::is_same_v<M, bool>) {
      v = !v;
    } else if constexpr (std::is_arithmetic_v<M>) {
      v = static_cast<M>(++next);
    } else if constexpr (std::is_same_v<M, std::string>) {
      v = "text " + std::to_string(++next);
    } else if constexpr (requires { enum_text(v); }) {
      v = enum_values(Tag<M>()).back();
    } else if constexpr (std::is_enum_v<M>) {
      v = v == static_cast<M>(1) ? static_cast<M>(2) : static_cast<M>(1);
    } else if constexpr (json_fields::kIsOptional<M>) {
      set(v.emplace());
    } else if constexpr (json_fields::kIsVector<M>) {
      v.resize(2);
      for (auto& item : v) set(item);
    } else {
      StructFiller<M> inner{v, next};
      describe_fields(inner, Tag<M>());
    }
  }
};

template <typename T>
T filled() {
  T object{};
  int next = 2;
  StructFiller<T> filler{object, next};
  describe_fields(filler, Tag<T>());
  return object;
}

// Calls `check` with every alternative of a variant, filled.
template <typename Variant, size_t I = 0, typename Check>
void for_each_alternative(const Check& check) {
  if constexpr (I < std::variant_size_v<Variant>) {
    using Held = std::variant_alternative_t<I, Variant>;
    INFO(Held::kType);
    check(Variant(Held{}), Variant(filled<Held>()));
    for_each_alternative<Variant, I + 1>(check);
  }
}

// What reading `j` throws; empty where it throws nothing.
template <typename Read>
std::string refusal(const Read& read, const json& j) {
  try {
    read(j);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::kBadInput);
    return error.what();
  }
  return "";
}

template <typename Variant, typename Read>
void check_all(const Read& read) {
  std::set<std::string> types;
  for_each_alternative<Variant>([&](const Variant& empty, const Variant& full) {
    const json written = to_json(full);
    const std::string type = written["type"];
    CHECK(types.insert(type).second);
    for (const Variant& message : {empty, full}) {
      const json one = to_json(message);
      const Variant back = read(json::parse(one.dump()));
      CHECK(back.index() == message.index());
      CHECK(to_json(back) == one);
    }
    // No value of the full message is that of the empty one: each was carried by itself.
    const json defaults = to_json(empty).flatten();
    const json leaves = written.flatten();
    for (const auto& [path, value] : leaves.items()) {
      INFO(path);
      if (path != "/type") CHECK((!defaults.contains(path) || defaults[path] != value));
    }
    for (const auto& [key, value] : written.items()) {
      if (key == "type") continue;
      json missing = written, wrong = written;
      missing.erase(key);
      CHECK_THAT(refusal(read, missing), ContainsText(type + "." + key + ": found nothing"));
      wrong[key] = {{"no", "field"}};
      CHECK_THAT(refusal(read, wrong), ContainsText(type + "." + key));
    }
  });
  CHECK(refusal(read, {{"type", "poem"}}) == "type: found 'poem', wanted a known type");
  CHECK_THAT(refusal(read, json::object()), ContainsText("type: found null"));
  CHECK_THAT(refusal(read, {{"type", 7}}), ContainsText("type: found 7"));
  CHECK_THAT(refusal(read, json::array()), ContainsText("top: found []"));
  CHECK_THAT(refusal(read, json::parse("{\"type\":", nullptr, false)), ContainsText("top: found"));
}

TEST_CASE("every call and every answer is read back as it was written, and no less") {
  check_all<ToHost>(call_from_json);
  check_all<FromHost>(answer_from_json);
}

TEST_CASE("numbers and words out of range are refused, naming the field") {
  json decode = to_json(ToHost(DecodeCall{}));
  decode["n"] = int64_t{1} << 40;
  CHECK_THAT(refusal(call_from_json, decode), ContainsText("decode.n: found 1099511627776"));
  json plain = to_json(ToHost(PlainCall{}));
  plain["verb"] = "explode";
  CHECK_THAT(refusal(call_from_json, plain),
             ContainsText("do.verb: found \"explode\", wanted one of reset, poison, audit, close"));
}

TEST_CASE("a long value is cut between two characters in a message") {
  std::string name;  // behind {" every character begins at an even byte
  for (int i = 0; i < 80; ++i) name += "\u00e9";
  json plain = to_json(ToHost(PlainCall{}));
  plain["type"] = {{name, 1}};
  const std::string message = refusal(call_from_json, plain);
  CHECK_THAT(message, ContainsText("\u00e9..., wanted a string"));
  CHECK(find_invalid_utf8(message) == std::string::npos);
}

TEST_CASE("extreme numbers arrive to the bit, also those that JSON cannot write") {
  Snapshot snapshot{.position = 3, .pending = 5, .kv_checksum = ~uint64_t{0}, .derived = {}};
  const float inf = std::numeric_limits<float>::infinity();
  snapshot.derived = {0.1F, std::nextafter(1.0F, 2.0F), -inf, inf, std::nanf("")};
  const json written = json::parse(to_json(FromHost(Saved{snapshot})).dump());
  const Snapshot back = std::get<Saved>(answer_from_json(written)).snapshot;
  CHECK(back.kv_checksum == snapshot.kv_checksum);
  REQUIRE(back.derived.size() == 5);
  for (size_t i = 0; i < 4; ++i) CHECK(back.derived[i] == snapshot.derived[i]);
  CHECK(std::isnan(back.derived[4]));

  Decoded decoded;
  decoded.times.host_ms = -std::numeric_limits<double>::infinity();
  decoded.times.event_ms = std::nan("");
  const json times = json::parse(to_json(FromHost(decoded)).dump());
  const Decoded told = std::get<Decoded>(answer_from_json(times));
  CHECK(told.times.host_ms == decoded.times.host_ms);
  CHECK(std::isnan(told.times.event_ms));
}

TEST_CASE("a build's id names the version, the commit and the fields of all messages") {
  const json fields = wire_fields();
  CHECK(fields["to_host"].size() == std::variant_size_v<ToHost>);
  CHECK(fields["from_host"].size() == std::variant_size_v<FromHost>);
  const std::string text = fields.dump();
  CHECK_THAT(text, ContainsText("\"hello\""));
  CHECK(build_id().ends_with(" " + sha256_hex(text.data(), text.size()).substr(0, 16)));
}

}  // namespace
}  // namespace mkbench
