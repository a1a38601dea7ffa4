#include "harness/judge/ratchet.h"

#include <fmt/format.h>

#include <algorithm>
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

std::optional<double> ratio_of(const json& entry, const char* field, size_t index,
                               const std::filesystem::path& file) {
  if (!entry.contains(field)) return std::nullopt;
  if (!entry[field].is_number() || !(entry[field].get<double>() > 0))
    refuse(file, fmt::format("entries[{}].{}: wanted a number over 0", index, field));
  return entry[field].get<double>();
}

Ratchet values_of(const json& entry, size_t index, const std::filesystem::path& file) {
  const std::optional<double> rms = ratio_of(entry, "r_rms", index, file);
  if (!rms) refuse(file, fmt::format("entries[{}].r_rms: wanted a number over 0", index));
  Ratchet values{.rms = *rms,
                 .step = ratio_of(entry, "r_step", index, file),
                 .inf = ratio_of(entry, "r_inf", index, file),
                 .kl = ratio_of(entry, "r_kl", index, file),
                 .repeats_sha256 = ""};
  if (entry.contains("repeats_sha256"))
    values.repeats_sha256 = text_of(entry, "repeats_sha256", index, file);
  return values;
}

}  // namespace

std::string card_of(const std::string& device) {
  const size_t blank = device.find(' ');
  return blank == std::string::npos ? device : device.substr(blank + 1);
}

std::string over_ratchet(const Ratios& found, const Ratchet& committed) {
  std::string all;
  const auto judge = [&](const char* name, double value, std::optional<double> reached,
                         double factor, double least) {
    if (!reached) return;
    const double limit = std::max(factor * *reached, *reached + least);
    if (value <= limit) return;
    all += fmt::format("{}{} {:.4g} > {:.4g}, from the committed {:.4g}", all.empty() ? "" : ", ",
                       name, value, limit, *reached);
  };
  judge("R_rms", found.rms, committed.rms, kRatchetFactor, 0);
  judge("R_step", found.step, committed.step, kRatchetFactorOfLargest, 0);
  judge("R_inf", found.inf, committed.inf, kRatchetFactorOfLargest, 0);
  judge("R_KL", found.kl, committed.kl, kRatchetFactorOfKl, kRatchetLeastKl);
  return all;
}

std::optional<Ratchet> find_ratchet(const std::filesystem::path& file, const RatchetKey& key) {
  if (!std::filesystem::exists(file)) return std::nullopt;
  const json all = read_file(file);
  std::optional<Ratchet> found;
  for (size_t i = 0; i < all["entries"].size(); ++i) {
    const json& entry = all["entries"][i];
    const bool same = text_of(entry, "engine", i, file) == key.engine &&
                      text_of(entry, "card", i, file) == key.card &&
                      text_of(entry, "model", i, file) == key.model &&
                      text_of(entry, "lagset", i, file) == key.lagset &&
                      text_of(entry, "reference_sha256", i, file) == key.reference_sha256;
    const Ratchet values = values_of(entry, i, file);
    if (same && found) refuse(file, fmt::format("entries[{}]: this key occurs twice", i));
    if (same) found = values;
  }
  return found;
}

std::string ratchet_entry(const RatchetKey& key, const Ratios& found) {
  nlohmann::ordered_json entry;
  entry["engine"] = key.engine;
  entry["card"] = key.card;
  entry["model"] = key.model;
  entry["lagset"] = key.lagset;
  entry["reference_sha256"] = key.reference_sha256;
  // Four digits, as scripts/update_ratchet.py writes them.
  const auto digits = [](double x) { return std::stod(fmt::format("{:.4g}", x)); };
  entry["r_rms"] = digits(found.rms);
  entry["r_step"] = digits(found.step);
  entry["r_inf"] = digits(found.inf);
  entry["r_kl"] = digits(found.kl);
  return entry.dump();
}

}  // namespace mkbench
