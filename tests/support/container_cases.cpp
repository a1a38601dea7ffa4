// Rows S1-S39: defects of one safetensors file that show without knowing its model.
#include <sys/stat.h>

#include <cstdint>

#include "tests/support/input_case.h"
#include "tests/support/micro_model.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;
using Named = std::vector<std::string>;

constexpr const char* kFile = "model.safetensors";

// The cases, each of which is added by its row, defect, change and what the message must name.
struct Table {
  void add(const char* row, const std::string& what, std::function<void(const fs::path&)> make,
           Named named, std::vector<std::string> options = {}) {
    cases.push_back({row, what, std::move(make), std::move(named), std::move(options)});
  }
  std::vector<InputCase> cases;
};

// Makes a case that replaces the weights file by `bytes`.
auto file_of(std::string bytes) {
  return [bytes = std::move(bytes)](const fs::path& folder) { write_file(folder / kFile, bytes); };
}

std::string size_field(uint64_t size) {
  std::string bytes;
  for (size_t i = 0; i < 8; ++i) bytes += static_cast<char>(size >> (8 * i) & 0xff);
  return bytes;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}
// One BF16 tensor 'a' of 4 bytes with the given shape and offsets.
std::string one(const std::string& shape, const std::string& offsets = "[0,4]") {
  return container("{" + entry("a", "\"BF16\"", shape, offsets) + "}", "abcd");
}
const std::string kSoundEntry = entry("a", "\"BF16\"", "[2]", "[0,4]");

// The micro model with one weight of type `dtype`, whose data has `bytes` bytes.
auto with_dtype(const std::string& dtype, size_t bytes) {
  return [=](const fs::path& folder) {
    std::vector<FileTensor> tensors = micro_tensors();
    FileTensor& tensor = find_tensor(tensors, "model.layers.1.self_attn.k_proj.weight");
    tensor.dtype = dtype;
    tensor.data.assign(bytes, '\x11');
    write_file(folder / kFile, safetensors_bytes(tensors));
  };
}

void add_size_cases(Table& table) {
  for (const size_t size : {0, 1, 7})
    table.add("S1", std::to_string(size) + " bytes", file_of(std::string(size, '\x07')),
              {kFile, std::to_string(size) + " bytes", "needs 8"});
  table.add("S2", "N = 0", file_of(container("", "abcd")), {kFile, "empty header"});
  for (const size_t size : {1, 2, 3, 4, 5, 6, 7})
    table.add("S3", "N = " + std::to_string(size),
              file_of(container(("{" + kSoundEntry + "}").substr(0, size), "abcd")),
              {"not JSON at byte"});
  table.add("S4", "N one above the cap, in a file that has it",
            [](const fs::path& folder) {
              write_file(folder / kFile, size_field((16 << 20) + 1) + "{");
              fs::resize_file(folder / kFile, 32 << 20);
            },
            {"16777217", "cap of 16777216"});
  const std::pair<uint64_t, const char*> wraps[] = {{uint64_t{1} << 63, "9223372036854775808"},
                                                    {~uint64_t{0}, "18446744073709551615"},
                                                    {~uint64_t{7}, "18446744073709551608"}};
  for (const auto& [size, text] : wraps)
    table.add("S5", std::string("N = ") + text, file_of(size_field(size) + "{}      "),
              {text, "the file has 16 bytes"});
  table.add("S6", "one byte short of the header", file_of(size_field(60) + std::string(59, ' ')),
            {"header size 60", "59 bytes", "truncated?"});
}

