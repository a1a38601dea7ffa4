// mkbench gate: what two reports say of each other, and which are refused.
#include <fmt/format.h>

#include <functional>

#include "harness/archive/builds.h"
#include "harness/archive/versions.h"
#include "harness/judge/conclude.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/example_report.h"

using namespace mkbench;

namespace {

constexpr GateLimits kStrict = {.max_regress = {}, .fails_inconclusive = true};

// A report of one machine, whose `change` stands before what is computed.
Report report_with(const std::function<void(Report&)>& change = [](Report&) {}) {
  Report r = testing::example_report();
  r.environment["gpu"]["uuid"] = "GPU-1";
  change(r);
  for (CaseReport& c : r.cases) aggregate(c, 0.95, 1, false, recorded_margin(r.calibration));
  r.reasons.clear();
  r.verdict = Verdict::kPass;
  conclude(r);
  return r;
}

void scale(std::vector<Sample>& samples, double factor) {
  for (Sample& s : samples) {
    s.times.host_ms *= factor;
    s.times.event_ms *= factor;
  }
}

// The candidate of the first case takes so much longer.
std::function<void(Report&)> candidate_takes(double factor) {
  return [factor](Report& r) { scale(r.cases[0].engines[1].samples, factor); };
}

VersionGate gate_of(const Report& base, const Report& head, const GateLimits& limits = {}) {
  return gate_versions(base, "base", head, "head", limits);
}

const VersionRow& row_of(const VersionGate& gate, const std::string& engine, size_t nth = 0) {
  for (const VersionRow& row : gate.rows) {
    if (row.engine == engine && nth-- == 0) return row;
  }
  throw std::runtime_error("no row of " + engine);
}

}  // namespace

TEST_CASE("a report passes against itself") {
  const Report r = report_with();
  const VersionGate gate = gate_of(r, r);
  CHECK((gate.verdict == Verdict::kPass && gate.exit_code == 0));
  CHECK(gate.reasons.empty());
  CHECK(gate.rows.size() == 9);
  CHECK(gate.allowed == Approx(0.01));
  CHECK(gate.margin_source == "no calibration of this machine");
  const VersionRow& row = row_of(gate, "megakernel");
  CHECK((row.base_processes == 5 && row.head_processes == 5));
  CHECK(*row.ratio.value == Approx(1));
  REQUIRE((row.ci && row.relative_ci));
  CHECK(row.control == "ceiling");
  CHECK(row_of(gate, "eager").verdict == Verdict::kSkipped);
  CHECK(row_of(gate, "eager").ratio.value);
  CHECK(*row_of(gate, "ceiling").ratio.value == Approx(1));
}

TEST_CASE("a candidate that takes longer is a REGRESSION, one that takes less passes") {
  const Report base = report_with();
  const VersionGate slow = gate_of(base, report_with(candidate_takes(1.1)));
  CHECK((slow.verdict == Verdict::kRegression && slow.exit_code == 4));
  CHECK(*row_of(slow, "megakernel").ratio.value == Approx(1.1));
  CHECK(row_of(slow, "megakernel", 1).verdict == Verdict::kPass);  // of the second case
  REQUIRE(slow.reasons.size() == 1);
  CHECK(holds(slow.reasons[0], "synthetic d=0 n=16: megakernel: REGRESSION: takes 10.00 % more"));
  CHECK(gate_of(base, report_with(candidate_takes(0.9))).verdict == Verdict::kPass);
  // Allowed by the user.
  CHECK(gate_of(base, report_with(candidate_takes(1.1)), {.max_regress = 0.12}).exit_code == 0);
  CHECK(gate_of(base, report_with(candidate_takes(1.1)), {.max_regress = 0.05}).exit_code == 4);
  // Within the margin of a noisy machine.
  const auto noisy = [](double factor) {
    return report_with([factor](Report& r) {
      r.calibration["clock"] = {{"half_width", 0.1}, {"source", "A/A of 60 processes, today"}};
      candidate_takes(factor)(r);
    });
  };
  const VersionGate wide = gate_of(noisy(1), noisy(1.1));
  CHECK((wide.verdict == Verdict::kPass && wide.margin == Approx(0.15)));
  CHECK(gate_of(noisy(1), noisy(1.2)).verdict == Verdict::kRegression);
  CHECK_THROWS_WITH(gate_of(noisy(1), noisy(1.2), {.max_regress = 0.1}),
                    "--max-regress: found 0.1, wanted at least 0.15, the least difference that can "
                    "be told here (A/A of 60 processes, today)");
  // A baseline may take what it takes.
  const VersionGate eager =
      gate_of(base, report_with([](Report& r) { scale(r.cases[0].engines[0].samples, 2); }));
  CHECK(eager.verdict == Verdict::kPass);
  CHECK(*row_of(eager, "eager").ratio.value == Approx(2));
}

