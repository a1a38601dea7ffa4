// Reads the keys of one object of a config.json and makes a finding of each value that is not
// accepted.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "references/base/json_strict.h"
#include "references/model_finding.h"

namespace mkbench {

class ConfigFields {
 public:
  using json = nlohmann::json;

  // `prefix`: where the object is in the file, as "talker_config."; messages begin with `path`.
  ConfigFields(const json& object, std::string prefix, const std::string& path,
               ModelFindings& findings)
      : object_(object), prefix_(std::move(prefix)), path_(path), findings_(findings) {}

  const json& object() const { return object_; }
  bool ends_at_first() const { return findings_.throws(); }

  // The value of a key, or null when it is absent or JSON null (which these files use alike).
  static const json* find(const json& object, const std::string& key) {
    const auto at = object.find(key);
    return at == object.end() || at->is_null() ? nullptr : &*at;
  }
  const json* find(const std::string& key) const { return find(object_, key); }
  bool has(const std::string& key) const { return object_.contains(key); }

  void report(Severity severity, const std::string& field, std::string expected, std::string found,
              const std::string& text) const {
    findings_.add(
        {.severity = severity,
         .field = field,
         .expected = std::move(expected),
         .found = std::move(found),
         .source = "config.json:" + prefix_ + field,
         .text = prefix_.empty()
                     ? text
                     : text + fmt::format(" (in {})", prefix_.substr(0, prefix_.size() - 1))},
        path_);
  }
  // "FIELD is FOUND, wanted EXPECTED"
  void fatal(const std::string& field, const std::string& expected,
             const std::string& found) const {
    report(Severity::kFatal, field, expected, found,
           fmt::format("{} is {}, wanted {}", field, found, expected));
  }
  // "FIELD is FOUND: unsupported, only EXPECTED is"
  void unsupported(const std::string& field, const std::string& expected,
                   const std::string& found) const {
    report(Severity::kUnsupported, field, expected, found,
           fmt::format("{} is {}: unsupported, only {} is", field, found, expected));
  }

  // "FIELD is FOUND, not EXPECTED: WHY", which keeps nothing from running
  void note(const std::string& field, const std::string& expected, const std::string& found,
            const std::string& why) const {
    findings_.note(field, expected, found, "config.json:" + prefix_ + field,
                   fmt::format("{} is {}, not {}: {}", field, found, expected, why));
  }

  // nullopt, and a finding, unless the value is a number above 0 and at most `max`. `object` must
  // have `key`; messages call it `shown`.
  std::optional<double> number(const json& object, const char* key, const std::string& shown,
                               double max) const {
    const json& value = object.at(key);
    const double read = value.is_number() ? value.get<double>() : 0;
    if (read > 0 && read <= max) return read;
    fatal(shown, fmt::format("a number above 0 and at most {}", max), describe(value));
    return std::nullopt;
  }

  // nullopt, and a finding, unless `key`, which must be present, holds a boolean.
  std::optional<bool> boolean(const char* key) const {
    const json& value = object_.at(key);
    if (value.is_boolean()) return value.get<bool>();
    fatal(key, "true or false", describe(value));
    return std::nullopt;
  }

 private:
  const json& object_;
  const std::string prefix_;
  const std::string& path_;
  ModelFindings& findings_;
};

struct ConfigScan;

// Reads theta and the scaling of frequencies, and refuses every variant of RoPE but plain RoPE and
// those that the family has.
void read_rope(const ConfigFields& fields, ConfigScan& scan);

}  // namespace mkbench
