// The definition of done of `mkbench evidence`, computed from the files that scripts/torch_evidence.py
// has written.
#pragma once

#include <string>
#include <vector>

namespace mkbench {

// The texts of the files; empty where one is missing.
struct EvidenceTexts {
  std::string environment;  // env_info.txt
  std::string check;        // torch_cuda_check.txt
  std::string training;     // training_log.txt
  std::string smi;          // nvidia_smi.txt
};

struct EvidenceBox {
  std::string name;  // "cuda available"
  bool holds = false;
  std::string found;  // what the files say
};

std::vector<EvidenceBox> evidence_boxes(const EvidenceTexts& texts);

// The first line `problem: ...` of the files, without its key; empty where none has one.
std::string evidence_problem(const EvidenceTexts& texts);

// What to do where a box is open, in one line: class, cause and command of the known error.
std::string evidence_advice(const EvidenceTexts& texts);

// The sections of README.md about the boxes and, where a box is open, about what failed: class,
// cause and command of the known error (harness/report/known_errors.h).
std::string render_evidence(const EvidenceTexts& texts);

// Whether every box holds.
bool evidence_complete(const EvidenceTexts& texts);

}  // namespace mkbench