TEST_CASE("the ceiling tells a change of the card") {
  const Report base = report_with();
  const auto card_takes = [](double factor) {
    return report_with([factor](Report& r) {
      candidate_takes(factor)(r);
      scale(r.cases[0].ceiling.samples, factor);
    });
  };
  const VersionGate slow = gate_of(base, card_takes(1.1));
  CHECK((slow.verdict == Verdict::kInconclusive && slow.exit_code == 0));
  CHECK(*row_of(slow, "megakernel").relative.value == Approx(1));
  CHECK(holds(row_of(slow, "megakernel").reason, "over ceiling 0.00 %"));
  CHECK_FALSE(holds(row_of(slow, "megakernel").reason, "to tell"));  // more processes would not
  CHECK(gate_of(base, card_takes(1.1), kStrict).exit_code == 5);

  // A ceiling that read in another way says nothing of the card: such a HEAD passes by its own time, and
  // is no REGRESSION.
  const auto read_otherwise = [](double factor) {
    return report_with([factor](Report& r) {
      candidate_takes(factor)(r);
      r.cases[0].ceiling.settings = "bulk copies, 4 x 16 KiB in flight, 0.000 ns apart";
      scale(r.cases[0].ceiling.samples, 1.012);
    });
  };
  const VersionGate otherwise = gate_of(base, read_otherwise(1.1));
  CHECK(otherwise.verdict == Verdict::kInconclusive);
  CHECK(
      holds(row_of(otherwise, "megakernel").reason, "read in two ways: BASE bulk copies, 3 x 16"));
  CHECK(row_of(otherwise, "megakernel").control.empty());
  CHECK(holds(row_of(otherwise, "ceiling").reason, "read in two ways"));
  CHECK(gate_of(base, read_otherwise(0.995)).verdict == Verdict::kPass);

  // Twice as fast a card hides an engine that takes a tenth more.
  const VersionGate fast = gate_of(base, report_with([](Report& r) {
                                     r.cases[0].memory = {};  // no least time
                                     candidate_takes(0.55)(r);
                                     scale(r.cases[0].ceiling.samples, 0.5);
                                   }),
                                   {.max_regress = 0.1, .fails_inconclusive = false});
  CHECK(fast.verdict == Verdict::kInconclusive);

  // On a GPU eager is no such engine; on a CPU it is.
  const auto without_ceiling = [](bool cpu, double factor) {
    return report_with([cpu, factor](Report& r) {
      r.cases.resize(1);
      r.cases[0].ceiling.samples.clear();
      for (EngineReport& e : r.cases[0].engines) scale(e.samples, factor);
      if (!cpu) return;
      r.environment = {{"device", "cpu"}, {"cpu", {{"name", "C"}, {"kernel", "L"}}}};
    });
  };
  const VersionGate card = gate_of(without_ceiling(false, 1), without_ceiling(false, 1.1));
  CHECK(card.verdict == Verdict::kRegression);
  CHECK(row_of(card, "megakernel").control.empty());
  const VersionGate cpu = gate_of(without_ceiling(true, 1), without_ceiling(true, 1.1));
  CHECK(cpu.verdict == Verdict::kInconclusive);
  CHECK(row_of(cpu, "megakernel").control == "eager");
}

