#include "references/base/base64.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cstdint>

namespace mkbench {

std::optional<std::vector<float>> floats_from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  // EVP_DecodeBlock takes '=' as 0 wherever it stands.
  const size_t end = std::min(text.find('='), text.size());
  if (text.size() - end > 2 || text.find_first_not_of('=', end) != text.npos) return std::nullopt;
  std::vector<uint8_t> raw(text.size() / 4 * 3);
  // EVP_DecodeBlock decodes padding to bytes of 0.
  const int decoded =
      EVP_DecodeBlock(raw.data(), reinterpret_cast<const unsigned char*>(text.data()),
                      static_cast<int>(text.size()));
  if (decoded != static_cast<int>(raw.size())) return std::nullopt;
  const size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  const size_t bytes = raw.size() - padding;
  if (bytes % sizeof(float) != 0) return std::nullopt;
  std::vector<float> floats;
  for (size_t i = 0; i < bytes; i += sizeof(float)) {
    uint32_t bits = 0;
    for (size_t b = sizeof(float); b-- > 0;) bits = bits << 8 | raw[i + b];
    floats.push_back(std::bit_cast<float>(bits));
  }
  return floats;
}

}  // namespace mkbench
