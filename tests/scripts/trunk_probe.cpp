// trunk_probe ENGINE FOLDER INPUT OUTPUT vectors|ids [--cuda] [--positions FILE]: the steps of a trunk
// for scripts/talker_trunk.py, by hidden vector (bf16 [n, hidden] in INPUT) or by id (int32 [n]).
//   ENGINE   oracle, truth (eager in fp32), eager, graph, host-twin, plain, ring, or a library's path
//   OUTPUT   fp32: logits [n, vocab], then hidden vectors after the final norm [n, hidden]
//   FILE     int32 [3, n]: rows of mRoPE positions that the inputs would have
// Exit 0, or 1 and the engine's message on stderr where it refuses or fails.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baselines/eager.h"
#include "harness/plugin/engine.h"
#include "kernels/host_twin/host_twin.h"
#include "kernels/plain/megakernel.h"
#include "kernels/ring/megakernel.h"
#include "references/base/error.h"
#include "references/oracle.h"
#include "references/snapshot.h"

namespace mkbench {
namespace {

struct Arguments {
  std::string engine, folder, input, output;
  bool ids = false, cuda = false;
  std::string positions{};
};

// Room for these steps and no more: the published talker's own maximum would take 3.8 GB.
int room(size_t steps) { return static_cast<int>((steps + 63) / 64 * 64); }

std::unique_ptr<Engine> make(const Arguments& a, const ModelWeights& weights, int context) {
  const EagerOptions torch{.cuda = a.cuda, .max_context = context};
  if (a.engine == "truth") {
    EagerOptions truth = torch;
    truth.fp32 = true;
    return make_eager(weights, truth);
  }
  if (a.engine == "graph") {
    EagerOptions graph = torch;
    graph.graph = true;
    return make_eager(weights, graph);
  }
  if (a.engine == "eager") return make_eager(weights, torch);
  if (a.engine == "host-twin") return make_host_twin(weights, {.max_context = context});
  if (a.engine == "plain") return make_plain(weights, {.max_context = context});
  if (a.engine == "ring") return make_ring(weights, {.max_context = context});
  return make_plugin(weights, {.path = a.engine, .cuda = a.cuda, .max_context = context});
}

template <typename T>
std::vector<T> read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  if (!in || bytes.size() % sizeof(T) != 0)
    throw Error(ErrorKind::kBadInput, path + ": not read, or not a whole number of values");
  std::vector<T> values(bytes.size() / sizeof(T));
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(values.data()));
  return values;
}

// What the steps gave: logits [n, vocab] and hidden vectors [n, hidden].
struct Outputs {
  std::vector<float> logits, hidden;
};

Outputs run_oracle(const ModelWeights& weights, std::span<const Bf16> vectors,
                   std::span<const int32_t> ids) {
  Oracle oracle(weights);
  Outputs out;
  const auto width = static_cast<size_t>(weights.config.shape.hidden);
  const size_t n = ids.empty() ? vectors.size() / width : ids.size();
  for (size_t t = 0; t < n; ++t) {
    const auto logits =
        ids.empty() ? oracle.step(vectors.subspan(t * width, width)) : oracle.step(ids[t]);
    const std::vector<float> hidden = oracle.final_hidden();
    out.logits.insert(out.logits.end(), logits.begin(), logits.end());
    out.hidden.insert(out.hidden.end(), hidden.begin(), hidden.end());
  }
  return out;
}

// Vectors go in as two calls, so that a call begins behind KV rows of another; ids one by one.
Outputs run_engine(Engine& engine, const ModelShape& shape, std::span<const Bf16> vectors,
                   std::span<const int32_t> ids, std::span<const int32_t> positions) {
  const auto width = static_cast<size_t>(shape.hidden), vocab = static_cast<size_t>(shape.vocab);
  const size_t n = ids.empty() ? vectors.size() / width : ids.size();
  Outputs out{std::vector<float>(n * vocab), std::vector<float>(n * width)};
  engine.poison();
  for (size_t begin = 0; begin < n;) {
    const size_t end = !ids.empty() ? begin + 1 : begin == 0 && n > 1 ? n / 2 : n;
    std::vector<int32_t> rows;
    for (size_t r = 0; r < 3 && !positions.empty(); ++r) {
      const auto row = positions.subspan(r * n + begin, end - begin);
      rows.insert(rows.end(), row.begin(), row.end());
    }
    if (!ids.empty()) engine.set_pending(ids[begin]);
    engine.decode_vectors(static_cast<int>(end - begin),
                          {.in = ids.empty() ? &vectors[begin * width] : nullptr,
                           .positions = rows.empty() ? nullptr : rows.data(),
                           .hidden_out = &out.hidden[begin * width],
                           .logits_out = &out.logits[begin * vocab]});
    begin = end;
  }
  return out;
}

void run(const Arguments& a) {
  const ModelWeights weights = load_folder(a.folder, "trunk");
  std::vector<Bf16> vectors;
  std::vector<int32_t> ids, positions;
  if (a.ids) {
    ids = read_all<int32_t>(a.input);
  } else {
    vectors = read_all<Bf16>(a.input);
  }
  if (!a.positions.empty()) positions = read_all<int32_t>(a.positions);
  Outputs out;
  if (a.engine == "oracle") {
    out = run_oracle(weights, vectors, ids);
  } else {
    const auto width = static_cast<size_t>(weights.config.shape.hidden);
    const auto engine = make(a, weights, room(a.ids ? ids.size() : vectors.size() / width));
    out = run_engine(*engine, weights.config.shape, vectors, ids, positions);
  }
  std::ofstream file(a.output, std::ios::binary);
  for (const std::vector<float>* part : {&out.logits, &out.hidden}) {
    file.write(reinterpret_cast<const char*>(part->data()),
               static_cast<std::streamsize>(part->size() * sizeof(float)));
  }
  if (!file.flush()) throw Error(ErrorKind::kRuntime, a.output + ": not written");
}

}  // namespace
}  // namespace mkbench

int main(int argc, char** argv) {
  if (argc < 6) {
    std::cerr << "usage: trunk_probe ENGINE FOLDER INPUT OUTPUT vectors|ids [--cuda] [--positions "
                 "FILE]\n";
    return 2;
  }
  mkbench::Arguments a{.engine = argv[1],
                       .folder = argv[2],
                       .input = argv[3],
                       .output = argv[4],
                       .ids = std::string(argv[5]) == "ids"};
  for (int i = 6; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--cuda") a.cuda = true;
    if (word == "--positions" && i + 1 < argc) a.positions = argv[++i];
  }
  try {
    mkbench::run(a);
  } catch (const mkbench::Error& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
