#include <fmt/format.h>

#include <charconv>
#include <set>

#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

using nlohmann::json;

// Reports carry a seal since this minor version.
constexpr int kSealedSince = 6;
// Bounds for a report of hundreds of cases.
constexpr JsonLimits kReportLimits{
    .bytes = size_t{1} << 30, .depth = 64, .keys = size_t{1} << 26, .values = size_t{1} << 27};

// The minor version of a report of this major version.
int minor_version_of(const json& report) {
  const auto refuse = [](const char* field, const json& found, const std::string& wanted) {
    json_fields::refuse(field, found.is_null() ? "nothing" : json_fields::shown(found), wanted);
  };
  if (!report.is_object()) refuse("top", report, "an object");
  const json schema = report.value("schema", json());
  if (!schema.is_object()) refuse("schema", schema, "an object with id and version");
  const json id = schema.value("id", json()), version = schema.value("version", json());
  if (id != kReportSchemaId) refuse("schema.id", id, fmt::format("\"{}\"", kReportSchemaId));
  const std::string text = version.is_string() ? version.get<std::string>() : "";
  const std::string major = fmt::format("{}.", kReportSchemaMajor);
  int minor = -1;
  const char* const end = text.data() + text.size();
  const auto [rest, error] = text.starts_with(major)
                                 ? std::from_chars(text.data() + major.size(), end, minor)
                                 : std::from_chars_result{end, std::errc::invalid_argument};
  if (error != std::errc() || minor < 0 || rest == end || *rest != '.') {
    refuse(
        "schema.version", version,
        fmt::format("{0}.*: an mkbench reads the reports of its major version, which is {0} here",
                    kReportSchemaMajor));
  }
  return minor;
}

// Collects the fields of the file that are in no field list. `known`: the JSON of the structs.
void find_unknown(const json& found, const json& known, const std::string& path,
                  std::set<std::string>& unknown) {
  if (found.is_array() && known.is_array()) {
    for (size_t i = 0; i < std::min(found.size(), known.size()); ++i)
      find_unknown(found[i], known[i], path + "[]", unknown);
  }
  if (!found.is_object() || !known.is_object()) return;
  for (const auto& [name, value] : found.items()) {
    const std::string at = path.empty() ? name : path + "." + name;
    if (known.contains(name)) {
      find_unknown(value, known.at(name), at, unknown);
    } else {
      unknown.insert(at);
    }
  }
}

}  // namespace

Report report_of(const json& found) {
  Report report;
  report.schema_minor = minor_version_of(found);
  const bool older = report.schema_minor < kReportSchemaMinor;
  json_fields::read(found, "", report,
                    older ? json_fields::Absent::kDefault : json_fields::Absent::kRefused);
  json known = to_json(report);
  known["seal"] = json();  // recheck_seal() compares it, entry by entry
  find_unknown(found, known, "", report.unknown_fields);
  const json seal = found.value("seal", json());
  if (report.schema_minor >= kSealedSince && !seal.is_object())
    json_fields::refuse("seal", seal.is_null() ? "nothing" : json_fields::shown(seal), "an object");
  return report;
}

Report read_report(const std::filesystem::path& file, json* as_written) {
  json found = read_json_strict(file, kReportLimits);
  try {
    Report report = report_of(found);
    if (as_written != nullptr) *as_written = std::move(found);
    return report;
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", file.string(), error.what()));
  }
}

}  // namespace mkbench
