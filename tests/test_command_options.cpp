// Flags of commands that are no run: profile, audit, doctor.
#include <string>
#include <vector>

#include "tests/support/command_line.h"

namespace mkbench {
namespace {

using namespace testing;

TEST_CASE("profile's flags") {
  const Options plain = options_of({"profile", "--tool", "ncu"});
  CHECK(plain.tool == ProfileTool::kNcu);
  CHECK(plain.n_gen == std::vector<int>{16});
  CHECK((plain.blocks == 1 && plain.warmup == 1));
  CHECK_FALSE((plain.print_command || plain.token_ranges));
  const Options o = options_of({"profile", "--tool", "nsys", "-n", "4,8", "-d", "0,512", "--engine",
                                "eager,./mine.so", "--blocks", "3", "--nvtx", "token", "--print"});
  CHECK(o.n_depth == std::vector<int>{0, 512});
  CHECK(o.engines == std::vector<std::string>{"eager", "./mine.so"});
  CHECK((o.blocks == 3 && o.token_ranges && o.print_command));
  CHECK(holds(refusal({"--engine", "eager"}), "'eager' is unknown"));
}

TEST_CASE("audit's flags") {
  const Options plain = options_of({"audit"});
  CHECK(plain.n_gen == std::vector<int>{32});
  CHECK(plain.n_depth == std::vector<int>{0});
  CHECK(plain.tiles == 90);
  CHECK_FALSE((plain.tiles_only || plain.decode_once || !plain.tensors.empty()));
  CHECK(plain.compare.empty());
  CHECK(plain.prompt_seed != options_of({"audit"}).prompt_seed);
  const Options o = options_of({"audit", "-n", "31", "-d", "8", "--seed", "7", "--tiles", "20",
                                "--tensors", "lm_head,layers.3.", "--method", "tiles"});
  CHECK(o.n_gen == std::vector<int>{31});
  CHECK(o.n_depth == std::vector<int>{8});
  CHECK(o.prompt_seed == 7);
  CHECK(o.tiles == 20);
  CHECK(o.tensors == std::vector<std::string>{"lm_head", "layers.3."});
  CHECK(o.tiles_only);
  CHECK(options_of({"audit", "--out", "a"}).out == "a");
  CHECK(holds(refusal({"audit", "-n", "8,16"}), "--n-gen"));
  CHECK(holds(refusal({"tune", "--tiles", "3"}), "--tiles"));
}

TEST_CASE("doctor's flags") {
  const Options plain = options_of({"doctor"});
  CHECK(plain.format == "md");
  CHECK_FALSE(plain.strict);
  CHECK(plain.required.empty());
  const Options o = options_of({"doctor", "-o", "json", "--strict", "--python", "none", "--require",
                                "gpu=RTX 5090,vram=32", "--require", "cores=7.5"});
  CHECK((o.format == "json" && o.strict && o.python == "none"));
  REQUIRE(o.required.size() == 3);
  CHECK((o.required[0].key == "gpu" && o.required[0].wanted == "RTX 5090"));
  CHECK(o.required[1].number == 32);
  CHECK((o.required[2].key == "cores" && o.required[2].number == 7.5));
}

}  // namespace
}  // namespace mkbench
