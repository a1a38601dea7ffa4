#include "harness/hosts/stated_values.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>

#include "references/base/error.h"
#include "references/base/json_fields.h"

namespace mkbench {
namespace {

int make_memory(const char* name) {
  const int descriptor = memfd_create(name, MFD_CLOEXEC);
  if (descriptor < 0)
    throw Error(ErrorKind::kEnvUnfit, fmt::format("memfd_create: {}", std::strerror(errno)));
  return descriptor;
}

void write_all(int descriptor, const std::string& text) {
  for (size_t at = 0; at < text.size();) {
    const ssize_t count = write(descriptor, text.data() + at, text.size() - at);
    if (count < 0 && errno != EINTR)
      throw Error(ErrorKind::kEnvUnfit, fmt::format("stated values: {}", std::strerror(errno)));
    if (count > 0) at += static_cast<size_t>(count);
  }
}

}  // namespace

StatedValues::StatedValues() {
  values_ = make_memory("mkbench-values");
  index_ = make_memory("mkbench-values-index");
  folder_.link(kFile, values_);
  folder_.link(std::string(kFile) + ".index", index_);
}

StatedValues::~StatedValues() {
  close(values_);
  close(index_);
}

int64_t StatedValues::bytes() const { return lseek(values_, 0, SEEK_END); }

std::vector<StatedWeight> StatedValues::take(HostEngine& engine,
                                             const std::vector<WeightShape>& weights) const {
  std::vector<StatedWeight> taken;
  std::string index;
  int64_t offset = 0;
  for (const WeightShape& weight : weights) {
    const WeightTaken told = engine.write_dequantised(weight, file());
    if (!told.taken) continue;
    nlohmann::json entry = {{"name", weight.name}, {"shape", weight.shape}, {"offset", offset}};
    if (told.storage) entry["storage"] = json_fields::write(*told.storage);
    index += entry.dump() + "\n";
    const int64_t count =
        std::accumulate(weight.shape.begin(), weight.shape.end(), int64_t{1}, std::multiplies<>());
    offset += count * static_cast<int64_t>(sizeof(float));
    taken.push_back({weight.name, told.storage.has_value()});
    const int64_t size = bytes();
    if (size != offset)
      throw Error(ErrorKind::kRuntime,
                  fmt::format("engine {}: dequantised('{}'): {} bytes were written, wanted {}",
                              engine.name(), weight.name, size, offset));
  }
  if (taken.empty())
    throw Error(
        ErrorKind::kBadInput,
        fmt::format("engine {}: --truth dequantised: dequantised() gives the values of no weight; "
                    "leave the flag out, or give it one (references/decoder.py, engine_abi.h)",
                    engine.name()));
  write_all(index_, index);
  return taken;
}

}  // namespace mkbench
