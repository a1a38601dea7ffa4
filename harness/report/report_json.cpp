#include <fmt/format.h>

#include "harness/report/report.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"

namespace mkbench {
namespace {

using nlohmann::json;

constexpr char kSeal[] = "seal";
constexpr size_t kSealDigits = 16;

// Lists whose items are sealed one by one, so that a broken seal tells where.
bool is_sealed_by_item(const std::string& name) {
  return name == "cases" || name == "engines" || name == "samples";
}

std::string seal_text(const json& part) {
  const std::string text = part.dump();
  return sha256_hex(text.data(), text.size()).substr(0, kSealDigits);
}

// Seals every item of the lists in `part` for which is_sealed_by_item(), and removes these lists.
void seal_items(json& part, const std::string& path, json& seal) {
  if (!part.is_object()) return;
  for (auto member = part.begin(); member != part.end();) {
    if (!is_sealed_by_item(member.key()) || !member->is_array()) {
      ++member;
      continue;
    }
    const std::string list = path + (path.empty() ? "" : ".") + member.key();
    for (size_t i = 0; i < member->size(); ++i) {
      const std::string at = list + "[" + std::to_string(i) + "]";
      seal_items((*member)[i], at, seal);
      seal[at] = seal_text((*member)[i]);
    }
    member = part.erase(member);
  }
}

}  // namespace

json seal_of(const json& report) {
  json rest = report, seal = json::object();
  rest.erase(kSeal);
  seal_items(rest, "", seal);
  for (const auto& [name, part] : rest.items()) seal[name] = seal_text(part);
  return seal;
}

json to_json(const Report& report) {
  json out = json_fields::write(report);
  out["schema"] = {{"id", kReportSchemaId},
                   {"version", fmt::format("{}.{}.0", kReportSchemaMajor, kReportSchemaMinor)}};
  // Bytes that are not UTF-8 are replaced first, so that the seal covers what readers get.
  out = json::parse(out.dump(-1, ' ', false, json::error_handler_t::replace));
  out[kSeal] = seal_of(out);
  return out;
}

}  // namespace mkbench