TEST_CASE("an engine that did not pass is its verdict, whatever its time") {
  const Report base = report_with();
  const auto failing = [](Verdict verdict, size_t engine = 1) {
    return report_with([=](Report& r) {
      r.cases[0].engines[engine].verdict = verdict;
      r.cases[0].engines[engine].reasons = {"because"};
      candidate_takes(0.5)(r);
    });
  };
  const VersionGate wrong = gate_of(base, failing(Verdict::kFailToken));
  CHECK((wrong.verdict == Verdict::kFailToken && wrong.exit_code == 3));
  CHECK(row_of(wrong, "megakernel").reason == "because");
  CHECK_FALSE(row_of(wrong, "megakernel").ratio.value);
  CHECK(gate_of(base, failing(Verdict::kHang, 0)).exit_code == 7);  // the baseline, too

  // BASE failed: nothing to be slower than. With another case that passes.
  const VersionGate mended = gate_of(failing(Verdict::kFailToken), base);
  CHECK((mended.verdict == Verdict::kInconclusive && mended.exit_code == 0));
  CHECK(holds(row_of(mended, "megakernel").reason, "BASE has no time: FAIL_TOKEN: because"));
  CHECK(gate_of(failing(Verdict::kFailToken), base, kStrict).exit_code == 5);
  CHECK(gate_of(failing(Verdict::kFailToken), failing(Verdict::kFailSelf)).exit_code == 3);

  // INCONCLUSIVE elsewhere does not hide INCOMPLETE, though their exit codes are equal.
  const Report incomplete = report_with([](Report& r) {
    r.cases[0].engines[1].verdict = Verdict::kIncomplete;
    for (Sample& s : r.cases[1].engines[1].samples) s.process = 0;
  });
  const VersionGate both = gate_of(base, incomplete);
  CHECK((both.verdict == Verdict::kIncomplete && both.exit_code == 5));
  CHECK(both.reasons.size() == 2);

  // A case that ended before its engines, and an engine that BASE has not.
  const VersionGate unloaded = gate_of(base, report_with([](Report& r) {
                                         r.cases[0].engines.clear();
                                         r.cases[0].verdict = Verdict::kEnvUnfit;
                                         r.cases[0].reasons = {"no memory"};
                                       }));
  CHECK(unloaded.exit_code == 6);
  CHECK(row_of(unloaded, "megakernel").reason == "no memory");
  const auto more = [&](Verdict verdict) {
    return gate_of(base, report_with([verdict](Report& r) {
                     r.cases[0].engines.push_back(r.cases[0].engines[1]);
                     r.cases[0].engines[2].name = "other";
                     r.cases[0].engines[2].verdict = verdict;
                   }));
  };
  CHECK(more(Verdict::kPass).verdict == Verdict::kPass);
  CHECK(row_of(more(Verdict::kPass), "other").verdict == Verdict::kSkipped);
  CHECK(more(Verdict::kFailSelf).verdict == Verdict::kFailSelf);
}

TEST_CASE("doubtful times are INCONCLUSIVE, however far apart") {
  const Report base = report_with();
  const auto reason = [&](const std::function<void(Report&)>& change, double factor) {
    const VersionGate gate = gate_of(base, report_with([&](Report& r) {
                                       change(r);
                                       candidate_takes(factor)(r);
                                     }));
    CHECK((gate.verdict == Verdict::kInconclusive && gate.exit_code == 0));
    return row_of(gate, "megakernel").reason;
  };
  CHECK(reason(
            [](Report& r) {
              for (Sample& s : r.cases[0].engines[1].samples) s.process = 0;
            },
            2) == "one process gives no interval: BASE has 5, HEAD 1; --processes takes more");
  CHECK(reason(
            [](Report& r) {
              EngineReport& e = r.cases[0].engines[1];
              testing::add_example_card(e);
              e.clock_overhead.reset();
              for (int i = 0; i < 3; ++i) e.dropped_samples.push_back(e.dropped_samples[0]);
            },
            2) == "29 % of HEAD's blocks were dropped");
  const auto early = [](Report& r) {
    for (Sample& s : r.cases[0].engines[1].samples) s.late_id.reset();
  };
  CHECK(holds(reason(early, 0.9), "HEAD knows its last input id before the clock begins"));
  // A slower engine that knows it is slower all the more.
  CHECK(gate_of(base, report_with([&](Report& r) {
                  early(r);
                  candidate_takes(1.1)(r);
                }))
            .verdict == Verdict::kRegression);
}

