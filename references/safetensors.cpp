#include "references/safetensors.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "references/base/error.h"
#include "references/base/file_form.h"
#include "references/base/json_strict.h"

namespace mkbench {
namespace {

using nlohmann::json;

struct DType {
  std::string_view name;
  unsigned bits;
};
// All types of safetensors 0.8.0. F4 and F6 are packed, and their tensors must end on whole bytes.
constexpr DType kDTypes[] = {
    {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},
    {"I8", 8},          {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8},
    {"F8_E5M2FNUZ", 8}, {"I16", 16},    {"U16", 16},    {"F16", 16},    {"BF16", 16},
    {"I32", 32},        {"U32", 32},    {"F32", 32},    {"C64", 64},    {"F64", 64},
    {"I64", 64},        {"U64", 64},
};

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Guesses the format of a file that is no safetensors file, for the message; empty without a guess.
std::string guess_format(std::span<const std::byte> head) {
  const std::string_view text = as_text(head);
  if (const std::string form = file_form(text); !form.empty()) return "; " + form;
  const std::string_view start = text.substr(0, 48);
  const bool printable = !start.empty() && std::all_of(start.begin(), start.end(), [](char c) {
    return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
  });
  if (printable) return "; it looks like text, first bytes: " + in_quotes(start);
  return "";
}

// Checks one entry of the header.
class EntryParser {
 public:
  EntryParser(const std::string& path, const std::string& name, const json& entry)
      : path_(path), name_(name), entry_(entry) {}

  TensorEntry parse() const {
    if (!entry_.is_object()) fail(fmt::format("entry is {}, wanted an object", describe(entry_)));
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (!entry_.contains(field)) fail(fmt::format("field '{}' is missing", field));
    }
    for (const auto& [field, value] : entry_.items()) {
      if (field != "dtype" && field != "shape" && field != "data_offsets")
        fail("unknown field " + in_quotes(field) + ", known: dtype, shape, data_offsets");
    }
    TensorEntry tensor;
    tensor.name = name_;
    const DType& dtype = parse_dtype();
    tensor.dtype = dtype.name;
    tensor.shape = parse_shape();
    parse_offsets(tensor);
    check_extent(tensor, bytes_wanted(tensor.shape, dtype));
    return tensor;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    bad_input(path_, "tensor " + in_quotes(name_) + ": " + what);
  }

  const DType& parse_dtype() const {
    const json& value = entry_.at("dtype");
    for (const DType& dtype : kDTypes) {
      if (value.is_string() && value.get_ref<const std::string&>() == dtype.name) return dtype;
    }
    std::string known;
    for (const DType& dtype : kDTypes)
      known += fmt::format("{}{}", known.empty() ? "" : ", ", dtype.name);
    fail(fmt::format("unknown dtype {}, known: {}", describe(value), known));
  }

  // Takes integers only and never goes through a double, which would round large ones: 1.5, 1e3 and
  // negative numbers are refused.
  uint64_t parse_integer(const json& value, const char* field, size_t index) const {
    if (!value.is_number_unsigned())
      fail(fmt::format("{}[{}] is {}, wanted an integer of 0 or more", field, index,
                       describe(value)));
    return value.get<uint64_t>();
  }

  std::vector<uint64_t> parse_shape() const {
    const json& value = entry_.at("shape");
    if (!value.is_array()) fail(fmt::format("shape is {}, wanted an array", describe(value)));
    if (value.size() > kMaxRank)
      fail(fmt::format("shape has rank {}, at most {} is read", value.size(), kMaxRank));
    std::vector<uint64_t> shape;
    for (const json& dimension : value)
      shape.push_back(parse_integer(dimension, "shape", shape.size()));
    return shape;
  }

  void parse_offsets(TensorEntry& tensor) const {
    const json& value = entry_.at("data_offsets");
    if (!value.is_array() || value.size() != 2)
      fail(fmt::format("data_offsets is {}, wanted [begin, end]", describe(value)));
    tensor.begin = parse_integer(value[0], "data_offsets", 0);
    tensor.end = parse_integer(value[1], "data_offsets", 1);
    if (tensor.end < tensor.begin)
      fail(fmt::format("data_offsets end {} is before begin {}", tensor.end, tensor.begin));
  }

