#include <fmt/format.h>

#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

using nlohmann::json;

// Bounds for a report of hundreds of cases.
constexpr JsonLimits kReportLimits{
    .bytes = size_t{1} << 30, .depth = 64, .keys = size_t{1} << 26, .values = size_t{1} << 27};

void check_schema(const json& report) {
  const auto refuse = [](const char* field, const json& found, const std::string& wanted) {
    throw Error(ErrorKind::kBadInput,
                fmt::format("{}: found {}, wanted {}", field,
                            found.is_null() ? "nothing" : json_fields::shown(found), wanted));
  };
  if (!report.is_object()) refuse("top", report, "an object");
  const json schema = report.value("schema", json());
  if (!schema.is_object()) refuse("schema", schema, "an object with id and version");
  const json id = schema.value("id", json()), version = schema.value("version", json());
  if (id != kReportSchemaId) refuse("schema.id", id, fmt::format("\"{}\"", kReportSchemaId));
  if (version != kReportSchemaVersion) {
    refuse("schema.version", version,
           fmt::format("\"{}\": the mkbench that wrote a report reads it", kReportSchemaVersion));
  }
}

// Refuses what the file holds and no field list names. `known`: the JSON that the structs give.
void check_known(const json& found, const json& known, const std::string& path) {
  if (found.is_array() && known.is_array()) {
    for (size_t i = 0; i < std::min(found.size(), known.size()); ++i)
      check_known(found[i], known[i], fmt::format("{}[{}]", path, i));
  }
  if (!found.is_object() || !known.is_object()) return;
  for (const auto& [name, value] : found.items()) {
    const std::string at = path.empty() ? name : path + "." + name;
    if (!known.contains(name)) json_fields::refuse(at, json_fields::shown(value), "no such field");
    check_known(value, known.at(name), at);
  }
}

}  // namespace

Report read_report(const std::filesystem::path& file, json* as_written) {
  json found = read_json_strict(file, kReportLimits);
  Report report;
  try {
    check_schema(found);
    json_fields::read(found, "", report);
    json known = to_json(report);
    known["seal"] = found.value("seal", json());  // recompute() compares it, entry by entry
    check_known(found, known, "");
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", file.string(), error.what()));
  }
  if (!found.contains("seal") || !found["seal"].is_object()) {
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("{}: seal: found {}, wanted an object", file.string(),
                    found.contains("seal") ? json_fields::shown(found["seal"]) : "nothing"));
  }
  if (as_written != nullptr) *as_written = std::move(found);
  return report;
}

}  // namespace mkbench
