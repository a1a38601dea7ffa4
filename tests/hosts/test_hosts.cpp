// The parent's side of hosts, with links that record what they are asked and answer as told.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "harness/device/program_output.h"
#include "harness/flow/interrupt.h"
#include "harness/hosts/hosts.h"
#include "references/base/data_root.h"
#include "references/base/error.h"
#include "tests/support/catch2.h"
#include "tests/support/fake_link.h"
#include "tests/support/in_child.h"
#include "tests/support/process_state.h"
#include "tests/support/random_model.h"
#include "tests/support/script_host.h"

namespace mkbench {
namespace {

using testing::FakeLink;
using testing::odd_weights;

// Hosts of fake links, by what they hold.
struct FakeHosts {
  std::map<std::string, std::vector<std::shared_ptr<FakeLink>>> links;
  std::map<std::string, HostKind> kinds;
  double timeout_s = 300;
  Hosts hosts{[this](HostKind kind, const std::string& holds) -> std::shared_ptr<HostLink> {
                kinds[holds] = kind;
                return links[holds].emplace_back(std::make_shared<FakeLink>());
              },
              timeout_s};
  std::unique_ptr<Engine> open(const std::string& name, bool cuda = false) {
    return hosts.open({.name = name, .max_context = 64, .cuda = cuda}, odd_weights());
  }
  FakeLink& link(const std::string& holds) { return *links.at(holds).back(); }
};

TEST_CASE("each engine has the kind of host that its row names; the judge's runs share one") {
  FakeHosts fakes;
  for (const char* name : {"ring", "host-twin", "./somebody.so", "./engine.py", "hf", "eager",
                           "eager-fp32", "eager-head-fp32"})
    fakes.hosts.expect(name);
  const std::map<std::string, HostKind> wanted = {{"ring", HostKind::kCuda},
                                                  {"host-twin", HostKind::kCuda},
                                                  {"./somebody.so", HostKind::kCuda},
                                                  {"./engine.py", HostKind::kPython},
                                                  {"hf", HostKind::kPython},
                                                  {"eager", HostKind::kTorch},
                                                  {"the judge's runs", HostKind::kTorch}};
  CHECK(fakes.kinds == wanted);
  for (const auto& [holds, links] : fakes.links) {
    CHECK(links.size() == 1);
    CHECK(links[0]->asked.empty());  // started, and not asked yet
  }
  fakes.link("hf").answer = [](const ToHost&) { return Described{12}; };
  CHECK(fakes.hosts.bytes({.name = "hf"}, {}) == 12);
  CHECK(std::get<DescribeCall>(fakes.link("hf").asked[0].call).request.name ==
        data_root() / "baselines/hf_decoder.py");
  fakes.link("ring").lives = false;
  fakes.hosts.expect("ring");
  CHECK(fakes.links["ring"].size() == 2);
  fakes.link("./engine.py").on_traceback({.message = "first", .traceback = "at 1"});
  fakes.link("./engine.py").on_traceback({.message = "last", .traceback = "at 2"});
  CHECK(fakes.hosts.tracebacks().size() == 1);
  CHECK(fakes.hosts.tracebacks().at("./engine.py").message == "last");
}

TEST_CASE("what a host has put into a session of its own is told once") {
  const testing::Script script(
      "subprocess.Popen(['sleep', '998'])\n"
      "stray = subprocess.Popen(['sleep', '999'], start_new_session=True)\n"
      "while not open(f'/proc/{stray.pid}/cmdline').read(): pass\n"  // exec() fills it in
      "hello()\nserve(lambda: ok(stray.pid))");
  const StartHost start = [&](HostKind, const std::string&) {
    return std::make_shared<HostProcess>(script.command());
  };
  Hosts hosts(start, 60);
  const auto pid = ask<Answered>(hosts.about_card(), FinishCall{}, kQuestion).state.position;
  CHECK(hosts.take_strays() ==
        std::vector<std::string>{"the host of the card has process " + std::to_string(pid) +
                                 " in a session of its own: sleep 999; it is stopped and ended "
                                 "with its host"});
  CHECK(hosts.take_strays().empty());
  hosts.end_idle("");
  CHECK(testing::is_gone(pid));

  hosts.expect("ring");
  hosts.end_process("ring");
  const std::vector<std::string> told = hosts.take_strays();
  REQUIRE(told.size() == 1);
  CHECK_THAT(told[0], ContainsText("the host of ring has process "));
}

TEST_CASE("the end of a host leaves the programs alone that its parent runs") {
  const std::filesystem::path begun = testing::new_path(), ended = testing::new_path();
  const std::string script = "touch " + begun.string() + "; while [ ! -e " + ended.string() +
                             " ]; do sleep 0.01; done; echo whole";
  ProgramOutput output;
  std::thread runs([&] { output = program_output({"sh", "-c", script}, {.seconds = 60}); });
  while (!std::filesystem::exists(begun)) usleep(1000);
  { const testing::ScriptHost host("hello()\nserve()"); }
  std::ofstream(ended) << "now";
  runs.join();
  CHECK(output.text == "whole\n");
  for (const auto& path : {begun, ended}) std::filesystem::remove(path);
}

TEST_CASE("a hangup is an interrupt, and none under nohup") {
  for (const bool ignored : {false, true}) {
    const int count = testing::in_child([ignored] {
      std::signal(SIGHUP, ignored ? SIG_IGN : SIG_DFL);
      install_interrupt_handlers();
      for (const int one : {SIGHUP, SIGTERM}) raise(one);
      return interrupt_count();
    });
    CHECK(count == (ignored ? 1 : 2));
  }
}

TEST_CASE("a turn stops every other host, and flushes in the engine's own") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring");
  const auto eager = fakes.open("eager");
  CHECK_FALSE(fakes.links.contains("the card"));
  auto truth = fakes.open("eager-fp32");
  const std::weak_ptr<FakeLink> runs = fakes.links.at("the judge's runs")[0];
  fakes.hosts.take_turn(*ring, FlushCall{.cuda = true, .gpu = 3});
  CHECK(fakes.link("ring").stops == 0);
  CHECK(fakes.link("eager").stops == 1);
  CHECK(fakes.link("the judge's runs").stops == 1);
  CHECK(std::get<FlushCall>(fakes.link("ring").asked.back().call).gpu == 3);
  CHECK(fakes.link("eager").count<FlushCall>() == 0);
  CHECK(fakes.link("ring").count<FinishCall>() == 1);  // what prepared the turn is over
  fakes.hosts.end_turn(*ring, {});
  CHECK(fakes.link("ring").count<FinishCall>() == 2);
  CHECK_FALSE(fakes.links.contains("the card"));  // on a CPU there is no card to try

