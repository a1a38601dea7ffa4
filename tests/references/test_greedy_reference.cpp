// The reader of reference files: the committed files are good, and each defect is refused with the
// name of its field.
#include <fmt/format.h>

#include <cctype>
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <sstream>

#include "references/base/base64.h"
#include "references/base/sha256.h"
#include "references/greedy_reference.h"
#include "references/snapshot.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/small_reference.h"
#include "tests/support/thrown.h"

using namespace mkbench;
using mkbench::testing::small_reference;
using mkbench::testing::TemporaryFolder;
using mkbench::testing::write_file;
using nlohmann::json;

namespace {

const std::filesystem::path& scratch() {
  static const TemporaryFolder folder;
  return folder.path();
}

std::filesystem::path written(const std::string& text) {
  write_file(scratch() / "reference.json", text);
  return scratch() / "reference.json";
}

std::filesystem::path committed(const std::string& name) {
  const auto files = find_references(data_dir(), name);
  REQUIRE(files.size() == 1);
  return files.front();
}

std::string refusal(const std::filesystem::path& path) {
  return mkbench::testing::error_line(ErrorKind::kInvalidReference, [&] { read_reference(path); });
}

// A value that takes the place of another. The message must name the field of that place.
struct Edit {
  std::string place;  // a JSON pointer
  json value;         // discarded: the old one is erased
};

struct Defect {
  std::string field;  // the message must name it
  std::function<void(json&)> plant;
};

// "/prompts/0/name" as "prompts[0].name".
std::string field_of(const std::string& place) {
  std::string field;
  std::istringstream words(place.substr(1));
  for (std::string word; std::getline(words, word, '/');) {
    const bool index = std::isdigit(static_cast<unsigned char>(word[0])) != 0;
    field += index ? "[" + word + "]" : (field.empty() ? "" : ".") + word;
  }
  return field;
}

json& step(json& d, int i = 1) { return d["prompts"][0]["steps"][static_cast<size_t>(i)]; }

// Moves the other ids of the top away from the truth's id until the margin of a step is so many
// times tau.
void set_margin(const json& d, double taus, json& s) {
  const double margin =
      taus * (d["summary"]["D"].get<double>() + bf16_step(s["max_abs"].get<double>()));
  const double top = s["top_logits"][0].get<double>(), second = s["top_logits"][1].get<double>();
  for (size_t i = 1; i < s["top_logits"].size(); ++i) {
    s["top_logits"][i] = s["top_logits"][i].get<double>() + (top - margin) - second;
  }
  s["margin"] = margin;
  s["decided"] = taus > 1;
}

const json kGone(json::value_t::discarded);

std::vector<Edit> file_edits() {
  return {{"/schema/version", "2.0.0"},
          {"/schema/id", "mkbench.report"},
          {"/schema", kGone},
          {"/token_only", "no"},
          {"/model/weights_sha256", "4de28f95"},
          {"/model/weights_sha256", nullptr},
          {"/model/weights_sha256", std::string(64, 'A')},
          {"/model/config/vocab_size", 0},
          {"/capture/versions/torch", kGone},
          {"/capture/sketch/seed", -1},
          {"/capture/sketch/projections", 4097},
          {"/summary/D", -0.1},
          {"/summary/D", 0.51},
          {"/summary/D", nullptr},
          {"/summary/steps", 7},
          {"/summary/baseline_flips", -1},
          {"/prompts", json::array()},
          {"/prompts", json::object()},
          {"/prompts/1/name", small_reference()["prompts"][0]["name"]},
          {"/prompts/0/set", "easy"},
          {"/prompts/0/ids", json::array()},
          {"/prompts/0/ids/0", 259},
          {"/prompts/0/ids/0", -1},
          {"/prompts/0/ids/0", 65.5},
          {"/prompts/0/steps", json::array()},
          {"/prompts/0/generated", 0},
          {"/texts", {{"259", "a"}}},
          {"/texts", {{"-1", "a"}}},
          {"/texts", {{"7x", "a"}}},
          {"/texts", json::array({"a"})},
          // Logits that were made in low precision are no truth.
          {"/capture/truth/dtype", "bfloat16"},
          {"/capture/truth/dtype", kGone},
          {"/capture/truth/allow_tf32_matmul", true},
          {"/capture/truth/allow_tf32_cudnn", true},
          {"/capture/truth/float32_matmul_precision", "high"},
          {"/capture/truth/inv_freq_dtype", "bfloat16"},
          {"/capture/truth", kGone}};
}

std::vector<Edit> step_edits() {
  std::vector<Edit> edits = {{"position", 7},
                             {"token", 500},
                             {"top_logits/0", "NaN"},
                             {"logsumexp", nullptr},
                             {"mean", kGone},
                             {"centred_norm", -1.0},
                             {"margin", nullptr},
                             {"margin", "NaN"},
                             {"margin", -2.0},
                             {"max_abs", true},
                             {"decided", false},
                             {"decided", 1},
                             {"baseline", kGone},
                             {"baseline/token", 259},
                             {"baseline/error_norm", -1e-3},
                             {"baseline/error_inf_top", "0"},
                             {"baseline/kl", nullptr},
                             {"baseline/pairwise", 0.49}};
  for (Edit& edit : edits) edit.place.insert(0, "/prompts/0/steps/1/");
  return edits;
}

std::vector<Defect> defects() {
  return {
      {"summary.D", [](json& d) { d["summary"]["D"] = step(d)["baseline"]["pairwise"] = 0.51; }},
      {"summary.D", [](json& d) { d["summary"]["D"] = d["summary"]["D"].get<double>() * 1.5; }},
      {"prompts[0].steps", [](json& d) { d["prompts"][0]["generated"] = 4; }},
      {"texts.7", [](json& d) { d["texts"]["7"] = 7; }},
      {"prompts[0].token_texts", [](json& d) { d["prompts"][0]["token_texts"].erase(0); }},
      {"steps[1].token", [](json& d) { step(d)["token"] = step(d)["top_ids"][1]; }},
      {"steps[1].top_ids", [](json& d) { step(d)["top_ids"].erase(31); }},
      {"steps[1].top_ids[5]", [](json& d) { step(d)["top_ids"][5] = step(d)["top_ids"][4]; }},
      {"steps[1].top_logits", [](json& d) { step(d)["top_logits"].push_back(-100.0); }},
      {"steps[1].top_logits[3]",
       [](json& d) { std::swap(step(d)["top_logits"][2], step(d)["top_logits"][3]); }},
      // Among equal logits the lower id comes first.
      {"steps[1].top_logits[3]",
       [](json& d) {
         json& ids = step(d)["top_ids"];
         if (ids[2] < ids[3]) std::swap(ids[2], ids[3]);
         step(d)["top_logits"][3] = step(d)["top_logits"][2];
       }},
      {"steps[1].margin",
       [](json& d) { step(d)["margin"] = step(d)["margin"].get<double>() + 0.01; }},
      {"steps[1].sketch",
       [](json& d) {
         auto& text = step(d)["sketch"].get_ref<std::string&>();
         text = text.substr(0, text.size() / 2);
       }},
      {"steps[1].sketch", [](json& d) { step(d)["sketch"].get_ref<std::string&>()[5] = '*'; }},
      // The last of the bits of the first value are its exponent: 4 x "/" gives a NaN.
      {"steps[1].sketch",
       [](json& d) { step(d)["sketch"].get_ref<std::string&>().replace(0, 8, "////////"); }},
      {"steps[1].sketch[3]",
       [](json& d) {
         step(d)["sketch"] = std::vector<double>(512, 0.5);
         step(d)["sketch"][3] = json::array();
       }},
      // A strict prompt whose margin rounding could overturn.
      {"steps[1].margin",
       [](json& d) {
         json& s = step(d);
         s["margin"] = 0.001;
         s["top_logits"][1] = s["top_logits"][0].get<double>() - 0.001;
         s["decided"] = false;
       }},
      // Decided, and yet too close to be strict: between tau and 2 tau.
      {"steps[1].margin", [](json& d) { set_margin(d, 1.5, step(d)); }},
  };
}

void plant(const Edit& edit, json& d) {
  const json::json_pointer place(edit.place);
  if (edit.value.is_discarded())
    d.at(place.parent_pointer()).erase(place.back());
  else
    d[place] = edit.value;
}

void check_refused(const std::string& field, const std::function<void(json&)>& plant) {
  json bad = small_reference();
  plant(bad);
  const auto path = written(bad.dump());
  const std::string message = refusal(path);
  INFO(field << " <- " << message);
  CHECK(message.starts_with(path.string()));
  CHECK(message.find(field + ": ") != std::string::npos);
}

}  // namespace

