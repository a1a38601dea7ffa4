// What `mkbench doctor --require` takes, and how it judges a machine.
#include <string>

#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_machine.h"

using namespace mkbench;
using namespace mkbench::testing;

TEST_CASE("requirements of an offer") {
  const auto judge = [](const char* text) {
    DoctorInputs in = inputs();
    in.required = parse_requirements(text);
    DoctorReport report = rented(13000, "580.65.06");
    report.machine.cores = 8;
    judge_machine(in, report);
    CHECK(report.required.size() == in.required.size());
    return report;
  };
  const DoctorReport met = judge("gpu=5090,vram=32,ram=32,cores=8,disk=20");
  CHECK(met.unmet() == 0);
  CHECK(met.gpu_ready);
  CHECK_THAT(met.required[0].text, ContainsText("found NVIDIA GeForce RTX 5090, wanted 5090"));
  CHECK_THAT(met.required[1].text, ContainsText("found 33.7 GB, wanted 32 GB"));

  const DoctorReport unmet = judge("gpu=H100,vram=80,ram=256,cores=16,disk=500");
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
  CHECK(judge("vram=34").unmet() == 0);
  CHECK(judge("vram=34.2").unmet() == 1);
  CHECK(judge("cores=8.1").unmet() == 1);
  DoctorInputs in = inputs();
  in.required = parse_requirements("gpu=5090,vram=32");
  DoctorReport none = healthy();
  none.devices = {};
  judge_machine(in, none);
  CHECK(none.unmet() == 2);
  CHECK_THAT(none.required[0].text, ContainsText("found none"));
}

TEST_CASE("requirements that cannot be read are refused in one line") {
  struct Row {
    const char* text;
    const char* part;
    const char* other;
  };
  for (const Row& row : {Row{"vrma=32", "'vrma' is unknown", "gpu, vram, ram, cores, disk"},
                         Row{"vram=lots", "vram: found 'lots'", "a number of GB over 0"},
                         Row{"vram=32GB", "'32GB'", "wanted a number"},
                         Row{"cores=-1", "cores: found '-1'", "wanted a number over 0"},
                         Row{"cores=0", "'0'", "over 0"}, Row{"ram=nan", "'nan'", "a number"},
                         Row{"disk=inf", "'inf'", "a number"}, Row{"gpu=", "'gpu='", "KEY=VALUE"},
                         Row{"5090", "'5090'", "KEY=VALUE"}, Row{"=5", "'=5'", "KEY=VALUE"},
                         Row{"gpu=a,,ram=1", "''", "KEY=VALUE"}, Row{"", "''", "KEY=VALUE"},
                         Row{"ram=1,ram=2", "ram is there twice", "--require"}}) {
    CAPTURE(row.text);
    try {
      parse_requirements(row.text);
      FAIL("was taken");
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kBadInput);
      const std::string message = error.what();
      CHECK(message.starts_with("--require: "));
      CHECK(message.find('\n') == std::string::npos);
      CHECK_THAT(message, ContainsText(row.part));
      CHECK_THAT(message, ContainsText(row.other));
    }
  }
}
