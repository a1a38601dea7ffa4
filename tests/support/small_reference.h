// A small reference file for tests of its reader.
#pragma once

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "references/greedy_reference.h"
#include "references/snapshot.h"

namespace mkbench::testing {

// A reference with one strict and one near-tie prompt of `tiny`, cut to three steps each and made
// consistent again.
inline nlohmann::json make_small_reference() {
  std::ifstream file(data_dir() / "tiny" / "reference.json");
  nlohmann::json document = nlohmann::json::parse(file);
  nlohmann::json& all = document["prompts"];
  nlohmann::json kept = nlohmann::json::array();
  for (const char* set : {"strict", "near-tie"}) {
    for (const nlohmann::json& prompt : all) {
      if (prompt["set"] != set) continue;
      kept.push_back(prompt);
      break;
    }
  }
  double d = 0;
  for (nlohmann::json& prompt : kept) {
    prompt["steps"].erase(prompt["steps"].begin() + 3, prompt["steps"].end());
    prompt["token_texts"].erase(prompt["token_texts"].begin() + 3, prompt["token_texts"].end());
    prompt["generated"] = 3;
    for (const nlohmann::json& step : prompt["steps"])
      d = std::max(d, step["baseline"]["pairwise"].get<double>());
  }
  for (nlohmann::json& prompt : kept) {
    for (nlohmann::json& step : prompt["steps"]) {
      step["decided"] = step["margin"].get<double>() > d + bf16_step(step["max_abs"].get<double>());
    }
  }
  all = kept;
  document["summary"]["D"] = d;
  document["summary"]["steps"] = 6;
  return document;
}

// A copy of one that is read once.
inline nlohmann::json small_reference() {
  static const nlohmann::json reference = make_small_reference();
  return reference;
}

}  // namespace mkbench::testing