TEST_CASE("the committed references are read whole, and keep the promises of their sets") {
  for (const char* name : {"tiny", "tiny-untied"}) {
    INFO(name);
    const GreedyReference r = read_reference(committed(name));
    CHECK_FALSE(r.token_only);
    CHECK(r.model_name == name);
    CHECK(r.sha256.size() == 64);
    CHECK(r.versions.find("transformers 5.") == 0);
    CHECK(r.sketch_projections == 512);
    CHECK(r.pairwise_d <= 0.25);
    int near_ties = 0, longest = 0;
    double ratio = 1e9, estimate = 0, steps = 0;
    for (const ReferencePrompt& prompt : r.prompts) {
      longest = std::max(longest, static_cast<int>(prompt.ids.size()));
      CHECK(prompt.token_texts.size() == prompt.steps.size());
      for (const ReferenceStep& s : prompt.steps) {
        const double tau = r.pairwise_d + bf16_step(s.max_abs);
        if (prompt.set == "strict") ratio = std::min(ratio, s.margin / tau);
        near_ties += !s.decided;
        double sum = 0;
        for (float p : s.sketch) sum += double{p} * p;
        estimate += sum / r.sketch_projections / (s.centred_norm * s.centred_norm);
        ++steps;
      }
    }
    CHECK(ratio > 4);  // training stopped by this rule
    CHECK(near_ties >= 1);
    CHECK(longest > 512);  // more than one prefill chunk
    CHECK(estimate / steps == Approx(1).margin(0.2));
    CHECK(r.prompts.front().ids.size() == 1);
    CHECK(r.prompts.front().steps.size() >= 128);
  }
}

