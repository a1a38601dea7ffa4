// Checkpoints of F16 and F32: rounding, and the weights that they become.
#include <cstring>
#include <set>

#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "references/stored_values.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/scoped_variable.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;

std::string little_endian(uint32_t bits, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(bits >> (8 * i) & 0xff);
  return text;
}

// A file with one tensor, of `data`.
class OneTensor {
 public:
  OneTensor(const std::string& dtype, uint64_t values, const std::string& data) {
    write_file(folder_.path() / "a", safetensors_bytes({{"t", dtype, {values}, data}}));
    file_.emplace(folder_.path() / "a");
  }
  Located located() const { return {&*file_, &file_->header().tensors[0]}; }
  std::vector<uint16_t> read(uint64_t first, size_t count) const {
    std::vector<Bf16> values(count);
    located().read(first, values);
    std::vector<uint16_t> bits;
    for (const Bf16 value : values) bits.push_back(value.bits);
    return bits;
  }

 private:
  TemporaryFolder folder_;
  std::optional<SafetensorsFile> file_;
};

struct Rounded {
  uint32_t stored;
  uint16_t bf16;
};

void check_rounding(const std::string& dtype, size_t bytes, const std::vector<Rounded>& rows) {
  std::string data;
  for (const Rounded& row : rows) data += little_endian(row.stored, bytes);
  const OneTensor tensor(dtype, rows.size(), data);
  CHECK(tensor.located().values() == rows.size());
  const std::vector<uint16_t> found = tensor.read(0, rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    INFO(dtype << std::hex << " 0x" << rows[i].stored);
    CHECK(found[i] == rows[i].bf16);
  }
}

void write_model(const fs::path& folder, const std::vector<FileTensor>& tensors) {
  write_micro_model(folder);
  write_file(folder / "model.safetensors", safetensors_bytes(tensors));
}

// The micro model; tensor i is stored in types[i % types.size()].
std::vector<FileTensor> micro_in(const std::vector<std::string>& types) {
  std::vector<FileTensor> tensors = micro_tensors();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& type = types[i % types.size()];
    if (type != "BF16") tensors[i] = stored_as(tensors[i], type);
  }
  return tensors;
}

}  // namespace

TEST_CASE("F32 is rounded to the nearest bf16, ties to even") {
  check_rounding(
      "F32", 4,
      {{0x00000000, 0x0000}, {0x80000000, 0x8000}, {0x3f800000, 0x3f80}, {0x3f807fff, 0x3f80},
       {0x3f808000, 0x3f80}, {0x3f808001, 0x3f81}, {0x3f817fff, 0x3f81}, {0x3f818000, 0x3f82},
       {0xbf818000, 0xbf82}, {0x3fffffff, 0x4000},                        // carries
       {0x00000001, 0x0000}, {0x00008000, 0x0000}, {0x80008001, 0x8001},  // denormal
       {0x00018000, 0x0002}, {0x007fffff, 0x0080}, {0x7f7f7fff, 0x7f7f}, {0x7f7f8000, 0x7f80},
       {0xff7fffff, 0xff80},  // the limit
       {0x7f800000, 0x7f80}, {0xff800000, 0xff80}, {0x7f800001, 0x7fc0}, {0xffc00000, 0xffc0}});
}

TEST_CASE("F16 is rounded to the nearest bf16, ties to even") {
  check_rounding("F16", 2, {{0x0000, 0x0000}, {0x8000, 0x8000}, {0x3c00, 0x3f80}, {0xc000, 0xc000},
                            {0x3c03, 0x3f80}, {0x3c04, 0x3f80}, {0x3c05, 0x3f81}, {0x3c0c, 0x3f82},
                            {0xbc0c, 0xbf82}, {0x0001, 0x3380}, {0x8001, 0xb380}, {0x0003, 0x3440},
                            {0x03ff, 0x3880},  // denormal
                            {0x0400, 0x3880}, {0x0408, 0x3881}, {0x7bff, 0x4780}, {0x7c00, 0x7f80},
                            {0xfc00, 0xff80}, {0x7c01, 0x7fc0}, {0xfe00, 0xffc0}});
}

TEST_CASE("any part of a tensor is read") {
  const size_t count = (1 << 18) + 5;  // more than what is rounded at a time
  const auto wanted = [](size_t i) { return to_bf16(static_cast<float>(i % 251)).bits; };
  std::string f32, f16, bf16;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t bits = static_cast<uint32_t>(wanted(i)) << 16;
    f32 += little_endian(bits, 4);
    f16 += little_endian(bits == 0 ? 0 : (bits - (112u << 23)) >> 13, 2);
    bf16 += little_endian(bits >> 16, 2);
  }
  for (const auto& [dtype, data] : {std::pair("F32", &f32), {"F16", &f16}, {"BF16", &bf16}}) {
    INFO(dtype);
    const OneTensor tensor(dtype, count, *data);
    for (const size_t first : {size_t{0}, size_t{3}, count - 1}) {
      const std::vector<uint16_t> found = tensor.read(first, count - first);
      size_t wrong = 0;
      for (size_t i = 0; i < found.size(); ++i) wrong += found[i] != wanted(first + i) ? 1 : 0;
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("a rounded checkpoint is the bf16 checkpoint with its values, and hosts get that one") {
  const TemporaryFolder of_bf16, tmpdir;
  const ScopedVariable variable("TMPDIR", tmpdir.path().c_str());
  write_micro_model(of_bf16.path());
  const ModelWeights wanted = load_folder(of_bf16.path(), "micro");
  CHECK((wanted.rounded.empty() && wanted.folder == of_bf16.path()));
  const std::vector<std::pair<std::vector<std::string>, std::string>> rows = {
      {{"F32"}, "24 F32 of 24 tensors"},
      {{"F16"}, "24 F16 of 24 tensors"},
      {{"BF16", "F32", "BF16", "F16"}, "6 F16, 6 F32 of 24 tensors"},
  };
  for (const auto& [types, told] : rows) {
    INFO(told);
    const TemporaryFolder folder;
    write_model(folder.path(), micro_in(types));
    const ModelWeights weights = load_folder(folder.path(), "micro");
    CHECK(weights.sha256 == wanted.sha256);
    CHECK(hash_weights(weights) == wanted.sha256);
    CHECK(weights.rounded == told);
    CHECK(weights.folder.empty());
    const ModelWeights shared = share_weights(weights);
    CHECK(shared.rounded == told);
    const ModelWeights read = load_folder(shared.folder, "read");
    CHECK((read.sha256 == wanted.sha256 && read.rounded.empty()));

    // Without a look at values, too.
    const LoadOptions known{.check_finite = false, .sha256 = "known"};
    CHECK(hash_weights(load_folder(folder.path(), "micro", known)) == wanted.sha256);
  }
}

TEST_CASE("a tied head in another type is told, and not taken") {
  const TemporaryFolder folder;
  std::vector<FileTensor> tensors = micro_tensors();
  tensors.push_back(stored_as(tensors.front(), "F32"));
  tensors.back().name = "lm_head.weight";
  write_model(folder.path(), tensors);
  const ModelWeights weights = load_folder(folder.path(), "micro");
  CHECK(weights.lm_head.data == weights.embed_tokens.data);
  CHECK_THAT(weights.head, ContainsText("lm_head.weight has equal values"));
  CHECK(weights.rounded == "1 F32 of 25 tensors");
}

}  // namespace mkbench::testing
