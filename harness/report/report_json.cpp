#include "harness/report/report.h"
#include "references/base/json_fields.h"

namespace mkbench {

nlohmann::json to_json(const Report& report) {
  nlohmann::json out = json_fields::write(report);
  out["schema"] = {{"id", kReportSchemaId}, {"version", kReportSchemaVersion}};
  return out;
}

}  // namespace mkbench
