// Mutations of JSON inputs that stay JSON: one value, or one name, of the document is changed, so
// that the fuzzer reaches what lies behind the grammar. One in four is left to libFuzzer's own
// mutations, as are inputs that are no JSON.
#include <algorithm>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/fuzz/input.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using nlohmann::json;
using Random = std::minstd_rand;

size_t below(Random& random, size_t count) { return count == 0 ? 0 : random() % count; }

json odd_value(Random& random) {
  static const json values[] = {nullptr,
                                true,
                                false,
                                0,
                                1,
                                -1,
                                2,
                                7,
                                1.5,
                                -0.0,
                                1e-300,
                                1e300,
                                "",
                                "x",
                                "0",
                                "\u00e9\n",
                                json::array(),
                                json::object(),
                                json::array({1, 2}),
                                json::array({nullptr}),
                                std::numeric_limits<int32_t>::max(),
                                std::numeric_limits<int32_t>::min(),
                                std::numeric_limits<int64_t>::max(),
                                std::numeric_limits<int64_t>::min(),
                                std::numeric_limits<uint64_t>::max(),
                                int64_t{1} << 32,
                                "AAAA",
                                "qwen3",
                                "PASS"};
  return values[below(random, std::size(values))];
}

size_t count_values(const json& j) {
  size_t count = 1;
  if (j.is_structured()) {
    for (const json& inner : j) count += count_values(inner);
  }
  return count;
}

// The value number `n` in reading order, and what holds it.
json* find_value(json& j, size_t& n, json** holder) {
  if (n == 0) return &j;
  --n;
  if (!j.is_structured()) return nullptr;
  for (json& inner : j) {
    json* before = *holder;
    *holder = &j;
    if (json* found = find_value(inner, n, holder)) return found;
    *holder = before;
  }
  return nullptr;
}

json& any_value(json& document, Random& random, json** holder) {
  size_t n = below(random, count_values(document));
  *holder = nullptr;
  return *find_value(document, n, holder);
}

void change_number(json& value, Random& random) {
  switch (below(random, 4)) {
    case 0:
      value = -value.get<double>();
      break;
    case 1:
      value = value.get<double>() * 2;
      break;
    case 2:
      value = value.is_number_integer() ? json(value.get<int64_t>() / 2) : json(1);
      break;
    default:
      if (value.is_number_integer() && std::abs(value.get<double>()) < 1e9)
        value = value.get<int64_t>() + (random() % 2 == 0 ? 1 : -1);
      else
        value = value.get<double>() * (1 + 1e-9);
  }
}

void mutate(json& document, Random& random) {
  json *holder = nullptr, *other_holder = nullptr;
  json& value = any_value(document, random, &holder);
  switch (below(random, 6)) {
    case 0:
      value = odd_value(random);
      break;
    case 1:
      value = json(any_value(document, random, &other_holder));
      break;
    case 2:  // a member or an item goes
      if (!value.is_structured() || value.empty()) break;
      value.erase(std::next(value.begin(), static_cast<long>(below(random, value.size()))));
      break;
    case 3:  // one more
      if (value.is_array()) value.push_back(value.empty() ? odd_value(random) : json(value.back()));
      if (value.is_object()) value["x" + std::to_string(random() % 3)] = odd_value(random);
      break;
    case 4:  // a member under another name
      if (!value.is_object() || value.empty()) break;
      {
        auto at = std::next(value.begin(), static_cast<long>(below(random, value.size())));
        const json moved = at.value();
        const std::string name = at.key() + (random() % 2 == 0 ? "_" : "\x1b[2J\n\u0085");
        value.erase(at);
        value[name] = moved;
      }
      break;
    default:
      if (value.is_number())
        change_number(value, random);
      else if (value.is_string())
        value = value.get<std::string>() + "\u00e9\x1b\n";
      else
        value = odd_value(random);
  }
}

}  // namespace

namespace mkbench::fuzz {

size_t mutate_json(uint8_t* data, size_t size, size_t max_size, unsigned seed, size_t prefix) {
  Random random(seed);
  if (below(random, 4) == 0 || size < prefix) return LLVMFuzzerMutate(data, size, max_size);
  auto length = static_cast<uint32_t>(size - prefix);
  if (prefix >= sizeof(length)) {
    uint32_t told = 0;
    std::memcpy(&told, data, sizeof(told));
    length = std::min(length, told);
  }
  json document = json::parse(data + prefix, data + prefix + length, nullptr, false);
  if (document.is_discarded()) return LLVMFuzzerMutate(data, size, max_size);
  for (size_t edits = 1 + below(random, 3); edits > 0; --edits) mutate(document, random);
  std::string text = document.dump(-1, ' ', false, json::error_handler_t::replace);
  const auto dumped = static_cast<uint32_t>(text.size());
  text.append(data + prefix + length, data + size);
  if (text.size() + prefix > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, &dumped, std::min(prefix, sizeof(dumped)));
  std::memcpy(data + prefix, text.data(), text.size());
  return text.size() + prefix;
}

}  // namespace mkbench::fuzz