  uint64_t bytes_wanted(const std::vector<uint64_t>& shape, const DType& dtype) const {
    uint64_t product = 1;
    bool overflow = false;
    for (const uint64_t dimension : shape)
      overflow = __builtin_mul_overflow(product, dimension, &product) || overflow;
    overflow = __builtin_mul_overflow(product, uint64_t{dtype.bits}, &product) || overflow;
    if (overflow)
      fail(fmt::format("overflow: shape {} of {} does not fit 64 bits", shape_text(shape),
                       dtype.name));
    if (product % 8 != 0)
      fail(fmt::format("shape {} of {} is {} bits, wanted whole bytes", shape_text(shape),
                       dtype.name, product));
    return product / 8;
  }

  void check_extent(const TensorEntry& tensor, uint64_t wanted) const {
    if (tensor.bytes() != wanted)
      fail(fmt::format("data_offsets [{}, {}] hold {} bytes, shape {} of {} needs {}", tensor.begin,
                       tensor.end, tensor.bytes(), shape_text(tensor.shape), tensor.dtype, wanted));
  }

  const std::string& path_;
  const std::string& name_;
  const json& entry_;
};

void parse_metadata(const json& value, const std::string& path, SafetensorsHeader& header) {
  if (!value.is_object())
    bad_input(path,
              fmt::format("'__metadata__' is {}, wanted an object of strings", describe(value)));
  for (const auto& [key, text] : value.items()) {
    if (!text.is_string())
      bad_input(path, fmt::format("'__metadata__' key {} is {}, wanted a string", in_quotes(key),
                                  describe(text)));
    header.metadata.emplace(key, text.get<std::string>());
  }
}

// Requires every byte of the data section to belong to exactly one tensor, and to be in the file.
void check_cover(const std::vector<TensorEntry>& tensors, uint64_t file_bytes, uint64_t data_bytes,
                 const std::string& path) {
  const auto last =
      std::max_element(tensors.begin(), tensors.end(),
                       [](const TensorEntry& a, const TensorEntry& b) { return a.end < b.end; });
  if (last != tensors.end() && last->end > data_bytes)
    bad_input(path, fmt::format(
                        "tensor {}: data_offsets [{}, {}] reach beyond the data, {} bytes missing "
                        "(the file has {} bytes, {} of them data): truncated?",
                        in_quotes(last->name), last->begin, last->end, last->end - data_bytes,
                        file_bytes, data_bytes));
  uint64_t covered = 0;
  const TensorEntry* previous = nullptr;
  for (const TensorEntry& t : tensors) {
    if (t.begin != covered && previous == nullptr)
      bad_input(path, fmt::format("tensor {} is the first and begins at {}, wanted 0",
                                  in_quotes(t.name), t.begin));
    if (t.begin > covered)
      bad_input(path, fmt::format(
                          "hole of {} bytes between tensors {} (ends at {}) and {} (begins at {})",
                          t.begin - covered, in_quotes(previous->name), covered, in_quotes(t.name),
                          t.begin));
    if (t.begin < covered)
      bad_input(path, fmt::format("tensors {} [{}, {}] and {} [{}, {}] overlap",
                                  in_quotes(previous->name), previous->begin, previous->end,
                                  in_quotes(t.name), t.begin, t.end));
    covered = t.end;
    previous = &t;
  }
  if (covered != data_bytes)
    bad_input(path, fmt::format("{} extra bytes after the last tensor (data ends at {} of {})",
                                data_bytes - covered, covered, data_bytes));
}

}  // namespace

