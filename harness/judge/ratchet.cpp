#include "harness/judge/ratchet.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "references/base/error.h"

namespace mkbench {
namespace {

using nlohmann::json;

constexpr char kSchemaId[] = "mkbench.ratchet";

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& what) {
  throw Error(ErrorKind::kInvalidReference, fmt::format("ratchet {}: {}", file.string(), what));
}

json read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) refuse(file, "cannot be read");
  json all = json::parse(in, nullptr, false);
  if (!all.is_object()) refuse(file, "found no JSON object");
  if (all.value("schema", "") != kSchemaId) {
    refuse(file, fmt::format("schema: wanted \"{}\"", kSchemaId));
  }
  if (!all.contains("entries") || !all["entries"].is_array())
    refuse(file, "entries: wanted a list");
  return all;
}

std::string text_of(const json& entry, const char* field, size_t index,
                    const std::filesystem::path& file) {
  if (!entry.is_object() || !entry.contains(field) || !entry[field].is_string()) {
    refuse(file, fmt::format("entries[{}].{}: wanted a string", index, field));
  }
  return entry[field].get<std::string>();
}

}  // namespace

std::string card_of(const std::string& device) {
  const size_t blank = device.find(' ');
  return blank == std::string::npos ? device : device.substr(blank + 1);
}

std::optional<double> find_ratchet(const std::filesystem::path& file, const RatchetKey& key) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  const json all = read_file(file);
  std::optional<double> found;
  for (size_t i = 0; i < all["entries"].size(); ++i) {
    const json& entry = all["entries"][i];
    const bool same = text_of(entry, "engine", i, file) == key.engine &&
                      text_of(entry, "card", i, file) == key.card &&
                      text_of(entry, "model", i, file) == key.model &&
                      text_of(entry, "lagset", i, file) == key.lagset &&
                      text_of(entry, "reference_sha256", i, file) == key.reference_sha256;
    if (!entry.contains("r_rms") || !entry["r_rms"].is_number() ||
        !(entry["r_rms"].get<double>() > 0)) {
      refuse(file, fmt::format("entries[{}].r_rms: wanted a number over 0", i));
    }
    if (same && found) refuse(file, fmt::format("entries[{}]: the key stands there twice", i));
    if (same) found = entry["r_rms"].get<double>();
  }
  return found;
}

std::string ratchet_entry(const RatchetKey& key, double r_rms) {
  nlohmann::ordered_json entry;
  entry["engine"] = key.engine;
  entry["card"] = key.card;
  entry["model"] = key.model;
  entry["lagset"] = key.lagset;
  entry["reference_sha256"] = key.reference_sha256;
  // Four digits, as scripts/update_ratchet.py writes them.
  entry["r_rms"] = std::round(r_rms * 1e4) / 1e4;
  return entry.dump();
}

}  // namespace mkbench