TEST_CASE("what differs is refused by name, all of it at once") {
  const Report base = report_with();
  const auto refusal = [&](const std::function<void(Report&)>& change) {
    try {
      gate_of(base, report_with(change));
    } catch (const Error& error) {
      CHECK(error.kind() == ErrorKind::kBadInput);
      const std::string start = "gate: base and head cannot be compared: ", what = error.what();
      CHECK(what.rfind(start, 0) == 0);
      return what.substr(start.size());
    }
    return std::string("compared");
  };
  CHECK(refusal([](Report& r) { r.environment["gpu"]["name"] = "Other"; }) ==
        "env.gpu.name: BASE 'Example GPU', HEAD 'Other'");
  CHECK(refusal([](Report& r) { r.environment["gpu"]["uuid"] = "GPU-2"; }) ==
        "env.gpu.uuid: BASE 'GPU-1', HEAD 'GPU-2'");
  CHECK(refusal([](Report& r) { r.environment["gpu"]["driver"] = "600"; }) ==
        "env.gpu.driver: BASE '580.1', HEAD '600'");
  CHECK(refusal([](Report& r) { r.environment["device"] = "cpu"; }) ==
        "env.device: BASE 'cuda:0 Example GPU', HEAD 'cpu'");
  CHECK(refusal([](Report& r) {
          r.calibration["clock"] = {{"half_width", 0.001}, {"source", "A/A, today"}};
        }) == "calibration.clock: BASE 'no calibration of this machine', HEAD 'A/A, today'");
  CHECK(refusal([](Report& r) { r.interrupted = true; }) ==
        "verdict.interrupted: HEAD is partial; mkbench --resume goes on with it");
  CHECK(refusal([](Report& r) {
          r.meta["options"]["confidence"] = {{"value", "0.99"}, {"source", "default"}};
        }) == "meta.options.confidence: BASE '0.95', HEAD '0.99'");
  CHECK(refusal([](Report& r) { r.cases[1].weights_sha256 = "f00"; }) ==
        fmt::format("case 'synthetic d=512 n=16': model.weights_sha256: BASE '{}', HEAD 'f00'",
                    std::string(64, 'b')));
  // Analytic weights have a salt of their own in every run: the generator must agree.
  const Report salted = report_with([](Report& r) { r.cases[1].generator = 3; });
  const auto other_weights = [&](int generator) {
    return report_with([&](Report& r) {
      r.cases[1].generator = generator;
      r.cases[1].weights_sha256 = "f00";
      r.cases[1].salt = 5;
    });
  };
  CHECK(version_differences(salted, other_weights(3)).empty());
  CHECK(
      version_differences(salted, other_weights(4)) ==
      std::vector<std::string>{"case 'synthetic d=512 n=16': model.generator: BASE '3', HEAD '4'"});
  CHECK(holds(version_differences(salted, other_weights(0)).at(0), "model.weights_sha256"));
  CHECK(refusal([](Report& r) { r.cases[1].depth = 513; }) ==
        "case 'synthetic d=512 n=16': axes.depth: BASE '512', HEAD '513'");
  CHECK(refusal([](Report& r) { r.cases[1].n_gen = 8, r.cases[1].n_prompt = 7; }) ==
        "case 'synthetic d=512 n=16': axes.n_gen: BASE '16', HEAD '8'; "
        "case 'synthetic d=512 n=16': axes.n_prompt: BASE '0', HEAD '7'");
  CHECK(refusal([](Report& r) { r.cases.erase(r.cases.begin() + 1); }) ==
        "case 'synthetic d=512 n=16': is not in HEAD");
  CHECK(refusal([](Report& r) { r.cases[1].model = "tiny"; }) ==
        "case 'synthetic d=512 n=16': is not in HEAD");
  CHECK(refusal([](Report& r) { r.cases[0].engines.pop_back(); }) ==
        "case 'synthetic d=0 n=16': engine 'megakernel': is not in HEAD");
  CHECK(refusal([](Report& r) { r.cases[0].engines[1].role = "baseline"; }) ==
        "case 'synthetic d=0 n=16': engine 'megakernel': is not in HEAD");
  CHECK(refusal([](Report& r) { r.cases[0].engines[0].timed = false; }) ==
        "case 'synthetic d=0 n=16': engine 'eager': is not timed in HEAD");
  CHECK(refusal([](Report& r) {
          r.cases[0].engines[1].verdict = Verdict::kSkipped;
          r.cases[0].engines[1].reasons = {"no sm_90"};
        }) == "case 'synthetic d=0 n=16': engine 'megakernel': is SKIPPED in HEAD: no sm_90");
  const std::string all = refusal([](Report& r) {
    r.environment["gpu"]["driver"] = "600";
    r.cases[0].weights_sha256 = "f00";
    r.cases[2].engines.pop_back();
    r.calibration["ring_tuning"] = {{"m", "a row"}};
  });
  for (const char* part : {"env.gpu.driver", "weights_sha256", "is not in HEAD", "ring_tuning"})
    CHECK(holds(all, part));
  const Report untimed = report_with([](Report& r) {
    for (CaseReport& c : r.cases) c.engines[1].timed = false;
  });
  CHECK_THROWS_WITH(gate_of(untimed, untimed),
                    "gate: base and head cannot be compared: cases: BASE has no candidate with a "
                    "time");
}

