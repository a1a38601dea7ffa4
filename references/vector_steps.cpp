#include "references/vector_steps.h"

#include "references/base/error.h"

namespace mkbench {
namespace {

void check_finite(const std::string& who, int n, const VectorSteps& steps, int hidden) {
  for (int t = 0; t < n; ++t) {
    const Bf16* vector = steps.in + int64_t{t} * hidden;
    for (int i = 0; i < hidden; ++i) {
      if (is_finite(vector[i])) continue;
      throw Error(ErrorKind::kBadInput, who + ": vector " + std::to_string(t) + ", value " +
                                            std::to_string(i) + " is not finite");
    }
  }
}

void check_positions(const std::string& who, int n, const VectorSteps& steps, int position) {
  for (int t = 0; t < n; ++t) {
    const int32_t a = steps.positions[t], b = steps.positions[n + t],
                  c = steps.positions[2 * n + t];
    const std::string found = who + ": mRoPE positions of step " + std::to_string(t) + ": found " +
                              std::to_string(a) + ", " + std::to_string(b) + ", " +
                              std::to_string(c) + ", wanted ";
    if (a != b || b != c) {
      throw Error(ErrorKind::kBadInput,
                  found + "three equal rows: mRoPE with unequal rows is unsupported");
    }
    if (a != position + t)
      throw Error(ErrorKind::kBadInput, found + std::to_string(position + t) + " in each row");
  }
}

}  // namespace

void check_vector_steps(const std::string& who, int n, const VectorSteps& steps, int hidden,
                        int position) {
  if (steps.in != nullptr) check_finite(who, n, steps, hidden);
  if (steps.positions != nullptr) check_positions(who, n, steps, position);
}

}  // namespace mkbench
