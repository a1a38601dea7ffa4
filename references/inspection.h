// All differences between a model and what this binary can run, by the loader's rules. Where the
// loader stops at the first difference, an inspection goes on.
#pragma once

#include <string>
#include <vector>

#include "references/model_finding.h"
#include "references/snapshot.h"

namespace mkbench {

enum class Runs { kYes, kAfterRebuild, kNo };

inline const char* enum_text(Runs runs) {
  return runs == Runs::kYes ? "runnable" : runs == Runs::kNo ? "not runnable" : "after rebuild";
}

struct Inspection {
  std::string model;   // as given to --model
  std::string folder;  // empty: made in memory
  std::string commit;  // of a hub model; else empty
  // The published model with these dimensions (references/model/published.h); empty: none.
  std::string shape;
  bool values_read = false;  // every weight was read, for NaN, zeros and hashes
  std::vector<ModelFinding> findings;
  Runs verdict = Runs::kNo;
  std::string verdict_text;  // one sentence

  static void fields(auto& v) {
    using I = Inspection;
    list_fields(v, "model", &I::model, "folder", &I::folder, "commit", &I::commit, "shape",
                &I::shape, "values_read", &I::values_read, "verdict", &I::verdict, "verdict_text",
                &I::verdict_text, "findings", &I::findings);
  }
};

// Reads headers, config.json and manifest.json, the bytes of a tied head and of its embedding, and
// with `values` every weight. Throws Error(kBadInput) if there is no model to look at: no folder,
// or a config.json that is missing or not JSON.
Inspection inspect_model(const Model& model, bool values);

}  // namespace mkbench