  truth.reset();
  fakes.links.clear();  // only the hosts themselves hold their links now
  fakes.hosts.take_turn(*ring, {});
  CHECK_FALSE(runs.expired());
  fakes.hosts.end_judges_runs();
  CHECK(runs.expired());
}

TEST_CASE("only the judge's runs are ended before timing; the host of the card is stopped") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring");
  fakes.hosts.about_card();
  fakes.hosts.end_judges_runs();
  fakes.hosts.take_turn(*ring, {});
  CHECK(fakes.link("the card").stops == 1);
  CHECK(fakes.link("the card").count<FlushCall>() == 0);
  fakes.hosts.about_card();
  CHECK(fakes.links["the card"].size() == 1);
}

TEST_CASE(
    "work that the engine's own host does not show is found by a flush from another process") {
  for (const bool busy : {false, true}) {
    FakeHosts fakes;
    const auto ring = fakes.open("ring", true);
    FakeLink& card = fakes.link("the card");
    CHECK(card.count<FlushCall>() > 1);  // how long it takes on the quiet card
    card.flush_ms = [&] { return busy && fakes.link("ring").alive() ? 100 : 0.2; };
    const auto end = [&] { fakes.hosts.end_turn(*ring, FlushCall{.cuda = true, .gpu = 0}); };
    if (busy) {
      CHECK_THROWS_WITH(
          end(), ContainsText("5 of 5 flushes of L2 by another process waited and took up to 1"));
      CHECK_FALSE(fakes.link("ring").alive());  // what it has left ends with it
      fakes.hosts.expect("ring");
      CHECK(fakes.links["ring"].size() == 2);
    } else {
      CHECK_NOTHROW(end());
      CHECK(fakes.link("ring").alive());
    }
  }
}

