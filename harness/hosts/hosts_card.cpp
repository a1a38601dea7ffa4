// Whose work is on the card: between the turns of the engines, and after each.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "harness/device/process_tree.h"
#include "harness/hosts/hosts.h"
#include "references/base/error.h"
#include "references/base/one_line.h"

namespace mkbench {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Device work that is still running kLeftBehindS after its call has returned counts as left behind;
// the wait for its end takes at most kLeftBehindLimitS.
constexpr double kLeftBehindS = 0.25, kLeftBehindLimitS = 5;
// The card is busy if most of kCardTries flushes exceed kBusyFactor x the quiet time + kBusyMs: a
// kernel of another context keeps the card for a time slice of about 2 ms before a flush runs.
constexpr int kCardTries = 5, kQuietTries = 16;
constexpr double kBusyFactor = 2, kBusyMs = 1;
// If this many consecutive looks find work on the card, the engine has left it behind, even if each
// piece of work had ended at the second look.
constexpr int kMostDoubts = 3;
// How long the card may take to become quiet, and how long it must then stay quiet: work may come
// in bursts. Both are shorter if --timeout is. A kernel that shares the card by time slices lets
// some flushes pass, so quiet means that none of kQuietTries waits.
constexpr double kQuietWaitS = 10, kQuietS = 1;

}  // namespace

double Hosts::try_card(const FlushCall& flush) {
  return ask<Flushed>(about_card(), flush, kQuestion).ms;
}

// How long a flush takes before the first engine of the run: the card is as quiet as it will be.
void Hosts::learn_quiet_card(const FlushCall& flush) {
  for (int i = 0; i < 2; ++i) try_card(flush);  // the first flush allocates the buffer
  for (int i = 0; i < kQuietTries; ++i) quiet_card_ms_ = std::max(quiet_card_ms_, try_card(flush));
}

// Describes other work on the card, which shows if more than `most_slow` of `tries` flushes wait.
// Empty if the card is quiet, on a CPU, and after hold_one(true), as only one process may use it.
std::string Hosts::card_work(const FlushCall& flush, int tries, int most_slow) {
  if (!flush.cuda || one_ || quiet_card_ms_ == 0) return "";
  int slow = 0;
  double slowest_ms = 0;
  for (int i = 0; i < tries; ++i) {
    const double ms = try_card(flush);
    slow += ms > kBusyFactor * quiet_card_ms_ + kBusyMs;
    slowest_ms = std::max(slowest_ms, ms);
  }
  if (slow <= most_slow) return "";
  return fmt::format(
      "after the call had returned, {} of {} flushes of L2 by another process waited and took up "
      "to {:.2f} ms; on the quiet card {:.2f} ms",
      slow, tries, slowest_ms, quiet_card_ms_);
}

Hosts::CardLook Hosts::look_for_work(int& doubts, const FlushCall& flush) {
  CardLook look{card_work(flush, kCardTries, kCardTries / 2), false};
  if (look.found.empty()) {
    doubts = 0;
  } else {
    look.stays = !card_work(flush, kCardTries, kCardTries / 2).empty() || ++doubts == kMostDoubts;
  }
  return look;
}

Hosts::CardUsers Hosts::card_users(const FlushCall& flush) {
  if (!flush.cuda || one_) return {};
  const auto facts = ask<CardFacts>(about_card(), CardCall{.gpu = flush.gpu}, kQuestion);
  const DeviceInfo* card = find_device(facts.devices, flush.gpu);
  if (card == nullptr) return {};
  std::map<int, std::string> ours, below;  // what the host holds, by process id
  for (const auto& [holds, link] : links_) {
    if (!link->alive()) continue;
    const int host = link->facts().pid;
    ours[host] = holds;
    for (const ProcessSeen& one : processes_below(host)) below[one.pid] = holds;
  }
  CardUsers users;
  bool knows_ours = false;  // else the driver's ids are those of another pid namespace
  for (const GpuProcess& one : card->state.processes) {
    if (const auto found = below.find(one.pid); found != below.end()) {
      users.with_helpers.push_back(found->second);
      knows_ours = true;
    } else if (ours.contains(one.pid)) {
      knows_ours = true;
    } else {
      users.foreign += fmt::format(", process {} ({})", one.pid, one_line(one.name));
    }
  }
  if (!knows_ours) users.foreign.clear();
  return users;
}

