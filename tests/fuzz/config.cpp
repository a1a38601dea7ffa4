// config.json of a checkpoint.
#include "references/config.h"

#include "tests/fuzz/input.h"

using namespace mkbench;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  ModelConfig config;
  const bool accepted = fuzz::accepts(
      {ErrorKind::kBadInput}, [&] { config = parse_config(fuzz::text_of(data, size), "f"); });
  if (!accepted) return 0;
  fuzz::expect(config.rope.theta > 0 && config.rms_norm_eps > 0 && config.max_positions > 0,
               "theta, eps and the longest context are positive");
  const ModelShape& s = config.shape;
  fuzz::expect(s.hidden > 0 && s.intermediate > 0 && s.layers > 0 && s.vocab > 0 && s.head_dim > 0,
               "dimensions are positive");
  fuzz::expect(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "heads are a multiple of kv heads");
  const ModelConfig again = parse_config(config_text(config), "written");
  fuzz::expect(again.shape == config.shape && again.rope.same_angles(config.rope) &&
                   again.rms_norm_eps == config.rms_norm_eps &&
                   again.tie_word_embeddings == config.tie_word_embeddings &&
                   again.max_positions == config.max_positions,
               "config_text() reads back");
  return 0;
}