TEST_CASE("the second engine of a name is compared with the second") {
  const auto doubled = [](double second) {
    return report_with([second](Report& r) {
      r.cases.resize(1);
      r.cases[0].engines.push_back(r.cases[0].engines[1]);
      scale(r.cases[0].engines[2].samples, second);
    });
  };
  const VersionGate gate = gate_of(doubled(3), doubled(3.3));
  CHECK(*row_of(gate, "megakernel", 0).ratio.value == Approx(1));
  CHECK(*row_of(gate, "megakernel", 1).ratio.value == Approx(1.1));
  CHECK(gate.verdict == Verdict::kRegression);
}

TEST_CASE("two builds in one run: paired ratios by the engines' names") {
  // Two engines of each build in the first case, of which HEAD's ring takes `factor` of BASE's time.
  const auto builds = [](
                          double factor,
                          const std::function<void(Report&)>& change = [](Report&) {}) {
    return report_with([&](Report& r) {
      r.cases.resize(1);
      EngineReport one = r.cases[0].engines[1];
      r.cases[0].engines.resize(1);
      for (const char* name : {"old/engines/ring.so", "new/engines/ring.so", "old/engines/plain.so",
                               "new/engines/plain.so", "other/engines/ring.so"}) {
        one.name = name;
        one.resolved_name = "ring";
        for (Sample& s : one.samples) s.engine = name;
        r.cases[0].engines.push_back(one);
      }
      scale(r.cases[0].engines[2].samples, factor);
      change(r);
    });
  };
  const auto gate_of_builds = [](const Report& r, const GateLimits& limits = {}) {
    return gate_builds(r, "old", "new", limits);
  };
  const VersionGate same = gate_of_builds(builds(1));
  CHECK((same.verdict == Verdict::kPass && same.exit_code == 0));
  REQUIRE(same.rows.size() == 2);  // eager and the third build have no partner
  CHECK(same.rows[1].engine == "plain");
  CHECK(same.rows[0].base_processes == 5);
  CHECK(same.rows[0].relative.reason == "both were timed in the same blocks");

  const VersionGate slower = gate_of_builds(builds(1.1));
  CHECK((slower.verdict == Verdict::kRegression && slower.exit_code == 4));
  const VersionRow& row = row_of(slower, "ring");
  CHECK(*row.ratio.value == Approx(1.1));
  REQUIRE(row.ci);
  CHECK(row.ci->low <= *row.ratio.value);
  CHECK(row.ci->high >= *row.ratio.value);
  CHECK(row_of(slower, "plain").verdict == Verdict::kPass);
  CHECK(gate_of_builds(builds(0.9)).verdict == Verdict::kPass);
  CHECK(gate_of_builds(builds(1.1), {.max_regress = 0.2, .fails_inconclusive = false}).verdict ==
        Verdict::kPass);
  CHECK_THROWS_AS(gate_of_builds(builds(1), {.max_regress = 0.001, .fails_inconclusive = false}),
                  Error);

  // One process has an interval of its blocks, which says nothing of another process.
  const VersionGate one = gate_of_builds(builds(1.1, [](Report& r) {
    for (EngineReport& e : r.cases[0].engines) {
      for (Sample& s : e.samples) s.process = 0;
    }
  }));
  CHECK(one.verdict == Verdict::kInconclusive);
  CHECK(holds(row_of(one, "ring").reason, "one process gives no interval"));
  CHECK_FALSE(row_of(one, "ring").ci);

  const VersionGate wrong = gate_of_builds(builds(0.5, [](Report& r) {
    r.cases[0].engines[2].verdict = Verdict::kFailToken;
    r.cases[0].engines[2].reasons = {"because"};
  }));
  CHECK((wrong.verdict == Verdict::kFailToken && wrong.exit_code == 3));
  CHECK(row_of(wrong, "ring").reason == "because");

  // Two files.
  const VersionGate files =
      gate_builds(builds(1.1), "old/engines/ring.so", "new/engines/ring.so", {});
  REQUIRE(files.rows.size() == 1);
  CHECK(files.rows[0].engine == "new/engines/ring.so");
  CHECK(files.verdict == Verdict::kRegression);
}