void add_json_cases(Table& table) {
  const auto header = [&](const char* row, const char* what, const std::string& text, Named named) {
    table.add(row, what, file_of(container(text, "abcd")), std::move(named));
  };
  header("S7", "stray byte", "{\"a\xff\":{}}", {"UTF-8", "byte 3"});
  header("S7", "overlong", "{\"\xc0\x80\":{}}", {"UTF-8", "byte 2"});
  header("S7", "surrogate", "{\"abc\xed\xa0\x80\":{}}", {"UTF-8", "byte 5"});
  header("S7", "cut sequence", "{}\xe2\x82", {"UTF-8", "byte 2"});
  header("S8", "not JSON", "hello", {"must be an object"});
  header("S8", "array", "[]", {"must be an object"});
  header("S8", "string", "\"x\"", {"must be an object"});
  header("S8", "null", "null", {"must be an object"});
  header("S8", "number", "7", {"must be an object"});
  header("S9", "two values", "{}{}", {"not JSON at byte 2"});
  header("S9", "garbage", "{" + kSoundEntry + "} x",
         {"not JSON at byte " + std::to_string(kSoundEntry.size() + 3)});
  header("S10", "NUL padding", "{" + kSoundEntry + "}" + std::string(3, '\0'),
         {"NUL at byte " + std::to_string(kSoundEntry.size() + 2)});
  header("S11", "byte order mark", "\xef\xbb\xbf{" + kSoundEntry + "}",
         {"starts with '{'", "byte 0"});
  header("S11", "leading space", " {" + kSoundEntry + "}", {"starts with '{'", "byte 0"});
  header("S11", "leading newline", "\n{" + kSoundEntry + "}", {"starts with '{'", "byte 0"});

  std::string deep = "{\"a\":";
  for (int i = 0; i < 100'000; ++i) deep += '[';
  header("S12", "100,000 levels", deep, {"nested deeper than 8"});
  std::string wide = "{";
  for (int i = 0; i < 1'000'000; ++i) wide += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":{}";
  header("S12", "1,000,000 keys", wide + "}", {"more than", "keys"});
  std::string many = "{";
  for (int i = 0; i < 66'000; ++i)
    many += (i == 0 ? "" : ",") + entry(std::to_string(i), "\"U8\"", "[0]", "[0,0]");
  header("S12", "66,000 tensors", many + "}", {"66000 tensors", "at most 65536"});
  table.add("S12", "string of 50 MB",
            [](const fs::path& folder) {
              write_file(folder / kFile,
                         container("{\"" + std::string(50'000'000, 'x') + "\":0}", ""));
            },
            {"cap of 16777216"});
  header("S12", "string of 15 MB", "{\"" + std::string(15'000'000, 'x') + "\":0}",
         {"(15000000 bytes)"});
  header("S13", "two tensors of one name", "{" + kSoundEntry + "," + kSoundEntry + "}",
         {"duplicate key 'a'"});
  header("S14", "shape twice",
         R"({"a":{"dtype":"BF16","shape":[2],"shape":[2],"data_offsets":[0,4]}})",
         {"duplicate key 'shape'", "'a'"});
}

void add_field_cases(Table& table) {
  const auto header = [&](const char* row, const std::string& what, const std::string& text,
                          Named named) {
    table.add(row, what, file_of(container(text, "abcd")), std::move(named));
  };
  header("S15", "__metadata__ as a tensor",
         "{" + entry("__metadata__", "\"BF16\"", "[2]", "[0,4]") + "}",
         {"__metadata__", "'data_offsets'", "string"});
  header("S15", "value not a string", R"({"__metadata__":{"format":1},)" + kSoundEntry + "}",
         {"__metadata__", "'format'", "string"});
  header("S15", "a list", R"({"__metadata__":["pt"],)" + kSoundEntry + "}", {"__metadata__"});
  header("S16", "no dtype", R"({"a":{"shape":[2],"data_offsets":[0,4]}})",
         {"'a'", "'dtype'", "missing"});
  header("S16", "no shape", R"({"a":{"dtype":"BF16","data_offsets":[0,4]}})",
         {"'a'", "'shape'", "missing"});
  header("S16", "no offsets", R"({"a":{"dtype":"BF16","shape":[2]}})",
         {"'a'", "'data_offsets'", "missing"});
  header("S16", "entry is a number", R"({"a":5})", {"'a'", "5", "wanted an object"});
  header("S17", "extra field",
         R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4],"strides":[1]}})",
         {"'a'", "unknown field 'strides'"});
  const std::pair<const char*, const char*> unknown[] = {
      {"\"bf16\"", "'bf16'"}, {"\"BFLOAT16\"", "'BFLOAT16'"}, {"\"\"", "''"}, {"7", "7"}};
  for (const auto& [dtype, shown] : unknown)
    header("S18", dtype, "{" + entry("a", dtype, "[2]", "[0,4]") + "}",
           {"'a'", std::string("unknown dtype ") + shown, "known: BOOL", "BF16"});
  const std::pair<const char*, size_t> types[] = {
      {"F64", 128}, {"U16", 32}, {"F8_E4M3", 16}, {"I8", 16}, {"F4", 8}};
  for (const auto& [dtype, bytes] : types)
    table.add("S19", dtype, with_dtype(dtype, bytes),
              {"'model.layers.1.self_attn.k_proj.weight'", std::string("dtype is ") + dtype,
               "wanted BF16, F16 or F32: save the model in one of these"});
  table.add("S19", "F16: legal", with_dtype("F16", 32), {});
  table.add("S19", "F32: legal", with_dtype("F32", 64), {});
  const std::pair<const char*, const char*> elements[] = {
      {"-1", "-1"},     {"1.5", "1.5"}, {"\"3\"", "'3'"}, {"true", "true"},
      {"null", "null"}, {"2e0", "2.0"}, {"-0", "0"},      {"[2]", "an array"}};
  for (const auto& [element, shown] : elements)
    header("S20", element,
           "{" + entry("a", "\"BF16\"", std::string("[1,") + element + "]", "[0,4]") + "}",
           {"'a'", "shape[1]", shown, "wanted an integer"});
  header("S20", "not a list", "{" + entry("a", "\"BF16\"", "2", "[0,4]") + "}",
         {"'a'", "shape is 2"});
  for (const char* element : {"02", "+2", "2.", "0x2"})
    header("S20", element,
           "{" + entry("a", "\"BF16\"", std::string("[") + element + "]", "[0,4]") + "}",
           {"not JSON at byte"});
}

