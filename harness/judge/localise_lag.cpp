#include <fmt/format.h>

#include <algorithm>

#include "harness/judge/localise.h"
#include "references/synthetic.h"

namespace mkbench {
namespace {

constexpr int kFarthestShift = 64;  // positions on either side of the right lag that are tried
constexpr size_t kMostNamed = 3;

struct Planted {
  int layer = 0, lag = 0;
};

// The closed form of the analytic checkpoint, with every layer's intermediate states kept.
class Recurrence {
 public:
  Recurrence(std::string_view lagset, const ModelShape& shape, const std::vector<int32_t>& ids)
      : code_(shape.vocab) {
    for (const auto& [layer, lag] : synthetic_lags(lagset, shape.layers))
      planted_.push_back({layer, lag});
    rows_.resize(planted_.size() + 1);
    for (const int32_t id : ids) {
      const int32_t state = code_.state(id);
      has_states_ = has_states_ && state >= 0;
      rows_[0].push_back(static_cast<uint32_t>(state));
    }
    for (size_t k = 0; k < planted_.size(); ++k) {
      rows_[k + 1] = layer_of(rows_[k], planted_[k].lag, true);
    }
  }

  const StateCode& code() const { return code_; }
  bool has_states() const { return has_states_; }
  const std::vector<Planted>& planted() const { return planted_; }
  int last() const { return static_cast<int>(rows_[0].size()) - 1; }

  // The token that results when planted layer `k` misses its contribution (lag < 0) or takes it
  // from `lag` positions back: at every position, or at the last position alone.
  int32_t token_with(size_t k, int lag, bool everywhere) const {
    std::vector<uint32_t> row = layer_of(rows_[k], lag, lag >= 0);
    if (!everywhere) {
      const uint32_t at_end = row.back();
      row = rows_[k + 1];
      row.back() = at_end;
    }
    for (size_t j = k + 1; j < planted_.size(); ++j) row = layer_of(row, planted_[j].lag, true);
    return code_.token(code_.step(row.back()));
  }

 private:
  static std::vector<uint32_t> layer_of(const std::vector<uint32_t>& in, int lag,
                                        bool contributes) {
    std::vector<uint32_t> out = in;
    if (!contributes) return out;
    const auto back = static_cast<size_t>(lag);
    for (size_t t = back; t < in.size(); ++t) out[t] = in[t] ^ in[t - back];
    return out;
  }

  StateCode code_;
  std::vector<Planted> planted_;
  std::vector<std::vector<uint32_t>>
      rows_;  // the ids' states, then the output of each planted layer
  bool has_states_ = true;
};

}  // namespace

std::string localise_lag(std::string_view lagset, const ModelShape& shape,
                         const ReferencePrompt& prompt, int step, int32_t wrong_id) {
  std::vector<int32_t> ids = prompt.ids;
  for (int t = 0; t < step; ++t) ids.push_back(prompt.steps[static_cast<size_t>(t)].token);
  const Recurrence recurrence(lagset, shape, ids);
  if (!recurrence.has_states())
    return "lags: not tried, because the closed form lacks an id of the prompt";
  if (recurrence.last() < synthetic_min_depth(lagset))
    return fmt::format("lags: not tried, because the closed form of '{}' begins at {} rows", lagset,
                       synthetic_min_depth(lagset));
  if (wrong_id < 0 || recurrence.code().state(wrong_id) < 0)
    return fmt::format("lags: not tried, because id {} is not in the closed form", wrong_id);
  std::vector<std::string> found;
  const auto consider = [&](size_t k, int lag, bool everywhere) {
    if (recurrence.token_with(k, lag, everywhere) != wrong_id) return;
    const Planted& p = recurrence.planted()[k];
    const std::string where = everywhere ? "" : " at this position alone";
    found.push_back(lag < 0 ? fmt::format("lag {} of layer {} is missing{}", p.lag, p.layer, where)
                            : fmt::format("lag {} of layer {} is taken {} positions back{}", p.lag,
                                          p.layer, lag, where));
  };
  for (size_t k = 0; k < recurrence.planted().size(); ++k) {
    const int right = recurrence.planted()[k].lag;
    for (const bool everywhere : {true, false}) {
      consider(k, -1, everywhere);
      for (int lag = std::max(0, right - kFarthestShift);
           lag <= std::min(recurrence.last(), right + kFarthestShift); ++lag) {
        if (lag != right) consider(k, lag, everywhere);
      }
    }
  }
  if (found.empty()) return "lags: no single planted layer explains the token";
  const size_t more = found.size() > kMostNamed ? found.size() - kMostNamed : 0;
  found.resize(found.size() - more);
  return fmt::format("lags: {}{}", fmt::join(found, ", or "),
                     more > 0 ? fmt::format(", or {} others", more) : "");
}

}  // namespace mkbench
