// The bytes of every lag set but `short`, which test_synthetic checks: about two seconds and 1.2 GB
// a set.
#include <fstream>
#include <nlohmann/json.hpp>

#include "references/snapshot.h"
#include "references/synthetic.h"
#include "tests/support/catch2.h"

using namespace mkbench;

TEST_CASE("all lag sets have the committed bytes") {
#ifdef __SANITIZE_ADDRESS__
  SKIP_TEST("test_synthetic covers the generator under the sanitizers");
#endif
  std::ifstream file(data_dir() / "synthetic" / "hashes.json");
  const nlohmann::json committed = nlohmann::json::parse(file);
  ShapeRow cut = kShapeTable[2];
  cut.shape.layers = 4;
  CHECK(make_synthetic(cut, "short").sha256 ==
        committed.at("sha256_of_cuts_of_4_layers").at("qwen3-4b:short").get<std::string>());
  REQUIRE(committed.at("sha256").size() == synthetic_lagsets().size());
  for (const std::string_view set : synthetic_lagsets()) {
    if (set == "short") continue;
    INFO(set);
    CHECK(make_synthetic(set).sha256 ==
          committed.at("sha256").at(std::string(set)).get<std::string>());
  }
}
