// Converts structs to JSON and back by their field lists (fields.h). Enums that have enum_text(E)
// are words, other enums are numbers. A variant is an object whose "type" is the kType of the
// struct that it holds. A double that is not finite becomes null, with the reason in
// "<field>_reason"; a float becomes that reason itself, because floats stand in lists, whose items
// have no field for a reason.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "references/base/error.h"
#include "references/base/fields.h"
#include "references/base/one_line.h"

namespace mkbench::json_fields {

using nlohmann::json;

template <typename T>
inline constexpr bool kIsVector = false;
template <typename T>
inline constexpr bool kIsVector<std::vector<T>> = true;
template <typename T>
inline constexpr bool kIsOptional = false;
template <typename T>
inline constexpr bool kIsOptional<std::optional<T>> = true;
template <typename T>
inline constexpr bool kIsMap = false;
template <typename T>
inline constexpr bool kIsMap<std::map<std::string, T>> = true;
template <typename T>
inline constexpr bool kIsVariant = false;
template <typename... T>
inline constexpr bool kIsVariant<std::variant<T...>> = true;

inline constexpr char kReasonSuffix[] = "_reason";

inline std::string not_finite(double v) {
  return std::isnan(v) ? "not finite: nan" : v > 0 ? "not finite: inf" : "not finite: -inf";
}

// ---- writing ----

template <typename T>
json write(const T& v);

template <typename T>
class Writer {
 public:
  Writer(const T& object, json& out) : object_(object), out_(out) {}

  template <typename M, typename Owner>
  void field(const char* name, M Owner::*member, const char* = "") {
    put(name, object_.*member);
  }
  template <typename Body>
  void group(const char* name, const char*, Body body) {
    json inner = json::object();
    Writer nested(object_, inner);
    body(nested);
    out_[name] = std::move(inner);
  }

 private:
  template <typename M>
  void put(const std::string& name, const M& value) {
    out_[name] = write(value);
  }
  void put(const std::string& name, double value) {
    out_[name] = write(value);
    if (!std::isfinite(value)) out_[name + kReasonSuffix] = not_finite(value);
  }
  void put(const std::string& name, const std::optional<double>& value) {
    if (value) return put(name, *value);
    out_[name] = nullptr;
  }
  void put(const std::string& name, const Number& number) {
    put(name, number.value);
    if (!number.value)
      out_[name + kReasonSuffix] = number.reason.empty() ? "not measured" : number.reason;
  }

  const T& object_;
  json& out_;
};

template <typename T>
json write(const T& v) {
  if constexpr (std::is_same_v<T, double>) {
    return std::isfinite(v) ? json(v) : json(nullptr);
  } else if constexpr (std::is_same_v<T, float>) {
    return std::isfinite(v) ? json(v) : json(not_finite(v));
  } else if constexpr (std::is_same_v<T, json> || std::is_arithmetic_v<T> ||
                       std::is_same_v<T, std::string>) {
    return v;
  } else if constexpr (requires { enum_text(v); }) {
    return std::string(enum_text(v));
  } else if constexpr (std::is_enum_v<T>) {
    return static_cast<int>(v);
  } else if constexpr (kIsOptional<T>) {
    return v ? write(*v) : json(nullptr);
  } else if constexpr (kIsVector<T>) {
    json list = json::array();
    for (const auto& item : v) list.push_back(write(item));
    return list;
  } else if constexpr (kIsMap<T>) {
    json object = json::object();
    for (const auto& [key, item] : v) object[key] = write(item);
    return object;
  } else if constexpr (kIsVariant<T>) {
    return std::visit(
        [](const auto& held) {
          json object = write(held);
          object["type"] = std::decay_t<decltype(held)>::kType;
          return object;
        },
        v);
  } else {
    json out = json::object();
    Writer<T> writer(v, out);
    describe_fields(writer, Tag<T>());
    return out;
  }
}

// ---- reading ----

[[noreturn]] inline void refuse(const std::string& path, const std::string& found,
                                std::string_view wanted) {
  // Names and values come from an untrusted file.
  constexpr size_t kLongest = 1000;
  throw Error(ErrorKind::kBadInput,
              one_line(fmt::format("{}: found {}, wanted {}", path, found, wanted), kLongest));
}

inline std::string shown(const json& j) {
  const std::string text = j.dump(-1, ' ', false, json::error_handler_t::replace);
  return one_line(text, text.size() <= 60 ? 60 : 57);  // dump() leaves U+007F to U+009F unescaped
}

// Whether a field that the JSON lacks is an error or keeps its default.
enum class Absent { kRefused, kDefault };

template <typename T>
void read(const json& j, const std::string& path, T& v, Absent absent = Absent::kRefused);

template <typename T>
class Reader {
 public:
  Reader(const json& in, std::string path, T& object, Absent absent)
      : in_(in), path_(std::move(path)), object_(object), absent_(absent) {
    if (!in.is_object()) refuse(path_.empty() ? "top" : path_, shown(in), "an object");
  }

