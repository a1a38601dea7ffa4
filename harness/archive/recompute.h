// Computes a report's figures and verdicts again from its samples and recorded inputs, by the code
// that wrote them, and compares them with what the file says.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "harness/flow/case_settings.h"
#include "harness/report/report.h"

namespace mkbench {

// A value of a report that differs from the one computed from the rest of the report.
struct Difference {
  std::string path, found, recomputed;
};

// Differences found so far, and how many values were compared.
class Differences {
 public:
  // In a report of an older minor version of the schema, leaves out the fields whose rule has
  // changed since, or whose inputs the report does not hold (kFormerRules in recompute.cpp).
  void read_as(int schema_minor) { schema_minor_ = schema_minor; }
  // Compares two values, item by item, and counts them as one. Numbers are equal to 12 digits,
  // because another machine's exp() and log() may round the last one differently.
  void same(const std::string& path, const nlohmann::json& found, const nlohmann::json& recomputed);
  // Reports a difference at `path` unless `does`; `wanted` completes "found X, recomputed ...".
  void holds(bool does, const std::string& path, const nlohmann::json& found,
             const std::string& wanted);
  void count(int64_t figures) { figures_ += figures; }

  const std::vector<Difference>& all() const { return all_; }
  int64_t figures() const { return figures_; }
  // The fields that read_as() leaves out, such as "cases[].comparisons".
  const std::set<std::string>& left_out() const { return left_out_; }

 private:
  bool is_left_out(const std::string& path);
  void compare(const std::string& path, const nlohmann::json& found,
               const nlohmann::json& recomputed);
  void add(const std::string& path, const std::string& found, const std::string& recomputed);

  std::vector<Difference> all_;
  std::set<std::string> left_out_;
  int64_t figures_ = 0;
  int schema_minor_ = kReportSchemaMinor;
};

// The settings that the report's meta.options records, as far as figures depend on them. Throws
// Error(kBadInput) naming the option.
CaseSettings recorded_settings(const nlohmann::json& meta);

// Sets c.memory, the bytes that a token must read and the least time for them, from device and
// calibration of `report`; does nothing without `config` (weights not loaded).
void set_memory(const Report& report, const std::optional<ModelConfig>& config, CaseReport& c);

// "path.list[i]".
inline std::string item(const std::string& path, const char* list, size_t i) {
  return path + "." + list + "[" + std::to_string(i) + "]";
}

// Recomputes every derived field of `found`. `as_written` is the JSON that it was read from. Throws
// Error(kBadInput) if meta.options cannot be read.
void recompute(const Report& found, const nlohmann::json& as_written, Differences& differences);

// Cross-check the inputs of a case: receipts against ids, samples against axes and block order,
// ids against the closed form; and the parity checks of an engine against their values and rows.
void recheck_samples(const CaseReport& c, const std::string& path, const CaseSettings& settings,
                     const nlohmann::json& meta, Differences& differences);
void recheck_parity(const CaseReport& c, const EngineReport& e, const std::string& path,
                    int schema_minor, Differences& differences);

// Compares the report's seal with the values that it covers. This also finds an edit of a value on
// which no other value depends.
void recheck_seal(const nlohmann::json& as_written, Differences& differences);

// read_report(), recompute() and recheck_seal() of a file; every message names it.
Report read_and_recompute(const std::filesystem::path& file, Differences& differences);

// Reads a report that must be unchanged since it was written. Throws Error(kIntegrity) with the
// first difference that recomputing finds; `asked_by` begins the message.
Report read_sound_report(const std::filesystem::path& file, const std::string& asked_by);

// The report.json that an argument names: a file, or the folder that holds it.
std::filesystem::path report_file(const std::string& argument);

}  // namespace mkbench
