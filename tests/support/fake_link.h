// A host that records what it is asked, and answers as a test tells it.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "harness/wire/host_link.h"

namespace mkbench::testing {

struct Asked {
  ToHost call;
  CallLimit limit;
};

struct FakeLink final : HostLink {
  std::vector<Asked> asked;
  std::function<std::optional<FromHost>(const ToHost&)> answer = [](const ToHost&) {
    return std::nullopt;
  };
  std::function<double()> flush_ms;  // how long a flush takes; 0.2 where it is not set
  DeviceList devices;                // what it knows of the cards
  Arena memory;
  int stops = 0, pid = 0;
  std::function<void()> stopping;
  bool lives = true;
  ProgressTold told;

  FromHost call(const ToHost& call, const CallLimit& limit,
                const std::function<void(const std::string&)>&) override {
    asked.push_back({call, limit});
    if (std::optional<FromHost> own = answer(call)) return *own;
    if (std::holds_alternative<OpenCall>(call)) return Opened{};
    if (std::holds_alternative<PrefillCall>(call)) return Prefilled{};
    if (const auto* decode = std::get_if<DecodeCall>(&call)) return Decoded{{}, decode->n, {}, {}};
    if (std::holds_alternative<SkipToCall>(call)) return Able{};
    if (std::holds_alternative<CardCall>(call)) return CardFacts{devices, "", {}, {}};
    if (std::holds_alternative<FlushCall>(call)) return Flushed{flush_ms ? flush_ms() : 0.2};
    return Answered{};
  }
  Arena& arena() override { return memory; }
  ProgressTold progress() override { return told; }
  ProcessFacts facts() override {
    ProcessFacts facts;
    facts.pid = pid;
    return facts;
  }
  bool alive() const override { return lives; }
  void end(ErrorKind kind, const std::string& why) override {
    lives = false;
    end_kind = kind;
    end_reason = why;
  }
  ErrorKind end_kind = ErrorKind::kRuntime;
  std::string end_reason;
  void stop() override {
    ++stops;
    if (stopping) stopping();
  }

  template <typename Call>
  int count() const {
    int n = 0;
    for (const Asked& one : asked) n += std::holds_alternative<Call>(one.call);
    return n;
  }
};

}  // namespace mkbench::testing
