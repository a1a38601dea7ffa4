#include "references/greedy_reference.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <system_error>

#include "references/base/base64.h"
#include "references/base/error.h"
#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/manifest.h"

namespace mkbench {
namespace {

using nlohmann::json;

constexpr std::string_view kSchemaId = "mkbench.reference";
constexpr std::string_view kSchemaMajor = "1.";
constexpr JsonLimits kLimits{.bytes = 32 << 20, .depth = 12, .keys = 1 << 20, .values = 8 << 20};

// A value of the file together with its path in the file, so that every error can name its field.
class Node {
 public:
  Node(const json& value, const std::string& file, std::string field)
      : value_(value), file_(file), field_(std::move(field)) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::kInvalidReference, fmt::format("{}: {}: {}", file_, field_, what));
  }
  bool has(const char* key) const {
    return value_.is_object() && value_.contains(key) && !value_.at(key).is_null();
  }
  Node at(const char* key) const {
    if (!value_.is_object()) fail("must be an object, found " + describe(value_));
    const std::string field = field_.empty() ? key : field_ + "." + key;
    const auto found = value_.find(key);
    if (found == value_.end()) Node(value_, file_, field).fail("is missing");
    return {*found, file_, field};
  }
  size_t size() const {
    if (!value_.is_array()) fail("must be a list, found " + describe(value_));
    return value_.size();
  }
  std::vector<std::pair<std::string, Node>> members() const {
    if (!value_.is_object()) fail("must be an object, found " + describe(value_));
    std::vector<std::pair<std::string, Node>> found;
    for (const auto& [key, value] : value_.items())
      found.emplace_back(key, Node(value, file_, field_ + "." + key));
    return found;
  }
  Node at(size_t i) const { return {value_.at(i), file_, fmt::format("{}[{}]", field_, i)}; }

  std::string text() const {
    if (!value_.is_string()) fail("must be a string, found " + describe(value_));
    return value_.get<std::string>();
  }
  bool flag() const {
    if (!value_.is_boolean()) fail("must be true or false, found " + describe(value_));
    return value_.get<bool>();
  }
  int64_t integer(int64_t low, int64_t high) const {
    if (!value_.is_number_integer()) fail("must be an integer, found " + describe(value_));
    const int64_t x = value_.is_number_unsigned() && value_.get<uint64_t>() > INT64_MAX
                          ? INT64_MAX
                          : value_.get<int64_t>();
    if (x < low || x > high) fail(fmt::format("is {}, wanted {} to {}", value_.dump(), low, high));
    return x;
  }
  uint64_t word() const {
    if (!value_.is_number_unsigned()) fail("must be an integer from 0, found " + describe(value_));
    return value_.get<uint64_t>();
  }
  // NaN has no JSON form: a capture that met a NaN would have written null or a string.
  double number() const {
    if (!value_.is_number()) fail("must be a number, found " + describe(value_));
    const double x = value_.get<double>();
    if (!std::isfinite(x)) fail("is not finite");
    return x;
  }
  double from_zero() const {
    const double x = number();
    if (x < 0) fail(fmt::format("is {}, wanted at least 0", x));
    return x;
  }
  std::vector<float> floats() const {
    std::vector<float> out;
    for (size_t i = 0; i < size(); ++i) out.push_back(static_cast<float>(at(i).number()));
    return out;
  }
  // A list, or its values in base64.
  std::vector<float> packed_floats() const {
    if (!value_.is_string()) return floats();
    const std::optional<std::vector<float>> found = floats_from_base64(text());
    if (!found) fail("must be a list, or base64 of little-endian fp32 values");
    for (const float x : *found) {
      if (!std::isfinite(x)) fail("holds a value that is not finite");
    }
    return *found;
  }
  std::vector<int32_t> ids(int vocab) const {
    std::vector<int32_t> out;
    for (size_t i = 0; i < size(); ++i) {
      out.push_back(static_cast<int32_t>(at(i).integer(0, vocab - 1)));
    }
    return out;
  }
  // The value, which must be one of the given words.
  std::string word_of(std::initializer_list<std::string_view> wanted) const {
    const std::string found = text();
    if (std::find(wanted.begin(), wanted.end(), found) == wanted.end()) {
      fail(fmt::format("is {}, wanted {}", in_quotes(found),
                       fmt::join(wanted.begin(), wanted.end(), " or ")));
    }
    return found;
  }