TEST_CASE("the result as Markdown, JSON and JUnit") {
  const Report base = report_with();
  const VersionGate gate = gate_of(base, report_with([](Report& r) {
                                     candidate_takes(1.1)(r);
                                     r.cases[0].engines[1].resolved_name = "ring";
                                     for (Sample& s : r.cases[1].engines[1].samples) s.process = 0;
                                   }));
  const std::string text = render_gate(gate);
  for (const char* part :
       {"## HEAD against BASE, Example GPU", "HEAD / BASE [95 % CI]", "| REGRESSION",
        "- BASE: base (, commit 0123abc, PASS)",
        "allowed: 1 % more; the margin of the clock is 1 %", "BASE ran plain, HEAD ring",
        "BASE has 5, HEAD 1", "**REGRESSION** (exit code 4)"})
    CHECK(holds(text, part));

  const nlohmann::json json = gate_json(gate);
  CHECK(json["schema"]["id"] == "mkbench.gate");
  CHECK(json["verdict"]["status"] == "REGRESSION");
  CHECK(json["verdict"]["exit_code"] == 4);
  CHECK(json["rows"].size() == 9);
  CHECK(json["rows"][2]["engine"] == "megakernel");
  CHECK(json["rows"][2]["ratio"].get<double>() == Approx(1.1));
  CHECK(json["rows"][1]["relative"].is_null());

  const std::string junit = render_suites(gate_suites(gate));
  CHECK(holds(junit, "tests=\"9\" failures=\"1\" errors=\"0\" skipped=\"7\""));
  CHECK(holds(junit, "<failure message=\"REGRESSION: takes 10.00 % more"));
  CHECK(holds(junit, "<skipped message=\"INCONCLUSIVE: one process"));
  VersionGate strict = gate;
  strict.fails_inconclusive = true;
  CHECK(holds(render_suites(gate_suites(strict)), "failures=\"2\" errors=\"0\" skipped=\"6\""));
}
