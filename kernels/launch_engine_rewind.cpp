// How a LaunchEngine goes back to an earlier position.
#include "kernels/launch_engine.h"

namespace mkbench {

void LaunchEngine::rewind(int position) {
  check_written("rewind", position);
  if (position < position_ && !derived().empty()) derive_at(position);
  position_ = position;
  pending_ = -1;
  timed_steps_ = 0;
  recorded_ = false;
  known_ = {.position = position, .derived = derived()};
  poison();
}

// The last rows' part of the derived values is not known, as a maximum does not say what it was before.
void LaunchEngine::derive_at(int position) {
  const uint64_t written = checksum(position);
  if (known_.position > position) known_ = {};
  restore_derived(known_.derived, known_.position);
  position_ = known_.position;
  while (position_ < position) {
    const auto [ids, way] = rows_.part(position_, position);
    const int count = static_cast<int>(ids.size());
    if (way == WrittenRows::Way::kBatch) {
      append(ids);
    } else if (way == WrittenRows::Way::kStep) {
      launch(ids, count, count, {});
    } else {
      position_ += count;
    }
  }
  if (checksum(position) == written) return;
  throw Error(ErrorKind::kIntegrity, traits_.prefix + ": rewind: rows below position " +
                                         std::to_string(position) +
                                         " have other values when they are written again");
}

}  // namespace mkbench
