// Findings about a model folder. One list of rules makes them: the loader stops at the first one
// that it refuses a model for, `mkbench inspect` collects all.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "references/base/error.h"
#include "references/base/fields.h"

namespace mkbench {

enum class Severity {
  kInformation,   // no obstacle to a run
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
  std::string expected;  // empty: any value is accepted
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

  // Messages begin with `where`, a path. In the mode kThrowFirst a finding for which the loader
  // refuses a model throws Error(kBadInput), and any other finding is dropped.
  void add(ModelFinding finding, const std::string& where) {
    if (!throws()) {
      all_.push_back(std::move(finding));
    } else if (finding.severity >= Severity::kUnsupported) {
      throw Error(ErrorKind::kBadInput, where + ": " + finding.text);
    }
  }

  // Adds information that a run says too: what the loader decided, or left unread. Kept in both modes.
  void note(const std::string& field, const std::string& expected, const std::string& found,
            const std::string& source, const std::string& text) {
    all_.push_back({Severity::kInformation, field, expected, found, source, text});
  }

  // In the mode kThrowFirst the notes alone.
  const std::vector<ModelFinding>& all() const { return all_; }

 private:
  Mode mode_;
  std::vector<ModelFinding> all_;
};

}  // namespace mkbench
