// A host in this process: calls go to a Server directly. No call has a limit here.
#pragma once

#include "harness/host/server.h"
#include "harness/wire/host_link.h"

namespace mkbench {

class LocalHost final : public HostLink {
 public:
  // `program` must outlive the host.
  explicit LocalHost(const HostProgram& program);

  FromHost call(const ToHost& call, const CallLimit& limit,
                const std::function<void(const std::string&)>& on_stage = {}) override;
  Arena& arena() override { return arena_; }
  ProgressTold progress() override { return server_.progress(); }
  ProcessFacts facts() override;
  bool alive() const override { return true; }
  void stop() override {}
  void end(ErrorKind, const std::string&) override {}

 private:
  const HostProgram& program_;
  Arena arena_;
  std::function<void(const std::string&)> on_stage_;
  Server server_;
};

}  // namespace mkbench