// The card of index 0, with processes as the driver lists them.
DeviceList card_with(std::vector<GpuProcess> processes) {
  DeviceInfo card;
  card.state.processes = std::move(processes);
  DeviceList list;
  list.devices = {card};
  return list;
}

TEST_CASE("work that goes on, or comes back, when the engine's host has ended is another's") {
  FakeHosts fakes{.links = {}, .kinds = {}, .timeout_s = 0.2};
  const auto ring = fakes.open("ring", true);
  FakeLink& card = fakes.link("the card");
  FakeLink& own = fakes.link("ring");
  own.pid = 70;
  int flushes = 0;
  const int slow = GENERATE(4, 10);  // time slices let some pass; bursts leave pauses
  card.flush_ms = [&, slow] { return ++flushes % (slow + slow / 4) < slow ? 20 : 0.2; };
  const bool lists_ours = GENERATE(false, true);  // else the ids are of another pid namespace
  card.devices = card_with({{71, "train", {}}, {lists_ours ? 70 : 7070, "own", {}}});
  const auto end = [&] { fakes.hosts.end_turn(*ring, FlushCall{.cuda = true, .gpu = 0}); };
  const std::string who = lists_ours ? "uses the card, process 71 (train): " : "uses the card: ";
  CHECK_THROWS_WITH(end(), ContainsText("another process " + who) && ContainsText("waited") &&
                               ContainsText("also when ring had ended"));
  CHECK_FALSE(own.alive());
  CHECK(own.end_kind == ErrorKind::kEnvUnfit);
  CHECK_THAT(own.end_reason, ContainsText(who));
}

TEST_CASE("work between two turns that no engine's end ends is another process's") {
  FakeHosts fakes{.links = {}, .kinds = {}, .timeout_s = 0.2};
  const FlushCall flush{.cuda = true, .gpu = 0};
  const auto ring = fakes.open("ring", true), plain = fakes.open("plain", true),
             eager = fakes.open("eager", true);
  fakes.hosts.take_turn(*ring, flush);
  const std::vector<FakeLink*> links = {&fakes.link("ring"), &fakes.link("plain"),
                                        &fakes.link("eager")};
  bool busy = true;
  fakes.link("the card").flush_ms = [&] { return busy ? 20 : 0.2; };
  CHECK_THROWS_WITH(fakes.hosts.take_turn(*plain, flush),
                    ContainsText("another process uses the card: ") &&
                        ContainsText("also when ring, plain, eager had ended"));
  for (const FakeLink* link : links) {
    CHECK_FALSE(link->alive());
    CHECK(link->end_kind == ErrorKind::kEnvUnfit);
  }
}

TEST_CASE("an engine with a helper on the card is suspected before the one that ran last") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  const auto ring = fakes.open("ring", true), plain = fakes.open("plain", true);
  fakes.hosts.take_turn(*ring, flush);
  FakeLink &innocent = fakes.link("ring"), &guilty = fakes.link("plain");
  const pid_t helper = fork();
  if (helper == 0) {
    for (;;) pause();
  }
  guilty.pid = getpid();
  fakes.link("the card").devices = card_with({{helper, "helper", {}}});
  fakes.link("the card").flush_ms = [&] { return guilty.alive() ? 30 : 0.2; };
  CHECK_NOTHROW(fakes.hosts.take_turn(*plain, flush));
  kill(helper, SIGKILL);
  CHECK(innocent.alive());
  CHECK_FALSE(guilty.alive());
  CHECK(guilty.end_kind == ErrorKind::kIntegrity);
  CHECK_THAT(guilty.end_reason, ContainsText("plain left work on its device"));
}