  template <typename M, typename Owner>
  void field(const char* name, M Owner::*member, const char* = "") {
    if (has(name)) get(name, object_.*member);
  }
  template <typename Body>
  void group(const char* name, const char*, Body body) {
    if (!has(name)) return;
    Reader nested(in_.at(name), path_of(name), object_, absent_);
    body(nested);
  }

 private:
  std::string path_of(const std::string& name) const {
    return path_.empty() ? name : path_ + "." + name;
  }
  bool has(const std::string& name) const {
    const bool found = in_.contains(name);
    if (!found && absent_ == Absent::kRefused) refuse(path_of(name), "nothing", "a value");
    return found;
  }
  std::string reason_of(const std::string& name) const {
    const auto found = in_.find(name + kReasonSuffix);
    return found != in_.end() && found->is_string() ? found->template get<std::string>() : "";
  }
  // The number that a null stands for, if its reason says that it was not finite.
  std::optional<double> hidden_value(const std::string& name) const {
    using Limits = std::numeric_limits<double>;
    for (const double v : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
      if (reason_of(name) == not_finite(v)) return v;
    }
    return std::nullopt;
  }

  template <typename M>
  void get(const std::string& name, M& value) {
    read(in_.at(name), path_of(name), value, absent_);
  }
  void get(const std::string& name, double& value) {
    const std::optional<double> hidden = in_.at(name).is_null() ? hidden_value(name) : std::nullopt;
    if (hidden) {
      value = *hidden;
    } else {
      read(in_.at(name), path_of(name), value);
    }
  }
  void get(const std::string& name, std::optional<double>& value) {
    read(in_.at(name), path_of(name), value);
    if (!value) value = hidden_value(name);
  }
  void get(const std::string& name, Number& number) {
    read(in_.at(name), path_of(name), number.value);
    number.reason = number.value ? std::string() : reason_of(name);
    if (!number.value && number.reason.empty()) {
      refuse(path_of(name + kReasonSuffix), "nothing", "the reason for null");
    }
  }

