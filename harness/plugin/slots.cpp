#include "harness/plugin/slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace mkbench {

uint64_t Slots::save(int position, int32_t pending) {
  Slot* const slot = std::min_element(std::begin(slots_), std::end(slots_),
                                      [](const Slot& a, const Slot& b) { return a.used < b.used; });
  *slot = {};  // what it held is lost even if the call fails
  uint64_t checksum = 0;
  plugin_.end_call("save",
                   plugin_->save(plugin_.get(), static_cast<int32_t>(slot - slots_), &checksum));
  *slot = {position, checksum, pending, ++uses_};
  return checksum;
}

int32_t Slots::restore(int position, uint64_t checksum) {
  Slot* const slot = std::find_if(std::begin(slots_), std::end(slots_), [&](const Slot& one) {
    return one.position == position && one.checksum == checksum;
  });
  if (slot == std::end(slots_))
    throw Error(ErrorKind::kRuntime,
                fmt::format("{}: restore: found no saved state of position {} with this checksum; "
                            "the last {} are kept",
                            plugin_.who(), position, std::size(slots_)));
  const int32_t status = plugin_->restore(plugin_.get(), static_cast<int32_t>(slot - slots_));
  plugin_.end_call("restore", status,
                   status == MKBENCH_CHANGED ? ErrorKind::kIntegrity : ErrorKind::kRuntime);
  slot->used = ++uses_;
  return slot->pending;
}

}  // namespace mkbench