TEST_CASE("the published continuations of the real model are ids only") {
  const GreedyReference r = read_reference(committed("Qwen/Qwen3-0.6B"));
  CHECK(r.token_only);
  CHECK(r.weights_sha256.empty());
  REQUIRE(r.prompts.size() == 2);
  const auto &a = r.prompts[0], &b = r.prompts[1];
  CHECK(a.ids == std::vector<int32_t>{785, 6722, 315, 9625, 374});
  CHECK(a.ids == b.ids);
  REQUIRE(a.steps.size() == 20);
  for (size_t i = 0; i < 5; ++i) CHECK(a.steps[i].token == b.steps[i].token);
  CHECK(a.steps[5].token == 15344);
  CHECK(b.steps[5].token == 9625);
}

TEST_CASE("texts of ids are optional") {
  json document = small_reference();
  CHECK(read_reference(written(document.dump())).texts.empty());
  document["texts"] = {{"0", " the"}, {"258", "<pad>"}};
  const GreedyReference r = read_reference(written(document.dump()));
  CHECK(r.texts == std::map<int32_t, std::string>{{0, " the"}, {258, "<pad>"}});
}

TEST_CASE("every defect is refused with path and field") {
  CHECK(refusal(written(small_reference().dump())) == "accepted");
  json wide = small_reference();
  set_margin(wide, 2.01,
             step(wide));  // a strict prompt needs more than 2 tau, and no more than that
  CHECK(refusal(written(wide.dump())) == "accepted");
  for (const auto& edits : {file_edits(), step_edits()}) {
    for (const Edit& edit : edits)
      check_refused(field_of(edit.place), [&](json& d) { plant(edit, d); });
  }
  for (const Defect& defect : defects()) check_refused(defect.field, defect.plant);
}

TEST_CASE("D is at most 0.5, or four bf16 steps at the largest logit of any step") {
  for (const auto& [largest, most] : {std::pair{1.0, 0.5}, {31.9, 0.5}, {32.0, 1.0}, {64.0, 2.0}}) {
    INFO(largest);
    const auto with_d = [&](double d) {
      json document = small_reference();
      document["summary"]["D"] = step(document)["baseline"]["pairwise"] = d;
      step(document, 0)["max_abs"] = largest;
      for (json& prompt : document["prompts"])
        for (json& s : prompt["steps"]) set_margin(document, 3, s);
      return written(document.dump());
    };
    CHECK(refusal(with_d(std::nextafter(most, 0))) == "accepted");
    CHECK(refusal(with_d(most)) == "accepted");
    CHECK(refusal(with_d(std::nextafter(most, 9)))
              .find(fmt::format("summary.D: is {}, wanted at most {}", std::nextafter(most, 9),
                                most)) != std::string::npos);
  }
}