// Waits until the card has been quiet for kQuietS. Returns what was found last if that does not
// happen, else an empty string.
std::string Hosts::wait_for_quiet_card(const FlushCall& flush) {
  if (!flush.cuda || one_) return "";
  const Seconds limit{std::min(kQuietWaitS, timeout_s_)}, quiet{std::min(kQuietS, timeout_s_)};
  const Clock::time_point begin = Clock::now();
  Clock::time_point busy = begin;  // at the end of the last look that found work
  for (;;) {
    const std::string found = card_work(flush, kQuietTries, 0);
    const Clock::time_point now = Clock::now();
    if (!found.empty()) busy = now;
    if (!found.empty() && now - begin >= limit) return found;
    if (found.empty() && now - busy >= quiet) return "";
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// Ends hosts, one after another, until the card stays quiet: what a host has left there ends with
// its contexts, so the last one has left the work. Returns the reason for that engine's verdict.
// Throws Error(kEnvUnfit) if work goes on when all are ended, also in the next call to each.
std::string Hosts::end_for_work(const std::vector<std::string>& suspects, const std::string& found,
                                const FlushCall& flush) {
  const std::string foreign = card_users(flush).foreign;
  std::vector<std::shared_ptr<HostLink>> ended;
  std::string names;
  for (const std::string& holds : suspects) {
    const auto at = links_.find(holds);
    const std::shared_ptr<HostLink> link = at != links_.end() ? at->second : nullptr;
    // A host that is dead already is no answer, unless the question was of its last call alone.
    if ((link == nullptr || !link->alive()) && suspects.size() > 1) continue;
    note_strays(holds);
    const auto end = [&](ErrorKind kind, const std::string& why) {
      if (link != nullptr) link->end(kind, why);
    };
    end(ErrorKind::kEnvUnfit,
        fmt::format("the host of {} was ended to find out who works on the card", holds));
    if (link != nullptr) links_.erase(at);
    names += (names.empty() ? "" : ", ") + holds;
    if (wait_for_quiet_card(flush).empty()) {
      const std::string why = fmt::format("{} left work on its device: {}", holds, found);
      end(ErrorKind::kIntegrity, why);
      return why;
    }
    if (link != nullptr) ended.push_back(link);
  }
  const std::string why = fmt::format(
      "another process uses the card{}: {}, also when {} had ended; wait for its end (nvidia-smi "
      "lists it)",
      foreign, found, names.empty() ? "all engines" : names);
  for (const auto& link : ended) link->end(ErrorKind::kEnvUnfit, why);
  throw Error(ErrorKind::kEnvUnfit, why);
}

// Called while only `own`, which holds the engine of the next turn, is not stopped.
void Hosts::need_quiet_card(HostLink& own, const std::string& next, const FlushCall& flush) {
  if (!flush.cuda) return;
  if (!card_work(flush, kCardTries, kCardTries / 2).empty()) {
    // From here on no engine begins anything, and what was begun has time to end.
    stop_other(own);
    std::this_thread::sleep_for(Seconds(kLeftBehindS));
    const std::string found = card_work(flush, kCardTries, kCardTries / 2);
    if (!found.empty()) end_who_works(next, found, flush);
  }
  if (links_.contains(kCard)) stop_other(*links_.at(kCard));
}

// The most suspect are engines with other processes on the card; then the one whose turn was last.
void Hosts::end_who_works(const std::string& next, const std::string& found,
                          const FlushCall& flush) {
  const CardUsers users = card_users(flush);
  if ((last_turn_.empty() || !users.foreign.empty()) && wait_for_quiet_card(flush).empty()) return;
  std::vector<std::string> suspects = users.with_helpers;
  suspects.insert(suspects.end(), {last_turn_, next});
  for (const auto& [holds, link] : links_) {
    if (holds != kCard) suspects.push_back(holds);
  }
  end_for_work(suspects, found, flush);
}

std::string Hosts::end_turn(Engine& engine, const FlushCall& flush) {
  const std::string holds = holder_of(host_engine(engine).name());
  const auto blame = [&](const std::string& found) {
    throw Error(ErrorKind::kIntegrity, end_for_work({holds}, found, flush));
  };
  const Clock::time_point begin = Clock::now();
  try {
    ask<Answered>(host_engine(engine).link(), FinishCall{}, {kLeftBehindLimitS, kLeftBehindLimitS});
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kHang && error.kind() != ErrorKind::kTimeout) throw;
    blame(fmt::format("it was still busy {:g} s after the call had returned", kLeftBehindLimitS));
  }
  const Seconds s = Clock::now() - begin;
  if (s.count() > kLeftBehindS)
    blame(fmt::format("it was busy for {:.2f} s after the call had returned", s.count()));
  const CardLook look = look_for_work(doubts_after_[holds], flush);
  if (look.stays) blame(look.found);
  return look.found;
}

}  // namespace mkbench
