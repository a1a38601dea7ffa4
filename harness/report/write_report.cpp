#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "harness/report/junit.h"
#include "harness/report/render.h"
#include "references/base/json_fields.h"
#include "references/base/sha256.h"

namespace mkbench {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const char* what) {
  throw Error(ErrorKind::kRuntime,
              fmt::format("report: cannot {} {}: {}", what, path.string(), std::strerror(errno)));
}

// Writes a file whole or not at all: under a temporary name, flushed to the disk, then renamed.
void write_file(const fs::path& path, const void* data, size_t bytes) {
  const fs::path temporary = path.string() + ".partial";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (file < 0) fail(temporary, "create");
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(file, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) {
      ::close(file);
      fail(temporary, "write");
    }
    at += written;
    bytes -= static_cast<size_t>(written);
  }
  if (::fsync(file) != 0 || ::close(file) != 0) fail(temporary, "flush");
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "rename onto");
}

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) {
    throw Error(ErrorKind::kRuntime, fmt::format("report: cannot create folder {}: {}",
                                                 folder.string(), error.message()));
  }
}

// `text` as a file name: letters, digits, dot, equals sign and underscore; other characters become
// dashes.
std::string file_name(const std::string& text) {
  std::string name;
  for (const char c : text) {
    const bool keep = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '_' || c == '=';
    if (keep) {
      name += c;
    } else if (!name.empty() && name.back() != '-') {
      name += '-';
    }
  }
  while (!name.empty() && name.front() == '.') name.erase(0, 1);  // an engine may be a path
  // A long name (the path of a snapshot) is cut; a hash keeps names apart that begin alike.
  constexpr size_t kLongest = 80, kKept = 60;
  if (name.size() > kLongest) {
    name = name.substr(0, kKept) + "-" + sha256_hex(text.data(), text.size()).substr(0, 12);
  }
  return name.empty() ? "unnamed" : name;
}

std::string samples_text(const Report& report) {
  std::string text;
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) {
      for (const Sample& s : e.samples) {
        json line = json_fields::write(s);
        line["case"] = c.name;
        text += line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
      }
    }
  }
  return text;
}

void write_tokens(const Report& report, const fs::path& folder) {
  for (const CaseReport& c : report.cases) {
    for (const EngineReport& e : c.engines) {
      for (const Sample& s : e.samples) {
        if (s.ids.empty()) continue;
        make_folder(folder);
        const fs::path path =
            folder / fmt::format("{}-{}-{}.u32", file_name(c.name), file_name(e.name), s.block);
        write_file(path, s.ids.data(), s.ids.size() * sizeof(s.ids[0]));
      }
    }
  }
}

json trace_event(const std::string& name, const char* category, int process, int thread,
                 double start_ms, double ms) {
  return {{"name", name},  {"cat", category},       {"ph", "X"},       {"pid", process},
          {"tid", thread}, {"ts", 1000 * start_ms}, {"dur", 1000 * ms}};
}

json name_event(const char* what, int process, int thread, const std::string& name) {
  return {
      {"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

// Trace Event Format, which Perfetto reads: a process for each case, a thread for each engine, a
// slice for each sample and, where the engine timed them, for each token. Samples without a
// recorded start are laid end to end.
std::string trace_text(const Report& report) {
  json events = json::array();
  bool laid_out = false;
  for (size_t p = 0; p < report.cases.size(); ++p) {
    const CaseReport& c = report.cases[p];
    const int process = static_cast<int>(p) + 1;
    events.push_back(name_event("process_name", process, 0, c.name));
    struct Slice {
      const Sample* sample;
      int thread;
    };
    std::vector<Slice> slices;
    for (size_t t = 0; t < c.engines.size(); ++t) {
      const int thread = static_cast<int>(t) + 1;
      events.push_back(name_event("thread_name", process, thread, c.engines[t].name));
      for (const Sample& s : c.engines[t].samples) slices.push_back({&s, thread});
    }
    std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) {
      return std::pair(a.sample->block, a.sample->order) <
             std::pair(b.sample->block, b.sample->order);
    });
    double next_ms = 0;
    for (const Slice& slice : slices) {
      const Sample& s = *slice.sample;
      laid_out = laid_out || !(s.start_ms > 0);
      double at = s.start_ms > 0 ? s.start_ms : next_ms;
      events.push_back(trace_event(fmt::format("{} block {}", s.engine, s.block), "sample", process,
                                   slice.thread, at, s.times.host_ms));
      next_ms = at + s.times.host_ms;
      for (size_t i = 0; i < s.times.per_token_ms.size(); ++i) {
        const std::string name = fmt::format("token {}", i);
        events.push_back(
            trace_event(name, "token", process, slice.thread, at, s.times.per_token_ms[i]));
        at += s.times.per_token_ms[i];
      }
    }
  }
  const json trace = {{"traceEvents", events},
                      {"displayTimeUnit", "ms"},
                      {"otherData", {{"samples_without_a_start_are_laid_end_to_end", laid_out}}}};
  return trace.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace

void write_text(const fs::path& path, const std::string& text) {
  write_file(path, text.data(), text.size());
}

void write_report(const Report& report, const fs::path& folder) {
  make_folder(folder);
  write_tokens(report, folder / "tokens");
  write_text(folder / "samples.jsonl", samples_text(report));
  write_text(folder / "trace.json", trace_text(report));
  const json environment = {{"env", report.environment}, {"calibration", report.calibration}};
  write_text(folder / "env.json", dump_readable(environment) + "\n");
  write_text(folder / "report.md", render_markdown(report));
  write_text(folder / "junit.xml", render_junit(report));
  // Written last: a folder that holds report.json is complete.
  write_text(folder / "report.json", render(report, "json"));
}

}  // namespace mkbench
