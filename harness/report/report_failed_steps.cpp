#include <fmt/format.h>

#include "harness/report/report.h"
#include "references/base/error.h"
#include "references/base/json_fields.h"
#include "references/base/json_strict.h"

namespace mkbench {

namespace fs = std::filesystem;

void name_failed_steps(Report& report, const fs::path& folder) {
  for_each_failed_step(report, folder, [](FailedStep& step, const fs::path& file) {
    if (step.command.empty()) step.command = fmt::format("mkbench parity --only {}", file.string());
  });
}

void write_failed_steps(const Report& report, const fs::path& folder) {
  for_each_failed_step(report, folder, [](const FailedStep& step, const fs::path& file) {
    std::error_code error;
    fs::create_directories(file.parent_path(), error);  // write_text() reports what is missing
    write_text(file, json_fields::write(step).dump(2) + "\n");
  });
}

FailedStep read_failed_step(const fs::path& file) {
  auto step = json_fields::read_as<FailedStep>(read_json_strict(file), file.string());
  if (!step.prompt_ids.empty()) return step;
  throw Error(ErrorKind::kBadInput,
              fmt::format("{}: prompt_ids: found none, wanted at least one", file.string()));
}

}  // namespace mkbench