TEST_CASE("what an engine begins before its own turn ends with its stop, and costs nobody") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  const auto ring = fakes.open("ring", true), plain = fakes.open("plain", true);
  FakeLink &last = fakes.link("ring"), &next = fakes.link("plain");
  for (int i = 0; i < 4; ++i) {
    fakes.link("the card").flush_ms = nullptr;
    fakes.hosts.take_turn(*ring, flush);
    const int stops = next.stops;
    fakes.link("the card").flush_ms = [&next, stops] { return next.stops == stops ? 30 : 0.2; };
    CHECK_NOTHROW(fakes.hosts.take_turn(*plain, flush));
    CHECK(next.stops == stops + 1);
  }
  CHECK(last.alive());
  CHECK(next.alive());
}

TEST_CASE("what the context of a process takes is found by its first flush") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  int64_t free = 1000;
  const auto free_bytes = [&] { return free; };
  const auto bytes = [&](const char* name) {
    return fakes.hosts.context_bytes(name, flush, free_bytes);
  };
  for (const auto& [name, taken] : {std::pair{"ring", 100}, std::pair{"eager", 250}}) {
    fakes.hosts.expect(name);
    fakes.link(name).answer = [&free, taken = taken](const ToHost&) -> std::optional<FromHost> {
      free -= taken;
      return std::nullopt;
    };
  }
  CHECK(bytes("ring") == 100);
  CHECK(bytes("ring") == 100);
  CHECK(fakes.link("ring").count<FlushCall>() == 1);
  CHECK(fakes.hosts.held_context_bytes() == 100);
  CHECK(bytes("eager") == 250);
  CHECK(fakes.hosts.held_context_bytes() == 350);
  // A process of Python flushes nothing before it has an engine, and holds nothing before.
  CHECK(bytes("./engine.py") == 250);
  CHECK(fakes.hosts.held_context_bytes() == 350);
  {
    const auto engine = fakes.open("./engine.py", true);
    CHECK(fakes.link("./engine.py").count<FlushCall>() == 0);
    CHECK(fakes.hosts.held_context_bytes() == 600);
  }
  fakes.link("./engine.py").end(ErrorKind::kCuda, "gone");
  fakes.link("ring").end(ErrorKind::kCuda, "gone");
  CHECK(fakes.hosts.held_context_bytes() == 250);
  CHECK(fakes.hosts.context_bytes("ring", {}, free_bytes) == 0);  // on a CPU
  fakes.hosts.hold_one(true);
  CHECK(bytes("eager") == 0);
}

TEST_CASE(
    "work that a second look does not find costs a turn its time, and an engine that goes on") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  const auto ring = fakes.open("ring", true), plain = fakes.open("plain", true);
  int slow = 0;
  fakes.link("the card").flush_ms = [&] { return slow-- > 0 ? 30 : 0.2; };
  const auto doubt = [&](Engine& engine, int slow_flushes) {
    slow = slow_flushes;
    return fakes.hosts.end_turn(engine, flush);
  };
  CHECK(doubt(*ring, 2).empty());  // less than half of five
  for (int i = 0; i < 3; ++i) {
    CHECK_THAT(doubt(*ring, 5), ContainsText("5 of 5 flushes") && ContainsText("up to 30.00 ms"));
    CHECK_THAT(doubt(*ring, 3), ContainsText("3 of 5 flushes"));
    CHECK(doubt(*ring, 0).empty());
  }
  for (int i = 0; i < 2; ++i) CHECK_FALSE(doubt(*plain, 5).empty());
  CHECK_FALSE(doubt(*ring, 5).empty());  // each engine's turns are counted for themselves
  CHECK_THROWS_WITH(doubt(*plain, 5), ContainsText("left work on its device"));
  CHECK_FALSE(fakes.link("plain").alive());
  CHECK(fakes.link("ring").alive());
}

