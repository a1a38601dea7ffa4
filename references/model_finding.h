// What a model folder says that mkbench does not accept. One list of rules makes the findings: the
// loader stops at the first that keeps the model from running, `mkbench inspect` collects all.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "references/base/error.h"
#include "references/base/fields.h"

namespace mkbench {

enum class Severity {
  kInformation,   // keeps nothing from running
  kNeedsRebuild,  // sound and understood; kernels have to be compiled for it
  kUnsupported,   // sound as far as it was read, and there is no code for it
  kFatal,         // the folder is damaged, incomplete or contradicts itself
};

inline const char* enum_text(Severity severity) {
  switch (severity) {
    case Severity::kInformation:
      return "information";
    case Severity::kNeedsRebuild:
      return "needs rebuild";
    case Severity::kUnsupported:
      return "unsupported";
    case Severity::kFatal:
      return "fatal";
  }
  return "?";
}

struct ModelFinding {
  Severity severity = Severity::kInformation;
  std::string field;     // key of config.json, or what is looked at: "tensor shape"
  std::string expected;  // empty: nothing is asked of it
  std::string found;
  std::string source;  // "config.json:rope_theta", "model.safetensors:model.norm.weight"
  std::string text;    // the finding in one line, without the file's path

  static void fields(auto& v) {
    using F = ModelFinding;
    v.field("severity", &F::severity, "fatal, unsupported, needs rebuild or information");
    list_fields(v, "field", &F::field, "expected", &F::expected, "found", &F::found, "source",
                &F::source, "text", &F::text);
  }
};

class ModelFindings {
 public:
  enum class Mode { kThrowFirst, kCollect };
  explicit ModelFindings(Mode mode) : mode_(mode) {}

  bool throws() const { return mode_ == Mode::kThrowFirst; }

  // `where`, a path, begins the message. Throws Error(kBadInput) in the mode kThrowFirst where the
  // loader has to refuse the model; findings that are no refusal are dropped in that mode.
  void add(ModelFinding finding, const std::string& where) {
    if (!throws()) {
      all_.push_back(std::move(finding));
    } else if (finding.severity >= Severity::kUnsupported) {
      throw Error(ErrorKind::kBadInput, where + ": " + finding.text);
    }
  }

  const std::vector<ModelFinding>& all() const { return all_; }

 private:
  Mode mode_;
  std::vector<ModelFinding> all_;
};

}  // namespace mkbench