 private:
  const json& value_;
  const std::string& file_;
  std::string field_;
};

bool close(double a, double b) { return std::abs(a - b) <= 1e-5 + 1e-5 * std::abs(b); }

// Reads prompts and steps; its fields are the facts that all steps share.
struct StepReader {
  int vocab = 0;
  int projections = 0;
  double d = 0;
  bool token_only = false;

  void read_top(const Node& node, ReferenceStep& step) const {
    const Node ids = node.at("top_ids"), logits = node.at("top_logits");
    step.top_ids = ids.ids(vocab);
    step.top_logits = logits.floats();
    const size_t wanted = static_cast<size_t>(std::min(kTopIds, vocab));
    if (step.top_ids.size() != wanted) {
      ids.fail(fmt::format("has {} entries, wanted {}", step.top_ids.size(), wanted));
    }
    if (step.top_logits.size() != wanted) {
      logits.fail(fmt::format("has {} entries, wanted {}", step.top_logits.size(), wanted));
    }
    std::set<int32_t> seen;
    for (size_t i = 0; i < wanted; ++i) {
      if (!seen.insert(step.top_ids[i]).second) {
        ids.at(i).fail(fmt::format("is {} for the second time", step.top_ids[i]));
      }
      if (i == 0) continue;
      const float before = step.top_logits[i - 1], here = step.top_logits[i];
      const bool sorted =
          before > here || (before == here && step.top_ids[i - 1] < step.top_ids[i]);
      if (!sorted) logits.at(i).fail(fmt::format("is {} after {}: not sorted", here, before));
    }
  }

  void read_baseline(const Node& node, ReferenceStep& step) const {
    step.baseline_token = static_cast<int32_t>(node.at("token").integer(0, vocab - 1));
    step.baseline_error_norm = node.at("error_norm").from_zero();
    step.baseline_error_inf_top = node.at("error_inf_top").from_zero();
    step.baseline_kl = node.at("kl").from_zero();
    step.baseline_pairwise = node.at("pairwise").from_zero();
    if (step.baseline_pairwise > d * (1 + 1e-9)) {
      node.at("pairwise").fail(fmt::format("is {}, over D = {}", step.baseline_pairwise, d));
    }
  }

  // `decided` and membership in the strict set must follow from margins and D alone.
  void check_margin(const Node& node, const std::string& set, const ReferenceStep& step) const {
    const double gap = static_cast<double>(step.top_logits[0]) - step.top_logits[1];
    if (!close(step.margin, gap)) {
      node.at("margin").fail(fmt::format("is {}, top_logits say {}", step.margin, gap));
    }
    const double tau = d + bf16_step(step.max_abs);
    if (step.decided != (step.margin > tau)) {
      node.at("decided").fail(
          fmt::format("is {}, margin {} and tau {} say otherwise", step.decided, step.margin, tau));
    }
    if (set == "strict" && step.margin <= 2 * tau) {
      node.at("margin").fail(
          fmt::format("is {} in a strict prompt, wanted over {}", step.margin, 2 * tau));
    }
  }

  ReferenceStep read_step(const Node& node, const std::string& set, int position) const {
    ReferenceStep step;
    step.position = static_cast<int>(node.at("position").integer(0, INT32_MAX));
    if (step.position != position) {
      node.at("position").fail(fmt::format("is {}, wanted {}", step.position, position));
    }
    step.token = static_cast<int32_t>(node.at("token").integer(0, vocab - 1));
    if (token_only) return step;
    read_top(node, step);
    if (step.token != step.top_ids[0]) {
      node.at("token").fail(fmt::format("is {}, top_ids say {}", step.token, step.top_ids[0]));
    }
    step.logsumexp = node.at("logsumexp").number();
    step.mean = node.at("mean").number();
    step.centred_norm = node.at("centred_norm").from_zero();
    step.margin = node.at("margin").from_zero();
    step.max_abs = node.at("max_abs").from_zero();
    step.decided = node.at("decided").flag();
    step.sketch = node.at("sketch").packed_floats();
    if (step.sketch.size() != static_cast<size_t>(projections)) {
      node.at("sketch").fail(
          fmt::format("has {} entries, wanted {}", step.sketch.size(), projections));
    }
    read_baseline(node.at("baseline"), step);
    check_margin(node, set, step);
    return step;
  }