TEST_CASE("work that appears between two turns is blamed on the engine that ran last") {
  FakeHosts fakes;
  const FlushCall flush{.cuda = true, .gpu = 0};
  const auto ring = fakes.open("ring", true), plain = fakes.open("plain", true);
  int slow = 0;  // flushes of the card that take long
  fakes.link("the card").flush_ms = [&] { return slow-- > 0 ? 30 : 0.2; };
  const auto turn = [&](Engine& engine) {
    fakes.hosts.take_turn(engine, flush);
    fakes.hosts.end_turn(engine, flush);
  };
  turn(*ring);
  const int tries = fakes.link("the card").count<FlushCall>();
  fakes.hosts.end_turn(*ring, FlushCall{.cuda = false, .gpu = 0});
  CHECK(fakes.link("the card").count<FlushCall>() == tries);  // a turn on the CPU
  slow = 2;                                                   // less than half of five
  turn(*plain);
  CHECK(fakes.link("ring").alive());
  FakeLink& guilty = fakes.link("plain");
  slow = 5;  // gone at the second look
  turn(*ring);
  turn(*plain);
  CHECK(guilty.alive());
  slow = 10;
  CHECK_NOTHROW(turn(*ring));  // the card is quiet again once plain's host has ended
  CHECK_FALSE(guilty.alive());
  CHECK(guilty.end_kind == ErrorKind::kIntegrity);
  CHECK_THAT(guilty.end_reason, ContainsText("plain left work on its device"));
  CHECK(fakes.link("ring").alive());
}

TEST_CASE("where one process holds engines, an idle host ends before another one opens") {
  FakeHosts fakes;
  fakes.hosts.hold_one(true);
  fakes.hosts.expect("ring");
  CHECK(fakes.links.empty());  // nothing starts before its turn
  auto truth = fakes.open("eager-fp32");
  const auto eager = fakes.open("eager");  // the judge and its other runs share a host
  CHECK(fakes.links.size() == 1);
  CHECK(fakes.links["eager"].size() == 1);
  auto plain = fakes.open("plain");
  const std::weak_ptr<FakeLink> host = fakes.links["plain"][0];
  fakes.links.clear();
  plain.reset();
  plain = fakes.open("plain");  // its own host is kept
  CHECK(fakes.links.empty());
  plain.reset();
  const auto ring = fakes.open("ring");
  CHECK(host.expired());
  CHECK(fakes.links.size() == 1);  // the judge's host still holds engines and was kept
  const auto again = fakes.open("eager-fp32");
  CHECK_FALSE(fakes.links.contains("eager"));  // it took the new engine too
}

TEST_CASE("a host that cannot be stopped costs the engine whose turn it is nothing") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring"), plain = fakes.open("plain"), eager = fakes.open("eager");
  fakes.link("eager").stopping = [&fakes] {
    fakes.link("eager").lives = false;
    throw Error(ErrorKind::kHang, "cannot be stopped");
  };
  CHECK_NOTHROW(fakes.hosts.take_turn(*ring, {}));
  CHECK(fakes.link("plain").stops == 1);
  CHECK(fakes.link("ring").count<FlushCall>() == 1);
}

TEST_CASE("what ends a turn too late, or not at all, has left work behind") {
  FakeHosts fakes;
  const auto ring = fakes.open("ring");
  const auto failing = [&](ErrorKind kind) {
    fakes.link("ring").answer = [kind](const ToHost& call) -> std::optional<FromHost> {
      if (std::holds_alternative<FinishCall>(call)) throw Error(kind, "why");
      return std::nullopt;
    };
    try {
      fakes.hosts.end_turn(*ring, {});
    } catch (const Error& error) {
      return error.kind();
    }
    return ErrorKind::kRuntime;
  };
  CHECK(failing(ErrorKind::kHang) == ErrorKind::kIntegrity);
  CHECK_FALSE(fakes.link("ring").alive());
  CHECK(failing(ErrorKind::kTimeout) == ErrorKind::kIntegrity);
  CHECK(failing(ErrorKind::kCuda) == ErrorKind::kCuda);  // a fault of its own kind
  CHECK(fakes.link("ring").asked.back().limit.longest_s == 5);

  // A call returns once its work is done: what takes another 0.25 s was not waited for.
  fakes.link("ring").answer = [](const ToHost& call) -> std::optional<FromHost> {
    if (std::holds_alternative<FinishCall>(call)) usleep(300'000);
    return std::nullopt;
  };
  CHECK_THROWS_WITH(fakes.hosts.end_turn(*ring, {}), ContainsText("it was busy "));
}

}  // namespace
}  // namespace mkbench
