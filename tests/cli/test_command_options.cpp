// Flags of commands that are no run: profile, audit, doctor; and lists of paths.
#include <filesystem>
#include <string>
#include <vector>

#include "harness/cli/commands/audit.h"
#include "harness/cli/commands/profile.h"
#include "harness/device/host_machine.h"
#include "harness/engines/plugin_file.h"
#include "harness/settings/values.h"
#include "tests/support/command_line.h"
#include "tests/support/micro_model.h"

namespace mkbench {
namespace {

using namespace testing;

TEST_CASE("profile's flags") {
  const ProfileSettings plain = settings_of<ProfileSettings>({"profile", "--tool", "ncu"});
  CHECK(plain.tool == ProfileTool::kNcu);
  CHECK(plain.n_gen == std::vector<int>{16});
  CHECK((plain.blocks == 1 && plain.warmup == 1));
  CHECK_FALSE((plain.print_command || plain.token_ranges));
  const ProfileSettings o = settings_of<ProfileSettings>(
      {"profile", "--tool", "nsys", "-n", "4,8", "-d", "0,512", "--engine", "eager,./mine.so",
       "--blocks", "3", "--nvtx", "token", "--print"});
  CHECK(o.n_depth == std::vector<int>{0, 512});
  CHECK(o.engines == std::vector<std::string>{"eager", "./mine.so"});
  CHECK((o.blocks == 3 && o.token_ranges && o.print_command));
  CHECK(holds(refusal({"--engine", "eager"}), "'eager' is unknown"));
}

TEST_CASE("audit's flags") {
  const AuditSettings plain = settings_of<AuditSettings>({"audit"});
  CHECK(plain.n_gen == std::vector<int>{32});
  CHECK(plain.n_depth == std::vector<int>{0});
  CHECK(plain.tiles == 90);
  CHECK_FALSE((plain.tiles_only || plain.decode_once || !plain.tensors.empty()));
  CHECK(plain.compare.empty());
  CHECK(plain.prompt_seed != settings_of<AuditSettings>({"audit"}).prompt_seed);
  const AuditSettings o =
      settings_of<AuditSettings>({"audit", "-n", "31", "-d", "8", "--seed", "7", "--tiles", "20",
                                  "--tensors", "lm_head,layers.3.", "--method", "tiles"});
  CHECK(o.n_gen == std::vector<int>{31});
  CHECK(o.n_depth == std::vector<int>{8});
  CHECK(o.prompt_seed == 7);
  CHECK(o.tiles == 20);
  CHECK(o.tensors == std::vector<std::string>{"lm_head", "layers.3."});
  CHECK(o.tiles_only);
  CHECK(settings_of<AuditSettings>({"audit", "--out", "a"}).out == "a");
  CHECK(holds(refusal({"audit", "-n", "8,16"}), "--n-gen"));
  CHECK(holds(refusal({"tune", "--tiles", "3"}), "--tiles"));
}

TEST_CASE("doctor's flags") {
  const std::vector<std::string> given = {"doctor", "-o", "json", "--strict", "--python", "none"};
  CHECK((value_of({"doctor"}, "output") == "md" && value_of({"doctor"}, "strict").empty()));
  CHECK((value_of(given, "output") == "json" && value_of(given, "strict") == "true"));
  CHECK(settings_of<CommandSettings>(given).python == "none");
}

TEST_CASE("a path that is there is one word, whatever its name") {
  using Words = std::vector<std::string>;
  const testing::TemporaryFolder folder;
  const auto put = [&](const std::string& name) {
    testing::write_file(folder.path() / name, "");
    return (folder.path() / name).string();
  };
  const std::string plain = put("a.so"), comma = put("a,b.so"), odd = put(",a=b,,'c\" .py");
  const std::string lines = put("two\nlines.so");  // shown with its newline written out
  const auto read = [](const Words& args) { return settings_of(args).engines; };
  for (const Words& args :
       {Words{"--engine", "ring," + lines}, {"--engine", "ring", "--engine", lines}})
    CHECK(
        (read(args).size() == 2 && read(args)[0] == "ring" && engine_path(read(args)[1]) == lines));
  for (const Words& words : {Words{comma}, Words{comma, plain}, Words{plain, comma, odd, "ring"},
                             Words{odd, comma}, Words{"ring", "/none/b.so"}}) {
    INFO(fmt::format("{}", fmt::join(words, " + ")));
    CHECK(settings_of({"--engine", fmt::format("{}", fmt::join(words, ","))}).engines == words);
  }
  // Without the longer file the comma parts two words.
  std::filesystem::remove(comma);
  CHECK(parse_path_list("engine", comma) == Words{comma.substr(0, comma.find(',')), "b.so"});
  for (const char* bad : {"", ",", "ring,", ",ring", "ring,,plain"})
    CHECK_THROWS_WITH(parse_path_list("engine", bad), ContainsText("has an empty item"));
  const std::string model = put("tiny,model");
  CHECK(settings_of({"--model", "tiny," + model}).models == Words{"tiny", model});

  const std::string latin = put("caf\xe9\t.so"), name = folder.path().string() + "/caf\\xe9\\t.so";
  CHECK(settings_of({"--engine", latin}).engines == Words{name});
  CHECK(engine_path(name) == latin);
  CHECK(engine_path(plain) == plain);
  CHECK(engine_path("/none/a\\b.so") == "/none/a\\b.so");
  CHECK(engine_name("/none/a\\é.so") == "/none/a\\é.so");
  const std::string itself = put("caf\\xe9\\t.so");
  CHECK(engine_path(itself) == itself);
}

}  // namespace
}  // namespace mkbench
