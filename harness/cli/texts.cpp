#include "harness/cli/texts.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "harness/cli/python_script.h"
#include "harness/flow/text.h"
#include "references/base/error.h"
#include "references/base/one_line.h"
#include "references/base/printable.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

using nlohmann::json;
using Texts = std::map<int32_t, std::string>;  // by id, as printable() shows them

// Calls take(id, text) for every place in the case that has an id but no text.
template <typename Take>
void for_each_bare_id(CaseReport& c, const Take& take) {
  const auto bare = [&](int32_t id, std::string& text) {
    if (text.empty() && id >= 0) take(id, text);
  };
  for (EngineReport& e : c.engines) {
    if (!e.parity) continue;
    for (ParityRow& row : e.parity->rows) {
      bare(row.reference_id, row.reference_text);
      bare(row.engine_id, row.engine_text);
    }
    if (!e.parity->failed_step) continue;
    for (ScoredId& one : e.parity->failed_step->expected_top) bare(one.id, one.text);
    for (ScoredId& one : e.parity->failed_step->found_top) bare(one.id, one.text);
  }
}

std::set<int32_t> wanted_ids(CaseReport& c) {
  std::set<int32_t> ids(c.generated_ids.begin(), c.generated_ids.end());
  for_each_bare_id(c, [&](int32_t id, std::string&) { ids.insert(id); });
  return ids;
}

// The folder of the case's model if it holds a tokenizer.json; else an empty path.
std::filesystem::path tokenizer_folder(const CaseReport& c) {
  try {
    const std::filesystem::path folder = resolve_model(c.model).folder;
    std::error_code none;
    const bool there =
        !folder.empty() && std::filesystem::exists(folder / "tokenizer.json", none) && !none;
    return there ? folder : std::filesystem::path();
  } catch (const Error&) {
    return {};  // the case has reported this error
  }
}

void fill_in(CaseReport& c, const Texts& texts) {
  for (const int32_t id : wanted_ids(c)) {
    if (const auto known = texts.find(id); known != texts.end())
      c.token_texts.push_back({id, known->second});
  }
  for_each_bare_id(c, [&](int32_t id, std::string& text) {
    if (const auto known = texts.find(id); known != texts.end()) text = known->second;
  });
  if (c.generated_ids.empty()) return;
  if (const auto text = sequence_text(c.token_texts, c.generated_ids)) c.generated_text = *text;
}

// Reads the answer of scripts/token_texts.py for one folder: bytes in hex, by id.
Texts texts_of(const json& pieces) {
  Texts texts;
  for (const auto& [id, hex] : pieces.items()) {
    const std::string digits = hex.get<std::string>();
    std::string bytes;
    for (size_t i = 0; i + 1 < digits.size(); i += 2)
      bytes += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
    texts[std::stoi(id)] = printable(bytes);
  }
  return texts;
}

// Sends the script the ids of each folder, and returns its answer, also by folder.
json ask_script(const json& question) {
  std::string problem, output;
  const PythonScript script{.name = "token_texts.py",
                            .arguments = {},
                            .input = question.dump(-1, ' ', false, json::error_handler_t::replace),
                            .output = &output};
  const int status = run_script(script, problem);
  if (status > 0) problem = fmt::format("scripts/{} ended with {}", script.name, status);
  if (!problem.empty()) throw Error(ErrorKind::kEnvUnfit, problem);
  try {
    return json::parse(output);
  } catch (const json::exception&) {
    throw Error(ErrorKind::kEnvUnfit, fmt::format("scripts/{} printed '{}', wanted JSON",
                                                  script.name, one_line(output, 80)));
  }
}

}  // namespace

std::vector<std::string> add_token_texts(Report& report) {
  std::map<std::string, std::set<int32_t>> wanted;
  std::map<std::string, std::vector<CaseReport*>> cases;
  for (CaseReport& c : report.cases) {
    // A case that already has texts was taken over from an earlier report.
    const std::set<int32_t> ids = c.token_texts.empty() ? wanted_ids(c) : std::set<int32_t>();
    const std::string folder = ids.empty() ? "" : tokenizer_folder(c).string();
    if (folder.empty()) continue;
    wanted[folder].insert(ids.begin(), ids.end());
    cases[folder].push_back(&c);
  }
  if (wanted.empty()) return {};
  std::vector<std::string> told;
  try {
    const json answer = ask_script(wanted);
    for (const auto& [folder, ids] : wanted) {
      const json& one = answer.at(folder);
      if (one.contains("problem")) {
        told.push_back("ids are shown without text: " +
                       one_line(one["problem"].get<std::string>(), 400));
        continue;
      }
      const Texts texts = texts_of(one.at("pieces"));
      for (CaseReport* c : cases[folder]) fill_in(*c, texts);
    }
  } catch (const std::exception& error) {
    told.push_back(fmt::format("ids are shown without text: {}", error.what()));
  }
  std::sort(told.begin(), told.end());
  told.erase(std::unique(told.begin(), told.end()), told.end());
  return told;
}

}  // namespace mkbench