  ReferencePrompt read_prompt(const Node& node) const {
    ReferencePrompt prompt;
    prompt.name = node.at("name").text();
    prompt.set = node.at("set").word_of({"strict", "near-tie"});
    prompt.text = node.at("text").text();
    prompt.ids = node.at("ids").ids(vocab);
    if (prompt.ids.empty()) node.at("ids").fail("is empty");
    const Node steps = node.at("steps");
    const int64_t declared = node.at("generated").integer(1, INT32_MAX);
    if (steps.size() == 0) steps.fail("is empty");
    if (static_cast<int64_t>(steps.size()) != declared) {
      steps.fail(fmt::format("has {} entries, generated says {}", steps.size(), declared));
    }
    for (size_t i = 0; i < steps.size(); ++i) {
      const int position = static_cast<int>(prompt.ids.size() - 1 + i);
      prompt.steps.push_back(read_step(steps.at(i), prompt.set, position));
    }
    const Node texts = node.at("token_texts");
    for (size_t i = 0; i < texts.size(); ++i) prompt.token_texts.push_back(texts.at(i).text());
    if (texts.size() != 0 && texts.size() != steps.size()) {
      texts.fail(fmt::format("has {} entries, wanted 0 or {}", texts.size(), steps.size()));
    }
    return prompt;
  }
};

// Refuses a reference with logits if anything lowered the precision of its truth's run.
void check_truth(const Node& capture) {
  const Node truth = capture.at("truth");
  const std::string dtype = truth.at("dtype").text();
  if (dtype != "float32") {
    truth.at("dtype").fail("is " + in_quotes(dtype) + ", wanted 'float32': refused as truth");
  }
  for (const char* key : {"allow_tf32_matmul", "allow_tf32_cudnn"}) {
    if (truth.at(key).flag()) truth.at(key).fail("is true, wanted false: refused as truth");
  }
  truth.at("float32_matmul_precision").word_of({"highest"});
  truth.at("inv_freq_dtype").word_of({"float32"});
}

std::string read_hash(const Node& node) {
  const std::string hash = node.text();
  if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != hash.npos)
    node.fail("is " + in_quotes(hash) + ", wanted 64 lower-case hex digits");
  return hash;
}

// {"785": "The", ...}: the ids are text, because JSON has no other keys.
std::map<int32_t, std::string> read_texts(const Node& node, int vocab) {
  std::map<int32_t, std::string> texts;
  for (const auto& [key, text] : node.members()) {
    int32_t id = -1;
    const char* const end = key.data() + key.size();
    const auto parsed = std::from_chars(key.data(), end, id);
    if (parsed.ec != std::errc() || parsed.ptr != end || id < 0 || id >= vocab)
      node.fail(fmt::format("has the key {}, wanted ids below {}", in_quotes(key), vocab));
    texts.emplace(id, text.text());
  }
  return texts;
}

// The summary's count of steps and D must follow from the steps that the file holds.
void check_summary(const Node& summary, const GreedyReference& reference) {
  size_t steps = 0;
  double largest = 0;
  for (const ReferencePrompt& prompt : reference.prompts) {
    steps += prompt.steps.size();
    for (const ReferenceStep& step : prompt.steps)
      largest = std::max(largest, step.baseline_pairwise);
  }
  if (summary.at("steps").integer(1, INT32_MAX) != static_cast<int64_t>(steps)) {
    summary.at("steps").fail(fmt::format("prompts hold {} steps", steps));
  }
  if (!reference.token_only && !close(largest, reference.pairwise_d)) {
    summary.at("D").fail(fmt::format("is {}, the largest pairwise error of the steps is {}",
                                     reference.pairwise_d, largest));
  }
}

