// What an engine says that its weights stand for (--truth dequantised), in memory that the hosts of the
// runs that judge it can read. baselines/stated_values.py reads it.
#pragma once

#include <string>
#include <vector>

#include "harness/hosts/host_engine.h"
#include "harness/wire/calls.h"
#include "references/snapshot_folder.h"

namespace mkbench {

struct StatedWeight {
  std::string name;
  bool stored = false;  // the engine says how it keeps it
};

class StatedValues {
 public:
  // Throws Error(kEnvUnfit).
  StatedValues();
  ~StatedValues();
  StatedValues(const StatedValues&) = delete;
  StatedValues& operator=(const StatedValues&) = delete;

  // Asks the engine for these weights. Returns those that it has values for; throws Error(kBadInput) if
  // it has none.
  std::vector<StatedWeight> take(HostEngine& engine, const std::vector<WeightShape>& weights) const;
  int64_t bytes() const;
  // The file of the values; beside it is FILE.index.
  std::string file() const { return (folder_.path() / kFile).string(); }

 private:
  static constexpr char kFile[] = "values";

  int values_ = -1, index_ = -1;  // memfds, which end with this process however it ends
  SnapshotFolder folder_;
};

}  // namespace mkbench