TEST_CASE("what is not a JSON document is refused") {
  const std::string good = small_reference().dump();
  const auto refused = [](const std::string& text) {
    const auto path = written(text);
    const std::string message = refusal(path);
    INFO(message);
    CHECK(message.find(path.string()) == 0);
    CHECK(message != "accepted");
  };
  refused("");
  refused("[]");
  refused("null");
  refused(good.substr(0, good.size() / 2));
  refused(good + "{}");
  std::string text = good;
  text.replace(text.find("\"margin\":") + 9, 3, "NaN");
  refused(text);
  text = good;
  text.insert(1, "\"token_only\":true,");  // a duplicate key would hide the second value
  refused(text);
  CHECK(refusal(scratch() / "absent.json").find("absent.json") != std::string::npos);
  CHECK(refusal(scratch()) != "accepted");
}

TEST_CASE("a token-only file needs a provenance, and no logits") {
  std::ifstream file(committed("Qwen/Qwen3-0.6B"));
  const json good = json::parse(file);
  CHECK(refusal(written(good.dump())) == "accepted");
  json bad = good;
  bad["capture"]["provenance"] = "";
  CHECK(refusal(written(bad.dump())).find("capture.provenance: is empty") != std::string::npos);
  bad = good;
  bad["token_only"] = false;  // the file claims logits that it does not have
  CHECK(refusal(written(bad.dump())).find("capture.truth") != std::string::npos);
}

TEST_CASE("the manifest beside a reference says which bytes it has") {
  const auto file = written(small_reference().dump());
  const auto manifest = scratch() / "manifest.json";
  const std::string found = read_reference(file).sha256;
  CHECK(found == sha256_file(file));
  const auto listed = [&](const json& entry) {
    std::ofstream(manifest) << json{{"files", {{"reference.json", entry}}}}.dump();
    const std::string message = refusal(file);
    std::filesystem::remove(manifest);
    return message;
  };
  CHECK(listed({{"sha256", found}, {"bytes", std::filesystem::file_size(file)}}) == "accepted");
  std::string other = found;
  other[0] = other[0] == '0' ? '1' : '0';
  const std::string message = listed({{"sha256", other}});
  CHECK(message.find(found) != std::string::npos);
  CHECK(message.find(other) != std::string::npos);
  CHECK(listed({{"sha256", found}, {"bytes", 7}}).find("7") != std::string::npos);
  CHECK(listed({{"bytes", 7}}).find("sha256") != std::string::npos);
  std::ofstream(manifest) << R"({"files": {}})";
  CHECK(refusal(file).find("'reference.json' is not listed") != std::string::npos);
  std::filesystem::remove(manifest);
  // References of our own models are refused without a manifest: a swap of the reference could come
  // with the removal of the manifest.
  CHECK_THAT(mkbench::testing::error_line(ErrorKind::kInvalidReference,
                                          [&] { read_reference(file, true); }),
             ContainsText("manifest.json"));
}

TEST_CASE("the references of the analytic checkpoint are those of the committed weights") {
  std::ifstream file(data_dir() / "synthetic" / "hashes.json");
  const json hashes = json::parse(file).at("sha256");
  for (const std::string lagset : {"short", "early", "late"}) {
    const GreedyReference r = read_reference(committed("synthetic:" + lagset), true);
    CHECK(r.model_name == "synthetic:" + lagset);
    CHECK(r.weights_sha256 == hashes.at(lagset).get<std::string>());
    int strict = 0;
    for (const ReferencePrompt& prompt : r.prompts)
      strict += prompt.set == "strict" ? static_cast<int>(prompt.steps.size()) : 0;
    CHECK(strict >= 88);
  }
}

TEST_CASE("references are found by the model's name") {
  CHECK(find_references(data_dir(), "synthetic").size() == 3);
  for (const char* lagset : {"short", "early", "late"}) {
    const auto path = committed(std::string("synthetic:") + lagset);
    CHECK(path.filename() == std::string("reference-") + lagset + ".json");
  }
  CHECK(find_references(data_dir(), "synthetic:deep").empty());
  CHECK(find_references(data_dir(), "no-such-model").empty());
  CHECK(find_references(data_dir(), "/somewhere/tiny")
            .empty());  // a model given by its path has no references
  CHECK(find_references(data_dir(), "../data/tiny").empty());
  CHECK(find_references(data_dir(), "").empty());
}

TEST_CASE("a reference with its sketch as a list of numbers reads alike") {
  std::ifstream file(committed("tiny"));
  json d = json::parse(file);
  for (json& prompt : d["prompts"]) {
    for (json& s : prompt["steps"])
      s["sketch"] = *floats_from_base64(s["sketch"].get<std::string>());
  }
  const GreedyReference packed = read_reference(committed("tiny"));
  const GreedyReference listed = read_reference(written(d.dump()));
  CHECK(listed.prompts[3].steps[7].sketch == packed.prompts[3].steps[7].sketch);
}
