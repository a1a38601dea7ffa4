// The messages of calls.h about what an engine's weights stand for (--truth dequantised).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/wire/travelling.h"
#include "references/base/fields.h"
#include "references/weight_storage.h"

namespace mkbench {

struct WeightShape {
  std::string name;
  std::vector<int64_t> shape;
  static void fields(auto& v) {
    list_fields(v, "name", &WeightShape::name, "shape", &WeightShape::shape);
  }
};

// Makes the engine's host append to a file the fp32 values that the engine says a weight stands for.
// Answer: WeightTaken.
struct DequantisedCall {
  static constexpr char kType[] = "dequantised";
  int engine = 0;
  WeightShape weight;
  std::string file;
  static void fields(auto& v) {
    list_fields(v, "engine", &DequantisedCall::engine, "weight", &DequantisedCall::weight, "file",
                &DequantisedCall::file);
  }
};

// taken: false if the engine uses the weight as it was handed out; storage: if it says how it keeps it.
struct WeightTaken {
  static constexpr char kType[] = "weight_taken";
  bool taken = false;
  std::optional<WeightStorage> storage{};
  EngineState state;
  static void fields(auto& v) {
    list_fields(v, "taken", &WeightTaken::taken, "storage", &WeightTaken::storage, "state",
                &WeightTaken::state);
  }
};

// Asks hf's host which weights the model in `folder` has; or, with the `file` of such values, what is
// found of those of one weight (baselines/stated_values.py). Answer: ValuesTold.
struct ValuesCall {
  static constexpr char kType[] = "values";
  std::string engine, folder, file{}, weight{};
  static void fields(auto& v) {
    list_fields(v, "engine", &ValuesCall::engine, "folder", &ValuesCall::folder, "file",
                &ValuesCall::file, "weight", &ValuesCall::weight);
  }
};

// weights: those that an engine is asked for. problem: why the values cannot be right, or empty. own:
// the folder stores other values, not quantised, so the engine has quantised them itself.
struct ValuesTold {
  static constexpr char kType[] = "values_told";
  std::vector<WeightShape> weights{};
  std::string problem{};
  bool own = false;
  static void fields(auto& v) {
    list_fields(v, "weights", &ValuesTold::weights, "problem", &ValuesTold::problem, "own",
                &ValuesTold::own);
  }
};

}  // namespace mkbench