void add_arithmetic_cases(Table& table) {
  const auto shape = [&](const char* row, const std::string& text, Named named) {
    table.add(row, text.substr(0, 60), file_of(one(text)), std::move(named));
  };
  shape("S21", "[9223372036854775809]", {"'a'", "overflow", "[9223372036854775809]"});
  shape("S21", "[18446744073709551616]",
        {"'a'", "'shape'", "[0]", "overflow", "18446744073709551616"});
  shape("S21", "[4294967296,4294967296]", {"'a'", "overflow", "[4294967296, 4294967296]"});
  shape("S21", "[8589934592,8589934592,2]", {"'a'", "overflow"});
  shape("S22", "[9223372036854775808]", {"'a'", "overflow", "BF16"});
  shape("S22", "[2305843009213693952,4]", {"'a'", "overflow", "BF16"});
  std::string ones = "[1";
  for (int i = 1; i < 1'000'000; ++i) ones += ",1";
  shape("S23", ones + "]", {"'a'", "rank 1000000", "at most 8"});
  table.add("S24", "a norm without elements",
            [](const fs::path& folder) {
              std::vector<FileTensor> tensors = micro_tensors();
              FileTensor& norm = find_tensor(tensors, "model.norm.weight");
              norm.shape = {0};
              norm.data.clear();
              write_file(folder / kFile, safetensors_bytes(tensors));
            },
            {"'model.norm.weight'", "shape is [0]", "wanted [4]"});

  const auto offsets = [&](const char* row, const std::string& text, Named named) {
    table.add(row, text, file_of(one("[2]", text)), std::move(named));
  };
  offsets("S25", "[0]", {"'a'", "data_offsets", "array of 1"});
  offsets("S25", "[0,4,4]", {"'a'", "data_offsets", "array of 3"});
  offsets("S25", "4", {"'a'", "data_offsets is 4"});
  offsets("S25", "[-4,0]", {"'a'", "data_offsets[0] is -4"});
  offsets("S25", "[0,4.0]", {"'a'", "data_offsets[1] is 4.0"});
  offsets("S25", "[\"0\",4]", {"'a'", "data_offsets[0] is '0'"});
  offsets("S26", "[4,0]", {"'a'", "end 0", "begin 4"});
  offsets("S27", "[0,3]", {"'a'", "hold 3 bytes", "needs 4"});
  offsets("S27", "[0,5]", {"'a'", "hold 5 bytes", "needs 4"});
  offsets("S27", "[0,8]", {"'a'", "hold 8 bytes", "needs 4"});
  offsets("S27", "[0,2]", {"'a'", "hold 2 bytes", "needs 4"});
  const std::string file_size =
      "the file has " + std::to_string(one("[2]", "[2,6]").size()) + " bytes";
  offsets("S28", "[2,6]", {"'a'", "2 bytes missing", file_size});
  offsets("S28", "[8,12]", {"'a'", "8 bytes missing"});
  offsets("S28", "[18446744073709551611,18446744073709551615]",
          {"'a'", "beyond the data", "the file has"});
  table.add("S27", "F4 that ends within a byte",
            file_of(container("{" + entry("a", "\"F4\"", "[3]", "[0,2]") + "}", "ab")),
            {"'a'", "12 bits", "whole bytes"});
}

