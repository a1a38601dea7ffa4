// How `mkbench doctor --require` judges a machine.
#include <string>
#include <vector>

#include "tests/support/catch2.h"
#include "tests/support/fake_machine.h"

using namespace mkbench;
using namespace mkbench::testing;

TEST_CASE("requirements of an offer") {
  const auto judge = [](const std::vector<Requirement>& required) {
    DoctorInputs in = inputs();
    in.required = required;
    DoctorReport report = rented(13000, "580.65.06");
    report.machine.cores = 8;
    judge_machine(in, report);
    CHECK(report.required.size() == in.required.size());
    return report;
  };
  const DoctorReport met = judge({{"gpu", "5090"},
                                  {"vram", "32", 32},
                                  {"ram", "32", 32},
                                  {"cores", "8", 8},
                                  {"disk", "20", 20}});
  CHECK(met.unmet() == 0);
  CHECK(met.gpu_ready);
  CHECK_THAT(met.required[0].text, ContainsText("found NVIDIA GeForce RTX 5090, wanted 5090"));
  CHECK_THAT(met.required[1].text, ContainsText("found 33.7 GB, wanted 32 GB"));

  const DoctorReport unmet = judge({{"gpu", "H100"},
                                    {"vram", "80", 80},
                                    {"ram", "256", 256},
                                    {"cores", "16", 16},
                                    {"disk", "500", 500}});
  CHECK(unmet.unmet() == 5);
  CHECK(unmet.gpu_ready);  // the machine serves; the offer is another one than wanted
  for (const DoctorItem& item : unmet.required) {
    CAPTURE(item.topic, item.text);
    CHECK_THAT(item.text, ContainsText("found "));
    CHECK_THAT(item.text, ContainsText("wanted "));
    CHECK_FALSE(item.what_to_do.empty());
  }
  CHECK(unmet.required[3].topic == "require cores");
  // As sold: half a GB below still counts, more does not.
  CHECK(judge({{"vram", "34", 34}}).unmet() == 0);
  CHECK(judge({{"vram", "34.2", 34.2}}).unmet() == 1);
  CHECK(judge({{"cores", "8.1", 8.1}}).unmet() == 1);
  DoctorInputs in = inputs();
  in.required = {{"gpu", "5090"}, {"vram", "32", 32}};
  DoctorReport none = healthy();
  none.devices = {};
  judge_machine(in, none);
  CHECK(none.unmet() == 2);
  CHECK_THAT(none.required[0].text, ContainsText("found none"));
}