std::string shape_text(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

uint64_t parse_header_size(std::span<const std::byte> head, uint64_t file_bytes,
                           const std::string& path) {
  if (file_bytes < 8 || head.size() < 8)
    bad_input(path, fmt::format("{} bytes, a safetensors file needs 8 for the header size{}",
                                file_bytes, guess_format(head)));
  uint64_t size = 0;
  for (size_t i = 8; i-- > 0;) size = size << 8 | static_cast<uint64_t>(head[i]);
  // `size` is compared without adding 8, because 8 + size wraps for a size near 2^64.
  if (size > kMaxHeaderBytes)
    bad_input(path, fmt::format("header size {} is above the cap of {} (the file has {} bytes){}",
                                size, kMaxHeaderBytes, file_bytes, guess_format(head)));
  if (size > file_bytes - 8)
    bad_input(path, fmt::format("header size {} but only {} bytes follow: truncated?", size,
                                file_bytes - 8));
  if (size == 0) bad_input(path, "empty header (header size 0)");
  return size;
}

SafetensorsHeader parse_header(std::span<const std::byte> head, uint64_t file_bytes,
                               const std::string& path) {
  const uint64_t header_bytes = parse_header_size(head, file_bytes, path);
  if (head.size() - 8 < header_bytes)
    throw Error(ErrorKind::kRuntime, path + ": parse_header was given a part of the header");
  const std::string_view text = as_text(head.subspan(8, static_cast<size_t>(header_bytes)));
  const std::string where = path + ": header";
  if (text[0] != '{')
    bad_input(where, "must be an object that starts with '{' at byte 0, found " +
                         in_quotes(text.substr(0, 8)));
  const JsonLimits limits{
      .bytes = kMaxHeaderBytes, .depth = 8, .keys = 4 * kMaxTensors + 4096, .values = 2'000'000};
  const json root = parse_json_strict(text, where, limits);

  SafetensorsHeader header;
  header.data_begin = 8 + header_bytes;
  const uint64_t data_bytes = file_bytes - header.data_begin;
  if (root.size() > kMaxTensors + 1)
    bad_input(where, fmt::format("{} tensors, at most {} are read", root.size(), kMaxTensors));
  for (const auto& [name, entry] : root.items()) {
    if (name == "__metadata__") {
      parse_metadata(entry, where, header);
    } else {
      header.tensors.push_back(EntryParser(path, name, entry).parse());
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) {
              return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
            });
  check_cover(header.tensors, file_bytes, data_bytes, path);
  return header;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  // The size field is judged before anything of that size is allocated.
  std::vector<std::byte> head(static_cast<size_t>(std::min<uint64_t>(file_.size(), 256)));
  file_.read_at(0, head.data(), head.size());
  const uint64_t header_bytes = parse_header_size(head, file_.size(), file_.path());
  head.resize(static_cast<size_t>(8 + header_bytes));
  file_.read_at(0, head.data(), head.size());
  header_ = parse_header(head, file_.size(), file_.path());
  // Without MAP_POPULATE or MADV_WILLNEED, which gain nothing: with a file of 1.19 GB in memory the
  // page faults of one pass cost about 0.07 s, populating costs 0.09 s.
  void* mapped = mmap(nullptr, static_cast<size_t>(file_.size()), PROT_READ, MAP_PRIVATE,
                      file_.descriptor(), 0);
  if (mapped == MAP_FAILED)
    bad_input(file_.path(), fmt::format("cannot map: {}", std::strerror(errno)));
  mapped_ = static_cast<const std::byte*>(mapped);
}

SafetensorsFile::~SafetensorsFile() {
  munmap(const_cast<std::byte*>(mapped_), static_cast<size_t>(file_.size()));
}

std::span<const std::byte> SafetensorsFile::view(const TensorEntry& tensor) const {
  return {mapped_ + header_.data_begin + tensor.begin, static_cast<size_t>(tensor.bytes())};
}

void SafetensorsFile::read(const TensorEntry& tensor, uint64_t offset,
                           std::span<std::byte> out) const {
  if (offset > tensor.bytes() || out.size() > tensor.bytes() - offset)
    throw Error(ErrorKind::kRuntime, path() + ": read beyond tensor " + in_quotes(tensor.name));
  file_.read_at(header_.data_begin + tensor.begin + offset, out.data(), out.size());
}

}  // namespace mkbench
