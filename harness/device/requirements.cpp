#include "harness/device/requirements.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>
#include <string_view>

#include "references/base/error.h"

namespace mkbench {
namespace {

constexpr double kGb = 1e9;
constexpr double kAlmost = 0.5;  // a card that is sold with 48 GB shows 47.7 of them
constexpr std::string_view kKeys[] = {"gpu", "vram", "ram", "cores", "disk"};

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorKind::kBadInput, "--require: " + what);
}

Requirement parse_requirement(const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size())
    refuse(fmt::format("found '{}', wanted KEY=VALUE with {}", word, fmt::join(kKeys, ", ")));
  Requirement one{word.substr(0, equals), word.substr(equals + 1)};
  if (std::find(std::begin(kKeys), std::end(kKeys), one.key) == std::end(kKeys))
    refuse(fmt::format("'{}' is unknown; known: {}", one.key, fmt::join(kKeys, ", ")));
  if (one.key == "gpu") return one;
  const char* const end = one.wanted.data() + one.wanted.size();
  const auto [stop, error] = std::from_chars(one.wanted.data(), end, one.number);
  if (error != std::errc() || stop != end || !std::isfinite(one.number) || one.number <= 0)
    refuse(fmt::format("{}: found '{}', wanted a number{} over 0", one.key, one.wanted,
                       one.key == "cores" ? "" : " of GB"));
  return one;
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

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

std::vector<Requirement> parse_requirements(const std::string& text) {
  std::vector<Requirement> all;
  std::istringstream words(text + ",");
  for (std::string word; std::getline(words, word, ',');) {
    const Requirement one = parse_requirement(word);
    const auto same = [&](const Requirement& r) { return r.key == one.key; };
    if (std::any_of(all.begin(), all.end(), same)) refuse(one.key + " is there twice");
    all.push_back(one);
  }
  return all;
}

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
