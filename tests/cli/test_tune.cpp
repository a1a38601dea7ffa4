// run --tune: which rows of ring's tuning are measured, and which engine gets one.
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "harness/cli/commands/tune.h"
#include "harness/hosts/host_services.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_link.h"
#include "tests/support/random_model.h"

namespace mkbench {
namespace {

using testing::FakeLink;

constexpr const char* kModel = "synthetic";

// Hosts that answer a TuneCall with the row "row of MODEL".
struct TunedHosts {
  std::string interrupted_at;  // the model at which Ctrl-C is pressed
  std::map<std::string, std::shared_ptr<FakeLink>> links;
  std::vector<std::string> measured;
  Hosts hosts{[this](HostKind, const std::string& holds) -> std::shared_ptr<HostLink> {
                auto link = std::make_shared<FakeLink>();
                link->answer = [this](const ToHost& call) -> std::optional<FromHost> {
                  const auto* tune = std::get_if<TuneCall>(&call);
                  if (tune == nullptr) return std::nullopt;
                  CHECK(tune->gpu == 1);
                  if (tune->model == interrupted_at) throw Interrupted{};
                  measured.push_back(tune->model);
                  Tuned answer;
                  answer.table_row = "row of " + tune->model;
                  return answer;
                };
                return links[holds] = link;
              },
              300};
};

CaseJob job_of(const std::string& model, const std::string& engine) {
  CaseJob job;
  job.model.name = model;
  job.device = "cuda";
  job.engines = {{.name = "eager", .asked = "eager", .judges = true},
                 {.name = engine, .asked = engine, .candidate = true}};
  return job;
}

CardSettings on_gpu_1() {
  CardSettings settings;
  settings.gpu = 1;
  settings.timeout_s = 300;
  settings.quiet = true;
  return settings;
}

TEST_CASE("each model with ring is measured once, and its jobs get the row") {
  TunedHosts fakes;
  std::vector<CaseJob> jobs = {job_of(kModel, "ring"), job_of("tiny", "plain"),
                               job_of(kModel, "ring"), job_of("synthetic:qwen3-4b", "ring")};
  nlohmann::json calibration;
  tune_jobs(jobs, fakes.hosts, on_gpu_1(), calibration);
  CHECK(fakes.measured == std::vector<std::string>{kModel, "synthetic:qwen3-4b"});
  CHECK(jobs[0].ring_row == "row of synthetic");
  CHECK(jobs[1].ring_row.empty());
  CHECK(jobs[2].ring_row == "row of synthetic");
  CHECK(jobs[3].ring_row == "row of synthetic:qwen3-4b");
  CHECK(calibration["ring_tuning"] ==
        nlohmann::json{{kModel, "row of synthetic"},
                       {"synthetic:qwen3-4b", "row of synthetic:qwen3-4b"}});
}

TEST_CASE("a resumed run takes the row of the run that it resumes") {
  TunedHosts fakes;
  std::vector<CaseJob> jobs = {job_of(kModel, "ring"), job_of("other", "ring")};
  nlohmann::json calibration = {{"ring_tuning", {{kModel, "an earlier row"}}}};
  tune_jobs(jobs, fakes.hosts, on_gpu_1(), calibration);
  CHECK(fakes.measured == std::vector<std::string>{"other"});
  CHECK(jobs[0].ring_row == "an earlier row");
  CHECK(jobs[1].ring_row == "row of other");
}

TEST_CASE("Ctrl-C in a sweep keeps the rows that were measured") {
  TunedHosts fakes;
  fakes.interrupted_at = "other";
  std::vector<CaseJob> jobs = {job_of(kModel, "ring"), job_of("other", "ring"),
                               job_of("third", "ring")};
  nlohmann::json calibration;
  tune_jobs(jobs, fakes.hosts, on_gpu_1(), calibration);
  CHECK(calibration["ring_tuning"] == nlohmann::json{{kModel, "row of synthetic"}});
}

TEST_CASE("ring alone is opened with the row, and the ceiling keeps its own settings") {
  TunedHosts fakes;
  CaseJob job = job_of(kModel, "ring");
  job.ring_row = "the row";
  const HostServices services(job, fakes.hosts);
  for (const char* name : {"ring", "plain", "ceiling"}) {
    const auto engine = services.make_engine(
        {.name = name, .max_context = 64, .settings = std::string(name) == "ceiling" ? "bulk" : ""},
        testing::odd_weights());
    std::string found = "no OpenCall";
    for (const auto& [holds, link] : fakes.links) {
      for (const testing::Asked& asked : link->asked) {
        const auto* open = std::get_if<OpenCall>(&asked.call);
        if (open != nullptr && open->request.name == name) found = open->request.settings;
      }
    }
    CHECK(found == (std::string(name) == "ring"      ? "the row"
                    : std::string(name) == "ceiling" ? "bulk"
                                                     : ""));
  }
}

}  // namespace
}  // namespace mkbench
