// fuzz_seeds OUT: writes to OUT/<target>/ the inputs from which each fuzzer starts: sound ones of this version,
// and those of the tables of bad input that the tests hold.
#include <fmt/format.h>

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <variant>

#include "harness/wire/calls.h"
#include "references/base/json_strict.h"
#include "references/base/sha256.h"
#include "references/config.h"
#include "references/greedy_reference.h"
#include "references/snapshot.h"
#include "tests/support/example_report.h"
#include "tests/support/input_case.h"
#include "tests/support/llama3_rope.h"
#include "tests/support/micro_model.h"
#include "tests/support/small_reference.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Seeds {
 public:
  Seeds(const fs::path& out, const std::string& target) : folder_(out / target) {
    fs::create_directories(folder_);
  }
  // Named by content, as libFuzzer names its own.
  void add(std::string_view bytes) {
    std::ofstream file(folder_ / sha256_hex(bytes.data(), bytes.size()).substr(0, 16),
                       std::ios::binary);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) throw Error(ErrorKind::kRuntime, "cannot write to " + folder_.string());
  }

 private:
  fs::path folder_;
};

// One frame of each kind of message, its fields as a new struct has them.
template <typename Variant, size_t... kIndex>
void add_messages(Seeds& seeds, std::index_sequence<kIndex...> /*kinds*/) {
  const auto add = [&](const Variant& message) {
    const std::string text = to_json(message).dump();
    const auto size = static_cast<uint32_t>(text.size());
    seeds.add(std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + text);
  };
  (add(Variant(std::variant_alternative_t<kIndex, Variant>{})), ...);
}

template <typename Variant>
void add_messages(Seeds& seeds) {
  add_messages<Variant>(seeds, std::make_index_sequence<std::variant_size_v<Variant>>{});
}

// What the rows of a table of bad input put into `name`, where it is a small file.
void add_cases(Seeds& seeds, const std::vector<testing::InputCase>& cases, const char* name) {
  constexpr size_t kLargest = 64 << 10;
  for (const testing::InputCase& row : cases) {
    const testing::TemporaryFolder folder;
    testing::write_micro_model(folder.path());
    row.make(folder.path());
    const fs::path file = folder.path() / name;
    std::error_code unreadable;  // some rows make loops of links
    if (fs::is_regular_file(file, unreadable) && fs::file_size(file) <= kLargest)
      seeds.add(read_small_file(file, kLargest));
  }
}

void write_all_seeds(const fs::path& out) {
  Seeds config(out, "config"), safetensors(out, "safetensors"), wire(out, "wire");
  Seeds report(out, "report"), reference(out, "reference");
  for (const char* model : {"tiny", "tiny-untied", "synthetic"}) {
    const fs::path file = data_dir() / model / "config.json";
    if (fs::exists(file)) config.add(read_small_file(file, 1 << 20));
  }
  ModelConfig other{.shape = testing::kMicro,
                    .rope = testing::llama3_rope(1e4, 8, 32),
                    .rms_norm_eps = 1e-6,
                    .max_positions = 64};
  other.shape.qk_norm = false;
  config.add(config_text(other));  // of Llama
  other.shape.qkv_bias = true;
  config.add(config_text(other));  // of Qwen2
  add_cases(config, testing::config_cases(), "config.json");
  add_cases(safetensors, testing::container_cases(), "model.safetensors");
  reference.add(testing::small_reference().dump());
  add_messages<ToHost>(wire);
  add_messages<FromHost>(wire);
  for (const Report& r : {testing::example_report(), testing::example_failed_report(),
                          testing::example_diagnosed_report(), testing::example_cpu_report()}) {
    json written = to_json(r);
    written["seal"] = seal_of(written);
    report.add(written.dump());
  }
}

}  // namespace
}  // namespace mkbench

int main(int argc, char* argv[]) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_seeds OUT\n";
    return 2;
  }
  try {
    mkbench::write_all_seeds(argv[1]);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