  const json& in_;
  std::string path_;
  T& object_;
  Absent absent_;
};

template <typename T>
void read_integer(const json& j, const std::string& path, T& v) {
  // Unsigned JSON integers that do not fit would wrap in get<int64_t>().
  const bool fits = j.is_number_unsigned()
                        ? std::in_range<T>(j.get<uint64_t>())
                        : j.is_number_integer() && std::in_range<T>(j.get<int64_t>());
  if (!fits) refuse(path, shown(j), fmt::format("an integer of {} bits", 8 * sizeof(T)));
  v = j.get<T>();
}

template <size_t I = 0, typename... T>
void read_variant(const json& j, const std::string& path, const std::string& type,
                  std::variant<T...>& v, Absent absent) {
  if constexpr (I == sizeof...(T)) {
    refuse(path.empty() ? "type" : path + ".type", "'" + type + "'", "a known type");
  } else {
    using Held = std::variant_alternative_t<I, std::variant<T...>>;
    if (type != Held::kType) return read_variant<I + 1>(j, path, type, v, absent);
    Held held{};
    read(j, path.empty() ? type : path, held, absent);
    v = std::move(held);
  }
}

template <typename T>
void read(const json& j, const std::string& path, T& v, Absent absent) {
  if constexpr (std::is_same_v<T, json>) {
    v = j;
  } else if constexpr (std::is_same_v<T, bool>) {
    if (!j.is_boolean()) refuse(path, shown(j), "true or false");
    v = j.get<bool>();
  } else if constexpr (std::is_integral_v<T>) {
    read_integer(j, path, v);
  } else if constexpr (std::is_floating_point_v<T>) {
    if constexpr (std::is_same_v<T, float>) {
      using Limits = std::numeric_limits<float>;
      for (const float f : {Limits::quiet_NaN(), Limits::infinity(), -Limits::infinity()}) {
        if (j == not_finite(f)) return void(v = f);
      }
    }
    if (!j.is_number()) refuse(path, shown(j), "a number");
    v = j.get<T>();
  } else if constexpr (std::is_same_v<T, std::string>) {
    if (!j.is_string()) refuse(path, shown(j), "a string");
    v = j.get<std::string>();
  } else if constexpr (requires { enum_text(v); }) {
    std::string word;
    read(j, path, word);
    const std::optional<T> found = enum_from_text(Tag<T>(), word);
    if (!found) {
      std::vector<std::string_view> words;
      for (const T value : enum_values(Tag<T>())) words.push_back(enum_text(value));
      refuse(path, shown(j), fmt::format("one of {}", fmt::join(words, ", ")));
    }
    v = *found;
  } else if constexpr (std::is_enum_v<T>) {
    int number = 0;
    read(j, path, number);
    v = static_cast<T>(number);
  } else if constexpr (kIsOptional<T>) {
    v.reset();
    if (j.is_null()) return;
    typename T::value_type item{};
    read(j, path, item, absent);
    v = std::move(item);
  } else if constexpr (kIsVector<T>) {
    if (!j.is_array()) refuse(path, shown(j), "a list");
    v.clear();
    v.reserve(j.size());
    for (size_t i = 0; i < j.size(); ++i) {
      typename T::value_type item{};
      read(j[i], fmt::format("{}[{}]", path, i), item, absent);
      v.push_back(std::move(item));
    }
  } else if constexpr (kIsMap<T>) {
    if (!j.is_object()) refuse(path, shown(j), "an object");
    v.clear();
    for (const auto& [key, item] : j.items()) read(item, path + "." + key, v[key], absent);
  } else if constexpr (kIsVariant<T>) {
    if (!j.is_object()) refuse(path.empty() ? "top" : path, shown(j), "an object");
    std::string type;
    read(j.value("type", json()), path.empty() ? "type" : path + ".type", type);
    read_variant(j, path, type, v, absent);
  } else {
    Reader<T> reader(j, path, v, absent);
    describe_fields(reader, Tag<T>());
  }
}

template <typename T>
T read_as(const json& j, const std::string& path) {
  T object{};
  read(j, path, object);
  return object;
}

// What a file holds besides its member `schema`, whose id and version must be these. Throws
// Error(kBadInput) that begins with the file's name.
template <typename T>
T read_file_as(json j, const std::string& file, std::string_view id, std::string_view version) {
  const json found = j.is_object() ? j.value("schema", json()) : json();
  if (found != json{{"id", id}, {"version", version}})
    refuse(file + ": schema", shown(found), json{{"id", id}, {"version", version}}.dump());
  j.erase("schema");
  try {
    return read_as<T>(j, "");
  } catch (const Error& error) {
    throw Error(error.kind(), file + ": " + error.what());
  }
}

}  // namespace mkbench::json_fields