GreedyReference read_document(const Node& root, const std::filesystem::path& path) {
  const Node schema = root.at("schema");
  schema.at("id").word_of({kSchemaId});
  const std::string version = schema.at("version").text();
  if (!version.starts_with(kSchemaMajor)) {
    schema.at("version").fail(fmt::format("is {}, wanted {}x", in_quotes(version), kSchemaMajor));
  }
  GreedyReference reference;
  reference.path = path;
  reference.token_only = root.at("token_only").flag();
  const Node model = root.at("model"), capture = root.at("capture"), summary = root.at("summary");
  reference.model_name = model.at("name").text();
  StepReader reader;
  reader.vocab = static_cast<int>(model.at("config").at("vocab_size").integer(1, 1 << 24));
  reader.token_only = reference.token_only;
  if (reference.token_only) {
    // Without a provenance, published ids could not be told from invented ones.
    if (capture.at("provenance").text().empty()) capture.at("provenance").fail("is empty");
    if (model.has("weights_sha256"))
      reference.weights_sha256 = read_hash(model.at("weights_sha256"));
    reference.versions = "published ids";
  } else {
    check_truth(capture);
    reference.weights_sha256 = read_hash(model.at("weights_sha256"));
    const Node versions = capture.at("versions");
    reference.versions =
        fmt::format("transformers {}, torch {}", versions.at("transformers").text(),
                    versions.at("torch").text());
    reference.sketch_seed = capture.at("sketch").at("seed").word();
    reader.projections = reference.sketch_projections =
        static_cast<int>(capture.at("sketch").at("projections").integer(1, kMaxProjections));
    reader.d = reference.pairwise_d = summary.at("D").from_zero();
    reference.baseline_flips = static_cast<int>(summary.at("baseline_flips").integer(0, INT32_MAX));
  }
  const Node prompts = root.at("prompts");
  if (prompts.size() == 0) prompts.fail("is empty");
  std::set<std::string> names;
  for (size_t i = 0; i < prompts.size(); ++i) {
    reference.prompts.push_back(reader.read_prompt(prompts.at(i)));
    if (!names.insert(reference.prompts.back().name).second) {
      prompts.at(i).at("name").fail("is " + in_quotes(*names.rbegin()) + " for the second time");
    }
  }
  if (const double most = largest_d(reference.prompts); reader.d > most)
    summary.at("D").fail(fmt::format("is {}, wanted at most {}", reader.d, most));
  if (root.has("texts")) reference.texts = read_texts(root.at("texts"), reader.vocab);
  check_summary(summary, reference);
  return reference;
}

}  // namespace

double bf16_step(double x) { return x > 0 ? std::ldexp(1.0, std::ilogb(x) - 7) : 0; }

double largest_d(const std::vector<ReferencePrompt>& prompts) {
  double largest = 0;
  for (const ReferencePrompt& p : prompts)
    for (const ReferenceStep& s : p.steps) largest = std::max(largest, s.max_abs);
  return std::max(0.5, 4 * bf16_step(largest));
}

GreedyReference read_reference(const std::filesystem::path& path, bool must_be_listed) {
  const std::string file = path.string();
  try {
    const std::string sha256 = sha256_file(path);
    if (const auto manifest = Manifest::of(path.parent_path())) {
      manifest->check(path, sha256);
    } else if (must_be_listed) {
      throw Error(ErrorKind::kInvalidReference,
                  file + ": there is no manifest.json beside it that lists its sha256");
    }
    const json document = read_json_strict(path, kLimits);
    GreedyReference reference = read_document(Node(document, file, ""), path);
    reference.sha256 = sha256;
    return reference;
  } catch (const Error& e) {
    // The JSON reader throws kBadInput; a defect of a reference is kInvalidReference.
    throw Error(ErrorKind::kInvalidReference, e.what());
  }
}

std::vector<std::filesystem::path> find_references(const std::filesystem::path& dir,
                                                   const std::string& model_name) {
  const size_t colon = model_name.find(':');
  std::string folder = model_name.substr(0, colon), prefix = "reference";
  if (colon != std::string::npos) prefix += "-" + model_name.substr(colon + 1);
  if (folder.starts_with("Qwen/")) folder.erase(0, 5);
  for (char& c : folder) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (folder.empty() || folder.find('/') != std::string::npos) return {};
  return list_references(dir / folder, prefix);
}

std::vector<std::filesystem::path> list_references(const std::filesystem::path& folder,
                                                   const std::string& prefix) {
  std::vector<std::filesystem::path> found;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix) && name.ends_with(".json")) found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace mkbench
