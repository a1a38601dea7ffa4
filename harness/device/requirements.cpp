#include "harness/device/requirements.h"

#include <fmt/format.h>

#include <algorithm>

#include "harness/device/file_text.h"

namespace mkbench {
namespace {

constexpr double kGb = 1e9;
constexpr double kAlmost = 0.5;  // a card that is sold with 48 GB shows 47.7 of them

// A row for an amount; `unit` begins with a space where it is not empty.
void judge_amount(const Requirement& wanted, double found, double slack, const char* unit,
                  const std::string& of, Items& items) {
  const std::string topic = "require " + wanted.key;
  const std::string text =
      fmt::format("found {:.1f}{}{}, wanted {}{}", found, unit, of, wanted.wanted, unit);
  if (found + slack >= wanted.number) {
    items.fine(topic, text);
  } else {
    items.problem(topic, text, "take another offer");
  }
}

}  // namespace

std::vector<DoctorItem> judge_requirements(const std::vector<Requirement>& wanted,
                                           const DeviceList& devices, int gpu,
                                           const HostMachine& machine) {
  std::vector<DoctorItem> rows;
  Items items(rows);
  const DeviceInfo* card = find_device(devices, gpu);
  for (const Requirement& one : wanted) {
    if (one.key == "gpu") {
      const std::string text =
          fmt::format("found {}, wanted {}", card ? card->name : "none", one.wanted);
      if (card && lower(card->name).find(lower(one.wanted)) != std::string::npos) {
        items.fine("require gpu", text);
      } else {
        items.problem("require gpu", text, "take another offer");
      }
    } else if (one.key == "vram") {
      judge_amount(one, card ? static_cast<double>(card->total_bytes) / kGb : 0, kAlmost, " GB",
                   card ? "" : " (no GPU)", items);
    } else if (one.key == "ram") {
      judge_amount(one, static_cast<double>(machine.memory_total) / kGb, kAlmost, " GB", "", items);
    } else if (one.key == "disk") {
      judge_amount(one, static_cast<double>(machine.disk_free) / kGb, kAlmost, " GB",
                   " free in " + machine.disk_folder, items);
    } else {
      judge_amount(one, machine.cores, 0, "", "", items);
    }
  }
  return rows;
}

}  // namespace mkbench
