// The container reader on sound files, and on tens of thousands of damaged ones.
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>

#include "references/base/error.h"
#include "references/safetensors.h"
#include "tests/support/catch2.h"
#include "tests/support/input_case.h"
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

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The small files of the input tables; mutations start from them.
std::vector<std::string> seeds() {
  std::vector<std::string> files = {
      safetensors_bytes(micro_tensors()),
      safetensors_bytes(
          {{"a", "F4", {3, 2}, "abc"}, {"b", "F64", {}, "12345678"}, {"c", "BOOL", {0}, ""}})};
  for (const InputCase& input : container_cases()) {
    if (input.row == "S38" || !input.options.empty()) continue;
    const TemporaryFolder folder;
    input.make(folder.path());
    const fs::path file = folder.path() / "model.safetensors";
    if (fs::is_regular_file(file) && fs::file_size(file) < 4096) files.push_back(read_all(file));
  }
  return files;
}

class Mutator {
 public:
  explicit Mutator(std::vector<std::string> seeds) : seeds_(std::move(seeds)) {}

  std::string next() {
    // Half of the mutations start from the two sound files: most edits of a file that has a fault
    // already change nothing.
    std::string bytes = below(2) == 0 ? seeds_[below(2)] : pick(seeds_);
    for (size_t i = below(4); i-- > 0;) mutate(bytes);
    // In half of the mutations the size field is made to fit again; otherwise nearly every file
    // would be refused for it.
    if (bytes.size() >= 8 && below(2) == 0) {
      const size_t brace = bytes.rfind('}');
      const uint64_t size = brace == std::string::npos || brace < 8 ? 0 : brace - 7;
      for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(size >> (8 * i) & 0xff);
    }
    return bytes;
  }

 private:
  size_t below(size_t n) { return static_cast<size_t>(random_() % n); }
  const std::string& pick(const std::vector<std::string>& from) { return from[below(from.size())]; }

  void mutate(std::string& bytes) {
    static const std::vector<std::string> tokens = {
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "\\",
        "\\u0000",
        "\\ud800",
        "0",
        "-1",
        "1e3",
        "1.5",
        "null",
        "true",
        "\"a\"",
        "\"dtype\"",
        "\"shape\"",
        "\"data_offsets\"",
        "\"__metadata__\"",
        "\"BF16\"",
        "\"F6_E2M3\"",
        "18446744073709551615",
        "18446744073709551616",
        "9223372036854775807",
        "4294967296",
        "\xef\xbb\xbf",
        "\xff",
        std::string(1, '\0'),
        " ",
        "\n",
        R"("b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]},)"};
    if (bytes.empty()) return;
    const size_t at = below(bytes.size());
    const size_t length = std::min<size_t>(1 + below(12), bytes.size() - at);
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 1:
        bytes.insert(at, pick(tokens));
        break;
      case 2:
        bytes.erase(at, length);
        break;
      case 3:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 4:
        bytes.replace(at, length, pick(tokens));
        break;
      default: {
        const std::string& other = pick(seeds_);
        if (!other.empty()) bytes.replace(at, std::string::npos, other.substr(below(other.size())));
      }
    }
  }

  std::vector<std::string> seeds_;
  std::mt19937_64 random_{20260101};  // fixed, so that a failure comes again
};

// Whether an accepted header keeps the promises of references/safetensors.h.
bool is_consistent(const SafetensorsHeader& header, size_t file_bytes) {
  uint64_t covered = 0;
  for (const TensorEntry& tensor : header.tensors) {
    if (tensor.begin != covered || tensor.end < tensor.begin) return false;
    if (tensor.shape.size() > kMaxRank || tensor.dtype.empty()) return false;
    covered = tensor.end;
  }
  return header.data_begin + covered == file_bytes;
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

TEST_CASE("damaged headers end in one clean error or in a header that holds together") {
  Mutator mutator(seeds());
  int accepted = 0, refused = 0;
  for (int i = 0; i < 60'000; ++i) {
    const std::string bytes = mutator.next();
    try {
      const SafetensorsHeader header = parse(bytes);
      ++accepted;
      if (!is_consistent(header, bytes.size())) {
        INFO("mutation " << i << ": " << bytes);
        FAIL("accepted, but it does not hold together");
      }
    } catch (const Error& error) {
      ++refused;
      const std::string_view message = error.what();
      if (error.kind() != ErrorKind::kBadInput || !message.starts_with("x.safetensors: ") ||
          message.find('\n') != std::string_view::npos || message.size() > 1000) {
        INFO("mutation " << i << ": " << message);
        FAIL("not a clean refusal");
      }
    }
  }
  // Both outcomes must be frequent, or the loop tests one of them only.
  CHECK(accepted > 1'000);
  CHECK(refused > 20'000);
}

}  // namespace mkbench::testing
