#include <fmt/format.h>

#include <cmath>
#include <limits>

#include "harness/report/field_lists.h"

namespace mkbench {
namespace {

using nlohmann::json;

constexpr char kReasonSuffix[] = "_reason";
constexpr char kNotFinite[] = "not finite: ";

template <typename T>
json write_struct(const T& object);
template <typename T>
void read_struct(const json& j, const std::string& path, T& object);

// ---- writing ----

json write_value(const json& v) { return v; }
json write_value(bool v) { return v; }
json write_value(int v) { return v; }
json write_value(int64_t v) { return v; }
json write_value(const std::string& v) { return v; }
json write_value(double v) { return std::isfinite(v) ? json(v) : json(nullptr); }
json write_value(Verdict v) { return std::string(verdict_name(v)); }
json write_value(StepVerdict v) { return std::string(step_verdict_name(v)); }
json write_value(Check v) { return std::string(check_name(v)); }
json write_value(CheckStatus v) { return std::string(check_status_name(v)); }
template <typename T>
json write_value(const T& v) {
  return write_struct(v);
}
template <typename T>
json write_value(const std::vector<T>& v) {
  json list = json::array();
  for (const T& item : v) list.push_back(write_value(item));
  return list;
}
template <typename T>
json write_value(const std::optional<T>& v) {
  return v ? write_value(*v) : json(nullptr);
}

std::string not_finite(double v) {
  return kNotFinite + std::string(std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf");
}

template <typename T>
class Writer {
 public:
  Writer(const T& object, json& out) : object_(object), out_(out) {}

  template <typename M>
  void field(const char* name, M T::*member, const char*) {
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
    out_[name] = write_value(value);
  }
  // JSON has no NaN: null, and beside it the reason.
  void put(const std::string& name, double value) {
    out_[name] = write_value(value);
    if (!std::isfinite(value)) out_[name + kReasonSuffix] = not_finite(value);
  }
  void put(const std::string& name, const std::optional<double>& value) {
    if (value) {
      put(name, *value);
    } else {
      out_[name] = nullptr;
    }
  }
  void put(const std::string& name, const Number& number) {
    if (number.value) {
      put(name, *number.value);
    } else {
      out_[name] = nullptr;
      out_[name + kReasonSuffix] = number.reason.empty() ? "not measured" : number.reason;
    }
  }

  const T& object_;
  json& out_;
};

template <typename T>
json write_struct(const T& object) {
  json out = json::object();
  Writer<T> writer(object, out);
  describe_fields(writer, Tag<T>());
  return out;
}

// ---- reading ----

[[noreturn]] void refuse(const std::string& path, const std::string& found, const char* wanted) {
  throw Error(ErrorKind::kBadInput,
              fmt::format("report: {}: found {}, wanted {}", path, found, wanted));
}

std::string shown(const json& j) {
  const std::string text = j.dump(-1, ' ', false, json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

void read_value(const json& j, const std::string&, json& v) { v = j; }
void read_value(const json& j, const std::string& path, bool& v) {
  if (!j.is_boolean()) refuse(path, shown(j), "true or false");
  v = j.get<bool>();
}
void read_value(const json& j, const std::string& path, int64_t& v) {
  const bool too_large =
      j.is_number_unsigned() &&
      j.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  if (!j.is_number_integer() || too_large) refuse(path, shown(j), "an integer");
  v = j.get<int64_t>();
}
void read_value(const json& j, const std::string& path, int& v) {
  int64_t wide = 0;
  read_value(j, path, wide);
  if (wide < std::numeric_limits<int>::min() || wide > std::numeric_limits<int>::max()) {
    refuse(path, shown(j), "an integer of 32 bits");
  }
  v = static_cast<int>(wide);
}
void read_value(const json& j, const std::string& path, double& v) {
  if (!j.is_number()) refuse(path, shown(j), "a number");
  v = j.get<double>();
}
void read_value(const json& j, const std::string& path, std::string& v) {
  if (!j.is_string()) refuse(path, shown(j), "a string");
  v = j.get<std::string>();
}
void read_value(const json& j, const std::string& path, Verdict& v) {
  std::string name;
  read_value(j, path, name);
  const std::optional<Verdict> found = verdict_from_name(name);
  if (!found) refuse(path, shown(j), "a verdict");
  v = *found;
}
void read_value(const json& j, const std::string& path, StepVerdict& v) {
  std::string name;
  read_value(j, path, name);
  for (const StepVerdict s :
       {StepVerdict::kExact, StepVerdict::kTie, StepVerdict::kDrift, StepVerdict::kWrong}) {
    if (name == step_verdict_name(s)) {
      v = s;
      return;
    }
  }
  refuse(path, shown(j), "EXACT, TIE, DRIFT or WRONG");
}
void read_value(const json& j, const std::string& path, Check& v) {
  std::string name;
  read_value(j, path, name);
  const std::optional<Check> found = check_from_name(name);
  if (!found) refuse(path, shown(j), "the name of a check");
  v = *found;
}
void read_value(const json& j, const std::string& path, CheckStatus& v) {
  std::string name;
  read_value(j, path, name);
  const std::optional<CheckStatus> found = check_status_from_name(name);
  if (!found) refuse(path, shown(j), "passed, failed or not_applicable");
  v = *found;
}
template <typename T>
void read_value(const json& j, const std::string& path, T& v) {
  read_struct(j, path, v);
}
template <typename T>
void read_value(const json& j, const std::string& path, std::vector<T>& v) {
  if (!j.is_array()) refuse(path, shown(j), "a list");
  v.clear();
  v.reserve(j.size());
  for (size_t i = 0; i < j.size(); ++i) {
    T item{};
    read_value(j[i], fmt::format("{}[{}]", path, i), item);
    v.push_back(std::move(item));
  }
}
template <typename T>
void read_value(const json& j, const std::string& path, std::optional<T>& v) {
  v.reset();
  if (j.is_null()) return;
  T item{};
  read_value(j, path, item);
  v = std::move(item);
}

template <typename T>
class Reader {
 public:
  Reader(const json& in, std::string path, T& object)
      : in_(in), path_(std::move(path)), object_(object) {
    if (!in.is_object()) refuse(path_.empty() ? "top" : path_, shown(in), "an object");
  }

  template <typename M>
  void field(const char* name, M T::*member, const char*) {
    get(name, object_.*member);
  }
  template <typename Body>
  void group(const char* name, const char*, Body body) {
    Reader nested(at(name), path_of(name), object_);
    body(nested);
  }

 private:
  std::string path_of(const std::string& name) const {
    return path_.empty() ? name : path_ + "." + name;
  }
  const json& at(const std::string& name) const {
    const auto found = in_.find(name);
    if (found == in_.end()) refuse(path_of(name), "nothing", "a value");
    return *found;
  }
  std::string reason_of(const std::string& name) const {
    const auto found = in_.find(name + kReasonSuffix);
    return found != in_.end() && found->is_string() ? found->get<std::string>() : std::string();
  }
  // The number that a null stands for, if its reason says that it was not finite.
  std::optional<double> hidden_value(const std::string& name) const {
    const std::string reason = reason_of(name);
    for (const double v :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
          -std::numeric_limits<double>::infinity()}) {
      if (reason == not_finite(v)) return v;
    }
    return std::nullopt;
  }

  template <typename M>
  void get(const std::string& name, M& value) {
    read_value(at(name), path_of(name), value);
  }
  void get(const std::string& name, double& value) {
    const std::optional<double> hidden = at(name).is_null() ? hidden_value(name) : std::nullopt;
    if (hidden) {
      value = *hidden;
    } else {
      read_value(at(name), path_of(name), value);
    }
  }
  void get(const std::string& name, std::optional<double>& value) {
    read_value(at(name), path_of(name), value);
    if (!value) value = hidden_value(name);
  }
  void get(const std::string& name, Number& number) {
    read_value(at(name), path_of(name), number.value);
    number.reason = number.value ? std::string() : reason_of(name);
    if (!number.value && number.reason.empty()) {
      refuse(path_of(name + kReasonSuffix), "nothing", "the reason for null");
    }
  }

  const json& in_;
  std::string path_;
  T& object_;
};

template <typename T>
void read_struct(const json& j, const std::string& path, T& object) {
  Reader<T> reader(j, path, object);
  describe_fields(reader, Tag<T>());
}

template <typename T>
T read_as(const json& j, const char* path) {
  T object{};
  read_struct(j, path, object);
  return object;
}

// Major version of "1.2.3", or -1.
int major_of(const std::string& version) {
  const size_t dot = version.find('.');
  if (dot == 0 || dot == std::string::npos || dot > 6) return -1;
  int major = 0;
  for (size_t i = 0; i < dot; ++i) {
    if (version[i] < '0' || version[i] > '9') return -1;
    major = 10 * major + (version[i] - '0');
  }
  return major;
}

void check_schema(const json& j) {
  if (!j.is_object()) refuse("top", shown(j), "an object");
  const json* schema = j.contains("schema") ? &j["schema"] : nullptr;
  if (schema == nullptr || !schema->is_object()) refuse("schema", "nothing", "an object");
  std::string id, version;
  read_value(schema->value("id", json()), "schema.id", id);
  read_value(schema->value("version", json()), "schema.version", version);
  if (id != kReportSchemaId) refuse("schema.id", shown(id), kReportSchemaId);
  if (major_of(version) != major_of(kReportSchemaVersion)) {
    refuse("schema.version", shown(version), kReportSchemaVersion);
  }
}

}  // namespace

json to_json(const Report& report) {
  json out = write_struct(report);
  out["schema"] = {{"id", kReportSchemaId}, {"version", kReportSchemaVersion}};
  return out;
}

Report report_from_json(const json& j) {
  check_schema(j);
  return read_as<Report>(j, "");
}

json parity_to_json(const ParityReport& p) { return write_struct(p); }
ParityReport parity_from_json(const json& j) { return read_as<ParityReport>(j, "parity"); }
json sample_to_json(const Sample& s) { return write_struct(s); }
Sample sample_from_json(const json& j) { return read_as<Sample>(j, "sample"); }
json profile_to_json(const ProfileReport& p) { return write_struct(p); }
ProfileReport profile_from_json(const json& j) { return read_as<ProfileReport>(j, "profile"); }
json engine_to_json(const EngineReport& e) { return write_struct(e); }
EngineReport engine_from_json(const json& j) { return read_as<EngineReport>(j, "engine"); }

}  // namespace mkbench