void add_cover_cases(Table& table) {
  const auto pair = [&](const char* row, const char* what, const char* first, const char* second,
                        size_t data, Named named) {
    const std::string header =
        "{" + entry("a", "\"U8\"", "[4]", first) + "," + entry("b", "\"U8\"", "[4]", second) + "}";
    table.add(row, what, file_of(container(header, std::string(data, 'x'))), std::move(named));
  };
  pair("S29", "begins at 1", "[1,5]", "[5,9]", 9, {"'a'", "begins at 1", "wanted 0"});
  pair("S30", "hole of one byte", "[0,4]", "[5,9]", 9, {"'a'", "'b'", "hole of 1 bytes"});
  pair("S31", "overlap of one byte", "[0,4]", "[3,7]", 7, {"'a'", "'b'", "overlap"});
  pair("S31", "alias", "[0,4]", "[0,4]", 4, {"'a'", "'b'", "overlap"});
  pair("S32", "five bytes not there", "[0,4]", "[4,8]", 3,
       {"'b'", "5 bytes missing", "truncated?"});
  pair("S33", "four bytes too many", "[0,4]", "[4,8]", 12, {"4 extra bytes"});
  for (const size_t residue : {1, 3, 7})
    table.add("S34", "N % 8 = " + std::to_string(residue) + ": legal",
              [residue](const fs::path& folder) {
                write_file(folder / kFile, safetensors_bytes(micro_tensors(), residue));
              },
              {});
}

void add_foreign_cases(Table& table) {
  table.add(
      "S35", "pointer",
      file_of(
          "version https://git-lfs.github.com/spec/v1\noid "
          "sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"),
      {"Git LFS pointer", "oid sha256:4d7a2146", "size 12345"});
  table.add("S36", "HTML", file_of("<!DOCTYPE html>\n<html><body>502 Bad Gateway</body></html>\n"),
            {"first bytes", "<!DOCTYPE html>"});
  table.add("S36", "JSON", file_of(R"({"error":"Repository not found"})"),
            {"first bytes", R"({"error":"Repository)"});
  table.add("S37", "pickle", file_of(std::string("\x80\x02}q\x00(X\x0a\x00\x00\x00model", 16)),
            {"pickle"});
  table.add("S37", "zip", file_of(std::string("PK\x03\x04\x00\x00\x08\x08\x00\x00\x00\x00", 12)),
            {"zip", "PyTorch"});
  table.add("S37", "GGUF", file_of(std::string("GGUF\x03\x00\x00\x00\x23\x01\x00\x00", 12)),
            {"GGUF"});
}

void add_file_system_cases(Table& table) {
  const auto instead = [&](const char* what, auto make, Named named) {
    named.push_back(kFile);
    table.add(
        "S38", what,
        [make](const fs::path& folder) {
          fs::remove(folder / kFile);
          make(folder / kFile);
        },
        std::move(named));
  };
  instead("directory", [](const fs::path& path) { fs::create_directory(path); },
          {"Is a directory"});
  instead("FIFO", [](const fs::path& path) { mkfifo(path.c_str(), 0600); }, {"FIFO"});
  instead("/dev/zero", [](const fs::path& path) { fs::create_symlink("/dev/zero", path); },
          {"character device"});
  instead("symlink loop", [](const fs::path& path) { fs::create_symlink(path, path); },
          {"Too many levels of symbolic links"});
  instead("dangling link", [](const fs::path& path) { fs::create_symlink("nowhere", path); },
          {"nowhere, which is not there"});
  instead("unreadable",
          [](const fs::path& path) {
            write_file(path, safetensors_bytes(micro_tensors()));
            fs::permissions(path, fs::perms::none);
          },
          {"Permission denied"});
  table.add("S39", "shrinks to its half", [](const fs::path&) {},
            {kFile, "ends at byte", "when it was opened"}, {"--shrink-to", "2000"});
  table.add("S39", "shrinks to nothing", [](const fs::path&) {},
            {kFile, "ends at byte", "when it was opened"}, {"--shrink-to", "0"});
}

}  // namespace

std::vector<InputCase> container_cases() {
  Table table;
  add_size_cases(table);
  add_json_cases(table);
  add_field_cases(table);
  add_arithmetic_cases(table);
  add_cover_cases(table);
  add_foreign_cases(table);
  add_file_system_cases(table);
  return table.cases;
}

}  // namespace mkbench::testing
