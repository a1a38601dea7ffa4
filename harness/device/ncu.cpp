#include "harness/device/ncu.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "harness/device/cuda_lanes.h"
#include "harness/device/program_output.h"
#include "harness/measure/range_label.h"

namespace mkbench {
namespace {

namespace fs = std::filesystem;

// A temporary file; the destructor removes it.
class TemporaryFile {
 public:
  TemporaryFile() {
    std::error_code ignored;
    path_ = (fs::temp_directory_path(ignored) / "mkbench-ncu-XXXXXX").string();
    const int descriptor = mkstemp(path_.data());
    if (descriptor < 0) {
      problem_ = fmt::format("ncu: cannot make {}: {}", path_, std::strerror(errno));
      path_.clear();
      return;
    }
    close(descriptor);
  }
  ~TemporaryFile() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }
  const std::string& problem() const { return problem_; }
  std::string text() const {
    std::ifstream in(path_);
    return {std::istreambuf_iterator<char>(in), {}};
  }

 private:
  std::string path_, problem_;
};

// `all_versions` has a folder for each version; `inside` is the program's folder in each of them.
std::vector<fs::path> folders_of_nsight(const fs::path& all_versions, const fs::path& inside) {
  std::vector<fs::path> folders = path_folders();
  if (const std::string nvcc = find_toolkit().nvcc; !nvcc.empty())
    folders.push_back(fs::path(nvcc).parent_path());
  folders.emplace_back("/usr/local/cuda/bin");
  std::vector<fs::path> versions;
  std::error_code error;
  for (fs::directory_iterator at(all_versions, error), end; !error && at != end;
       at.increment(error)) {
    versions.push_back(at->path() / inside);
  }
  std::sort(versions.rbegin(), versions.rend());
  folders.insert(folders.end(), versions.begin(), versions.end());
  return folders;
}

}  // namespace

std::string find_ncu() {
  return find_in(folders_of_nsight("/opt/nvidia/nsight-compute", ""), "ncu");
}

std::string find_nsys() {
  return find_in(folders_of_nsight("/opt/nvidia/nsight-systems", "bin"), "nsys");
}

std::string ncu_raw_page(const std::string& ncu, const std::string& report) {
  return program_output(
             {ncu, "--import", report, "--csv", "--page", "raw", "--print-units", "base"})
      .text;
}

ByteCounts count_with_ncu(const std::string& ncu, const std::vector<std::string>& program,
                          double timeout_s) {
  const TemporaryFile log;
  ByteCounts none;
  none.problem = log.problem();
  if (!none.problem.empty()) return none;
  std::vector<std::string> command = {ncu,    "--csv",    "--page", "raw", "--print-units",
                                      "base", "--metrics"};
  command.push_back(fmt::format("{},{}", kDramMetric, kL2HitMetric));
  command.insert(command.end(), {"--nvtx", "--nvtx-include"});
  command.push_back(fmt::format("{}@{}/", kNvtxDomain, kDecodeRange));
  command.insert(command.end(), {"--target-processes", "all", "--log-file", log.path()});
  command.insert(command.end(), program.begin(), program.end());
  const ProgramOutput run = program_output(command, {.seconds = timeout_s});
  if (run.ended) {
    none.problem = fmt::format("ncu: it did not end in {:g} s", timeout_s);
    return none;
  }
  const int status = WIFEXITED(run.end) ? WEXITSTATUS(run.end) : -1;
  const ByteCounts counts = parse_ncu_log(log.text());
  if (status == 0) return counts;
  const std::string ended = fmt::format("{}: exit status {}", ncu, status);
  none.problem = counts.problem.empty() ? ended : counts.problem + "; " + ended;
  return none;
}

}  // namespace mkbench
