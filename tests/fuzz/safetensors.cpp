// The header of a safetensors file.
#include "references/safetensors.h"

#include "tests/fuzz/input.h"

using namespace mkbench;

namespace {

// The elements are counted in floating point, which no shape overflows.
bool fits(const TensorEntry& tensor) {
  long double elements = 1;
  for (const uint64_t dimension : tensor.shape) elements *= static_cast<long double>(dimension);
  const auto bits = 8 * static_cast<long double>(tensor.bytes());
  return 4 * elements <= bits && bits <= 64 * elements;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  SafetensorsHeader header;
  const bool accepted = fuzz::accepts({ErrorKind::kBadInput}, [&] {
    parse_header_size(bytes, size, "f");
    header = parse_header(bytes, size, "f");
  });
  if (!accepted) return 0;
  fuzz::expect(header.tensors.size() <= kMaxTensors, "at most kMaxTensors tensors");
  uint64_t at = 0;
  for (const TensorEntry& tensor : header.tensors) {
    fuzz::expect(tensor.begin == at && tensor.end >= at, "tensors follow each other without gaps");
    fuzz::expect(tensor.shape.size() <= kMaxRank, "at most kMaxRank dimensions");
    fuzz::expect(fits(tensor), "a tensor has 4 to 64 bits for each of its elements");
    at = tensor.end;
  }
  fuzz::expect(header.data_begin <= size && at == size - header.data_begin,
               "tensors cover the data section");
  // The same bytes through the file that loaders open, touched to their end.
  const fuzz::MemoryFile file(data, size);
  const SafetensorsFile opened(file.path());
  for (const TensorEntry& tensor : opened.header().tensors) {
    std::vector<std::byte> copy(tensor.bytes());
    opened.read(tensor, 0, copy);
    const std::span<const std::byte> view = opened.view(tensor);
    fuzz::expect(std::equal(view.begin(), view.end(), copy.begin(), copy.end()),
                 "view() and read() give the same bytes");
  }
  return 0;
}
