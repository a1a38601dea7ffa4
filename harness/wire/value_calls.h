// The messages of calls.h about what an engine's weights stand for (--truth dequantised).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "references/base/fields.h"

namespace mkbench {

struct WeightShape {
  std::string name;
  std::vector<int64_t> shape;
  static void fields(auto& v) {
    list_fields(v, "name", &WeightShape::name, "shape", &WeightShape::shape);
  }
};

// Appends the fp32 values that the engine says a weight stands for to a file. Answer: Able, false if it
// uses the weight as it was handed out.
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

// Asks hf's host, without `file`, for the weights of the model in `folder`; with one, what it finds of
// the values in it (baselines/stated_values.py). Answer: ValuesTold.
struct ValuesCall {
  static constexpr char kType[] = "values";
  std::string engine, folder, file{};
  static void fields(auto& v) {
    list_fields(v, "engine", &ValuesCall::engine, "folder", &ValuesCall::folder, "file",
                &ValuesCall::file);
  }
};

// weights: those that an engine is asked for. problem: why the values cannot be right, or empty. own:
// the model stores its weights whole, so that they are the engine's own doing.
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
