// The container reader on sound files. test_input_tables has those that must be refused, and fuzz_safetensors_mutated
// damages tens of thousands.
#include <cstring>

#include "references/base/error.h"
#include "references/safetensors.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

SafetensorsHeader parse(const std::string& bytes) {
  return parse_header(as_bytes(bytes), bytes.size(), "x.safetensors");
}

}  // namespace

TEST_CASE("a header becomes tensors in file order, with metadata apart") {
  const SafetensorsHeader header = parse(container(
      R"({"z":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"__metadata__":{"format":"pt"},)"
      R"("a":{"data_offsets":[4,12],"shape":[],"dtype":"F64"},"e":{"dtype":"U8","shape":[0,3],"data_offsets":[12,12]}}   )",
      "abcdefghijkl"));
  REQUIRE(header.tensors.size() == 3);
  CHECK(header.tensors[0].name == "z");
  CHECK(header.tensors[0].shape == std::vector<uint64_t>{1, 2});
  CHECK(header.tensors[1].name == "a");
  CHECK(header.tensors[1].dtype == "F64");
  CHECK(header.tensors[1].shape.empty());
  CHECK(header.tensors[1].bytes() == 8);
  CHECK(header.tensors[2].bytes() == 0);
  CHECK(header.metadata == std::map<std::string, std::string>{{"format", "pt"}});
  CHECK(parse(container("{}", "")).tensors.empty());
}

TEST_CASE("each type has the size that its bits want") {
  const std::pair<const char*, int> types[] = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
      {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
      {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
      {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
      {"I64", 64},        {"U64", 64}};
  for (const auto& [dtype, bits] : types) {
    INFO(dtype);
    const std::string data(static_cast<size_t>(bits), 'x');  // 8 elements
    CHECK(parse(safetensors_bytes({{"t", dtype, {8}, data}})).tensors[0].dtype == dtype);
    CHECK_THROWS_AS(parse(safetensors_bytes({{"t", dtype, {8}, data + "x"}})), Error);
  }
}

TEST_CASE("file views and reads give the same bytes at every alignment") {
  for (size_t residue = 0; residue < 8; ++residue) {
    const TemporaryFolder folder;
    const fs::path path = folder.path() / "m.safetensors";
    const std::vector<FileTensor> tensors = micro_tensors();
    write_file(path, safetensors_bytes(tensors, residue));
    const SafetensorsFile file(path);
    REQUIRE(file.header().tensors.size() == tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorEntry& entry = file.header().tensors[i];
      const std::span<const std::byte> view = file.view(entry);
      REQUIRE(view.size() == tensors[i].data.size());
      CHECK(std::memcmp(view.data(), tensors[i].data.data(), view.size()) == 0);
      std::vector<std::byte> tail(view.size() - 3);
      file.read(entry, 3, tail);
      CHECK(std::memcmp(tail.data(), view.data() + 3, tail.size()) == 0);
      CHECK_THROWS_AS(file.read(entry, 4, tail), Error);
    }
    file.check_unchanged();
  }
}

TEST_CASE("a file that changes while it is open is noticed") {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "m.safetensors";
  const std::string bytes = safetensors_bytes(micro_tensors());
  write_file(path, bytes);
  const SafetensorsFile file(path);
  fs::resize_file(path, bytes.size() + 1);
  CHECK_THROWS_AS(file.check_unchanged(), Error);
  fs::resize_file(path, bytes.size());
  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::seconds(7));
  CHECK_THROWS_AS(file.check_unchanged(), Error);
}

}  // namespace mkbench::testing
