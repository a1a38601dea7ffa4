// The file of a machine's calibration: what is written is read again, and a file that is damaged or
// of another machine is not used.
#include <fstream>
#include <sstream>

#include "harness/archive/clock_file.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"
#include "tests/support/scoped_variable.h"

namespace mkbench::testing {
namespace {

namespace fs = std::filesystem;

const ClockMachine kCard = {"NVIDIA H200 / x", "GPU-12ab", "580.65.06"};

// Of two rows, with half-widths of 0.8 % and 0.4 %.
ClockCalibration calibration() {
  ClockCalibration c;
  c.date = "2026-11-23T10:00:00Z";
  c.machine = kCard;
  c.build = "0.1.0 abc";
  c.engine = "plain megakernel";
  c.live = 10;
  c.processes = 60;
  c.blocks = 24;
  for (const auto& [processes, half_width] : {std::pair(5, 0.008), std::pair(15, 0.004)}) {
    CalibrationRow row;
    row.processes = processes;
    row.splits = 200;
    row.most_allowed = 21;
    row.half_width = half_width;
    row.margin = 1.5 * half_width;
    row.power = {{0.01, 0.5, 0, 0.55}};
    c.rows.push_back(row);
  }
  c.whole = {{"sound_copy", 1, 1.001, Interval{0.999, 1.003}}};
  return c;
}

class Data {
 public:
  Data() : home_("XDG_DATA_HOME", folder_.path().c_str()) {}
  std::string text() const {
    std::ostringstream text;
    text << std::ifstream(clock_path(kCard)).rdbuf();
    return text.str();
  }
  // Replaces a part of the file, which must be there.
  void edit(const std::string& from, const std::string& to) const {
    std::string all = text();
    const size_t at = all.find(from);
    REQUIRE(at != std::string::npos);
    all.replace(at, from.size(), to);
    std::ofstream(clock_path(kCard)) << all;
  }
  const fs::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  ScopedVariable home_;
};

}  // namespace

TEST_CASE("a calibration that was written is found on its machine") {
  const Data data;
  CHECK(find_clock(kCard).reason == "no calibration of this machine");
  CHECK(!find_clock(kCard).damaged);
  const fs::path path = write_clock(calibration());
  CHECK(path == data.path() / "mkbench" / "calibration" / "NVIDIA-H200-x-GPU-12ab.json");
  CHECK(std::distance(fs::directory_iterator(path.parent_path()), {}) == 1);
  const FoundClock found = find_clock(kCard);
  CHECK(found.reason == "");
  REQUIRE(found.calibration);
  CHECK(found.calibration->date == "2026-11-23T10:00:00Z");
  CHECK(found.calibration->machine.driver == "580.65.06");
  CHECK(found.calibration->processes == 60);
  CHECK(found.calibration->rows[1].power[0].seen == 0.5);
  CHECK(found.calibration->whole[0].ci->high == 1.003);
}

TEST_CASE("the margin is that of the number of processes, or 1 %") {
  const Data data;
  write_clock(calibration());
  const FoundClock found = find_clock(kCard);
  CHECK(clock_margin(found, 5).value() == Approx(0.012));
  CHECK(clock_margin(found, 14).value() == Approx(0.012));
  CHECK(clock_margin(found, 15).value() == Approx(0.006));
  CHECK(clock_margin(found, 15).source == "A/A of 60 processes, 2026-11-23T10:00:00Z");
  const nlohmann::json report = clock_report(found, 15);
  CHECK(report["margin"] == Approx(0.006));
  CHECK(report["half_width"] == 0.004);
  CHECK(report["date"] == "2026-11-23T10:00:00Z");
  CHECK(report["engine"] == "plain megakernel");
  CHECK(report["power"][0]["share"] == 0.01);

  const FoundClock none = find_clock({"other", "", ""});
  CHECK(clock_margin(none, 5).value() == 0.01);
  CHECK(clock_report(none, 5)["margin"] == 0.01);
  CHECK(clock_report(none, 5)["source"] == none.reason);
  CHECK(!clock_report(none, 5).contains("reason"));
}

TEST_CASE("a row that is not trusted, of fewer processes than usual, is kept and told") {
  const Data data;
  ClockCalibration c = calibration();
  CalibrationRow three = c.rows[0];
  three.processes = 3;
  three.excluding_one = 29;
  three.half_width = 0.02;
  c.rows.insert(c.rows.begin(), three);
  write_clock(c);
  const FoundClock found = find_clock(kCard);
  REQUIRE(found.calibration);
  constexpr char kReason[] =
      "too few processes for a verdict on this machine: A/A with 3 processes: 29 of 200 intervals "
      "do "
      "not hold 1, alpha 0.05 allows 21; --processes 5 or more";
  for (const int processes : {3, 5, 15}) {
    const SpeedMargin margin = clock_margin(found, processes);
    CHECK(margin.least_processes == 5);
    CHECK(margin.too_few == kReason);
    // A report says the same, from its own numbers.
    const SpeedMargin again = recorded_margin({{"clock", clock_report(found, processes)}});
    CHECK(again.least_processes == 5);
    CHECK(again.too_few == kReason);
    CHECK(again.half_width == margin.half_width);
    CHECK(again.source == margin.source);
  }
  nlohmann::json report = clock_report(found, 3);
  report["rows"][0]["excluding_one"] = 21;
  CHECK(recorded_margin({{"clock", report}}).least_processes == 0);
  // A report from before rows stood there.
  report.erase("rows");
  CHECK(recorded_margin({{"clock", report}}).least_processes == 0);
  CHECK(recorded_margin({{"clock", report}}).half_width == 0.02);
  report["rows"] = "none";
  CHECK_THROWS_WITH(recorded_margin({{"clock", report}}), ContainsText("calibration.clock.rows"));
}

TEST_CASE("a file that does not fit is not used, and the reason names it") {
  const Data data;
  const auto refused = [&](const ClockMachine& machine, const std::string& part) {
    const FoundClock found = find_clock(machine);
    CHECK(!found.calibration);
    CHECK(found.damaged);
    CHECK_THAT(found.reason, ContainsText(part));
    CHECK_THAT(found.reason, ContainsText(clock_path(machine).string()));
    CHECK_THAT(found.reason, ContainsText("(not used)"));
    // Each ratio of the report names the source; the file and its defect stand there once.
    const nlohmann::json report = clock_report(found, 5);
    CHECK(report["source"] == "this machine's calibration is not used");
    CHECK(report["reason"] == found.reason);
    CHECK(recorded_margin({{"clock", report}}).source == report["source"].get<std::string>());
  };
  write_clock(calibration());
  refused({kCard.device, kCard.uuid, "590.1"}, "machine.driver: found '580.65.06', wanted '590.1'");
  // The file of one card under the name of another.
  const ClockMachine other = {kCard.device, "GPU-34cd", kCard.driver};
  fs::copy_file(clock_path(kCard), clock_path(other));
  refused(other, "machine.uuid: found 'GPU-12ab', wanted 'GPU-34cd'");

  const auto damaged = [&](const std::string& from, const std::string& to,
                           const std::string& part) {
    write_clock(calibration());
    data.edit(from, to);
    refused(kCard, part);
  };
  damaged("\"half_width\": 0.004", "\"half_width\": -0.004", "rows[1].half_width: found -0.004");
  damaged("\"half_width\": 0.004", "\"half_width\": null", "rows[1].half_width: found null");
  damaged("\"processes\": 15", "\"processes\": 5", "rows[1].processes: found 5");
  damaged("\"excluding_one\": 0", "\"excluding_one\": 22", "22 of 200 intervals do not hold 1");
  damaged("mkbench.clock", "mkbench.cloak", "schema: found 'mkbench.cloak'");
  damaged("\"date\"", "\"dote\"", "date: found nothing");
  damaged("{", "", "");
  std::ofstream(clock_path(kCard)) << "";
  refused(kCard, "");
  fs::remove(clock_path(kCard));
  fs::create_directory(clock_path(kCard));
  refused(kCard, "directory");
}

TEST_CASE("a calibration without rows, or without a folder for it, is refused") {
  const Data data;
  ClockCalibration empty = calibration();
  empty.rows.clear();
  write_clock(empty);
  CHECK_THAT(find_clock(kCard).reason, ContainsText("rows: found none"));

  const ScopedVariable none("XDG_DATA_HOME", nullptr), no_home("HOME", nullptr);
  CHECK_THROWS_AS(write_clock(calibration()), Error);
  CHECK(!find_clock(kCard).calibration);
}

TEST_CASE("a machine is its card and driver, or its processor and kernel") {
  const nlohmann::json environment = {
      {"cpu", {{"name", "EPYC"}, {"kernel", "Linux 6.1"}}},
      {"gpu", {{"name", "H100"}, {"uuid", "GPU-1"}, {"driver", "580"}}}};
  const ClockMachine card = clock_machine(environment, true);
  CHECK(card.device + card.uuid + card.driver == "H100GPU-1580");
  const ClockMachine cpu = clock_machine(environment, false);
  CHECK(cpu.device + "|" + cpu.uuid + "|" + cpu.driver == "EPYC||Linux 6.1");
  CHECK(clock_path({}) == fs::path());
}

}  // namespace mkbench::testing
