// main() of a fuzz target where libFuzzer is not linked:
//   fuzz_X [--mutate SECONDS [--seed N] [--found FILE]] FOLDER...
// runs every file of the folders, so that an input that once broke a reader is tried in every build, and then, for
// SECONDS, mutations of them. Mutations follow from the seed, the files and their order alone: what a seed has found, it
// finds again. They are blind, unlike libFuzzer's, so they are as good as the files that they begin with.
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <random>
#include <stdexcept>
#include <vector>

#include "tests/fuzz/input.h"

extern "C" {
// json_target.cpp has it, for targets whose input is JSON.
__attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                                     unsigned seed);
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);
}

namespace mkbench::fuzz {
namespace {

namespace fs = std::filesystem;
using Bytes = std::vector<uint8_t>;

constexpr size_t kLargest = 300'000;
constexpr unsigned kSecondsPerInput = 20;

std::mt19937_64 chance;

size_t below(size_t count) { return count == 0 ? 0 : chance() % count; }

struct Request {
  double mutate_s = 0;
  uint64_t seed = 1;
  fs::path found = "fuzz-found";
  std::vector<std::string> folders;
};

Request parse(const std::vector<std::string>& arguments) {
  Request request;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with("--")) {
      request.folders.push_back(word);
      continue;
    }
    if (i + 1 == arguments.size()) throw std::invalid_argument(word + " wants a value");
    const std::string& value = arguments[++i];
    if (word == "--mutate")
      request.mutate_s = std::stod(value);
    else if (word == "--seed")
      request.seed = std::stoull(value);
    else if (word == "--found")
      request.found = value;
    else
      throw std::invalid_argument("unknown option " + word);
  }
  return request;
}

// Runs the files of the folders in the order of their names, and returns their bytes.
std::vector<Bytes> run_files(const std::vector<std::string>& folders) {
  std::vector<Bytes> inputs;
  for (const std::string& folder : folders) {
    std::vector<fs::path> paths;
    for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
    std::sort(paths.begin(), paths.end());
    for (const fs::path& path : paths) {
      std::ifstream file(path, std::ios::binary);
      Bytes bytes{std::istreambuf_iterator<char>(file), {}};
      bytes.shrink_to_fit();               // a sanitizer sees a read beyond the end
      std::cerr << path.string() << "\n";  // the last line names the input that ended the process
      LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
      inputs.push_back(std::move(bytes));
    }
  }
  return inputs;
}

// Memory that outlives the process that mutates: the input under test, and how many there were.
struct Shared {
  size_t size, count;
  uint8_t data[kLargest];
};

void mutate_one(const std::vector<Bytes>& inputs, Shared& now) {
  const Bytes& from = inputs[below(inputs.size())];
  now.size = std::min(from.size(), kLargest);
  std::copy_n(from.begin(), now.size, now.data);
  for (size_t edits = 1 + below(3); edits > 0; --edits) {
    if (LLVMFuzzerCustomMutator != nullptr)
      now.size =
          LLVMFuzzerCustomMutator(now.data, now.size, kLargest, static_cast<unsigned>(chance()));
    else
      now.size = LLVMFuzzerMutate(now.data, now.size, kLargest);
  }
}

[[noreturn]] void mutate_until(std::chrono::steady_clock::time_point end,
                               const std::vector<Bytes>& inputs, Shared& now) {
  while (std::chrono::steady_clock::now() < end) {
    mutate_one(inputs, now);
    ++now.count;
    alarm(kSecondsPerInput);  // ends the process where a reader does not end
    // The copy has exactly that size, so that a sanitizer sees a read beyond its end.
    const Bytes exact(now.data, now.data + now.size);
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  }
  std::exit(0);
}

// Mutates in a process of its own; what it held when it ended too early goes to request.found.
int mutate(const Request& request, const std::vector<Bytes>& inputs) {
  chance.seed(request.seed);
  const auto end = std::chrono::steady_clock::now() +
                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                       std::chrono::duration<double>(request.mutate_s));
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no shared memory");
  Shared& now = *static_cast<Shared*>(memory);
  std::cout.flush();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("no process");
  if (child == 0) mutate_until(end, inputs, now);
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw std::runtime_error("the process is lost");
  const bool sound = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  std::cout << fmt::format("{} mutations, seed {}\n", now.count, request.seed);
  if (sound) return 0;
  std::ofstream file(request.found, std::ios::binary);
  file.write(reinterpret_cast<const char*>(now.data), static_cast<std::streamsize>(now.size));
  std::cout << fmt::format("mutation {} ended the process ({}); its {} bytes are in {}\n",
                           now.count,
                           WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "its exit code",
                           now.size, request.found.string());
  return 1;
}

// One edit of bytes.
size_t edit(uint8_t* data, size_t size, size_t max_size) {
  const size_t at = below(size + 1);
  const size_t rest = size - at;
  const size_t length = 1 + below(std::min<size_t>(64, std::max<size_t>(size, 1)));
  switch (below(6)) {
    case 0:  // one bit
      if (rest > 0) data[at] ^= static_cast<uint8_t>(1U << below(8));
      return size;
    case 1:  // one byte
      if (rest > 0) data[at] = static_cast<uint8_t>(chance());
      return size;
    case 2: {  // bytes go
      const size_t gone = std::min(length, rest);
      std::memmove(data + at, data + at + gone, rest - gone);
      return size - gone;
    }
    case 3: {  // bytes of another place come in between
      const size_t more = std::min({length, size, max_size - size});
      const size_t source = below(size - more + 1);
      const Bytes copy(data + source, data + source + more);
      std::memmove(data + at + more, data + at, rest);
      std::copy(copy.begin(), copy.end(), data + at);
      return size + more;
    }
    case 4: {  // a number at a limit, of 1, 2, 4 or 8 bytes
      const uint64_t limits[] = {0,
                                 1,
                                 0x7f,
                                 0x80,
                                 0xff,
                                 0x7fff,
                                 0xffff,
                                 0x7fffffff,
                                 0xffffffff,
                                 ~uint64_t{0} >> 1,
                                 ~uint64_t{0},
                                 size,
                                 size - 8};
      const uint64_t number = limits[below(std::size(limits))];
      std::memcpy(data + at, &number, std::min(rest, size_t{1} << below(4)));
      return size;
    }
    default:  // the end is cut off
      return at;
  }
}

int run(const std::vector<std::string>& arguments) {
  const Request request = parse(arguments);
  const std::vector<Bytes> inputs = run_files(request.folders);
  std::cout << inputs.size() << " inputs\n";
  if (inputs.empty()) return 1;
  return request.mutate_s > 0 ? mutate(request, inputs) : 0;
}

}  // namespace
}  // namespace mkbench::fuzz

size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size) {
  return mkbench::fuzz::edit(data, size, max_size);
}

int main(int argc, char* argv[]) {
  try {
    return mkbench::fuzz::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n"
              << "usage: " << argv[0]
              << " [--mutate SECONDS [--seed N] [--found FILE]] FOLDER...\n";
    return 2;
  }
}
