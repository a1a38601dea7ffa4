// Weights published by one process and read by another: bytes, seals, folders and stamps.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "references/base/free_memory.h"
#include "references/base/json_strict.h"
#include "references/base/sealed_memory.h"
#include "references/config.h"
#include "references/shared_snapshot.h"
#include "references/snapshot.h"
#include "references/synthetic.h"
#include "references/weight_edit.h"
#include "tests/support/catch2.h"
#include "tests/support/in_child.h"
#include "tests/support/micro_model.h"
#include "tests/support/random_model.h"
#include "tests/support/scoped_variable.h"
#include "tests/support/small_analytic.h"
#include "tests/support/thrown.h"

namespace mkbench::testing {
namespace {

using testing::in_child;
namespace fs = std::filesystem;

// A folder of temporary files of this test alone, in TMPDIR for the scope.
class OwnTmpdir {
 public:
  const fs::path& path() const { return folder_.path(); }
  bool empty() const { return fs::is_empty(path()); }

 private:
  TemporaryFolder folder_;
  ScopedVariable variable_{"TMPDIR", folder_.path().c_str()};
};

std::string text_of(const fs::path& file) { return read_small_file(file, 1 << 24); }

void check_same(const ModelWeights& found, const ModelWeights& wanted) {
  CHECK(found.name == wanted.name);
  CHECK(found.lagset == wanted.lagset);
  CHECK(found.sha256 == wanted.sha256);
  CHECK(found.config.shape == wanted.config.shape);
  for (const NamedTensor& t : tensor_table(wanted.config)) {
    INFO(t.name);
    const Matrix &f = tensor_of(found, t), &w = tensor_of(wanted, t);
    REQUIRE((f.rows == w.rows && f.cols == w.cols));
    CHECK(std::memcmp(f.data, w.data, w.bytes()) == 0);
  }
  CHECK(hash_weights(found) == hash_weights(wanted));
}

// The pid of a process that has just ended.
pid_t dead_pid() {
  const pid_t child = fork();
  if (child == 0) _exit(0);
  REQUIRE(waitpid(child, nullptr, 0) == child);
  return child;
}

// A folder like the one that process `pid` would publish.
fs::path make_folder(const fs::path& parent, const std::string& name) {
  const fs::path folder = parent / name;
  fs::create_directory(folder);
  fs::create_symlink("/proc/1/fd/900", folder / "model.safetensors");
  return folder;
}

ModelWeights random_micro(bool tied) {
  return random_model(kMicro, {.rope_theta = 5e5, .tied = tied, .max_positions = 64, .seed = 7});
}

}  // namespace

TEST_CASE("a CPU copies the tensors of a file whose data begin misaligned, and no others") {
  const TemporaryFolder folder;
  const fs::path tiny = data_dir() / "tiny-qwen2", copy = folder.path() / "model.safetensors";
  fs::copy_file(tiny / "config.json", folder.path() / "config.json");
  std::string file = text_of(tiny / "model.safetensors");
  std::vector<int64_t> found;
  for (int i = 0; i < 2; ++i) {  // the second time 8 bytes further on
    std::ofstream(copy, std::ios::binary) << file;
    found.push_back(misaligned_bytes(folder.path()));
    uint64_t header;
    std::memcpy(&header, file.data(), sizeof header);
    file.insert(8 + header, 8, ' ');
    header += 8;
    std::memcpy(file.data(), &header, sizeof header);
  }
  const ModelConfig config = read_config(folder.path() / "config.json");
  std::sort(found.begin(), found.end());
  CHECK(found == std::vector<int64_t>{0, 2 * config.shape.parameters(config.tie_word_embeddings)});
}

TEST_CASE("shared weights have the bytes, the hash and the config of the originals") {
  const OwnTmpdir tmpdir;
  for (const bool tied : {true, false}) {
    const ModelWeights weights = random_micro(tied);
    const ModelWeights shared = share_weights(weights);
    check_same(shared, weights);
    CHECK(shared.folder.is_absolute());
    CHECK(shared.folder.parent_path() == tmpdir.path());
    CHECK((shared.lm_head.data == shared.embed_tokens.data) == tied);
    CHECK(shared.embed_tokens.data != weights.embed_tokens.data);
    CHECK(reinterpret_cast<uintptr_t>(shared.embed_tokens.data) % 256 == 0);
    check_same(load_folder(shared.folder, "random"), weights);  // scans and hashes
    CHECK(share_weights(shared).folder == shared.folder);
  }
}

TEST_CASE("shared weights of another family read back with its tensors and its RoPE") {
  const OwnTmpdir tmpdir;
  for (const bool biases : {false, true}) {
    ModelShape shape = kMicro;
    shape.qk_norm = false;
    shape.qkv_bias = biases;
    ModelWeights weights = random_model(shape, {.max_positions = 64});
    weights.config.rope.scaling = RopeScaling::kLinear;
    weights.config.rope.factor = 2.5;
    const ModelWeights shared = share_weights(weights);
    const ModelWeights read = load_folder(shared.folder, "random");
    check_same(read, weights);
    CHECK(read.config.rope.same_angles(weights.config.rope));
    CHECK(read.model_type == (biases ? "qwen2" : "llama"));
  }
}

TEST_CASE("a committed model keeps its folder, an edited or cut copy gets a new one") {
  const OwnTmpdir tmpdir;
  const ModelWeights tiny = load_model(resolve_model("tiny"));
  CHECK(tiny.folder == fs::absolute(data_dir() / "tiny"));
  CHECK(share_weights(tiny).folder == tiny.folder);
  CHECK(tmpdir.empty());

  WeightEdit edit(tiny);
  edit.each_value(edit.weights().final_norm, [](float x) { return 2 * x; });
  const ModelWeights edited = share_weights(edit.weights());
  check_same(edited, edit.weights());
  CHECK(edited.folder.parent_path() == tmpdir.path());

  ModelWeights cut = tiny;
  cut.config.shape.layers = 1;
  cut.layers.resize(1);
  const ModelWeights shared_cut = share_weights(cut);
  check_same(shared_cut, cut);
  CHECK(shared_cut.folder.parent_path() == tmpdir.path());

  ModelWeights in_memory = tiny;
  in_memory.folder.clear();
  check_same(share_weights(in_memory), tiny);
}

TEST_CASE("synthetic weights made in shared memory are the ones made on the heap") {
  const OwnTmpdir tmpdir;
  ShapeRow cut = kShapeTable[0];
  cut.shape.layers = 1;
  const ModelWeights shared = make_shared_synthetic(cut, "none", 2);
  check_same(shared, make_synthetic("none", 2, 1));
  CHECK(shared.folder.parent_path() == tmpdir.path());
  cut.shape.layers = 0;
  CHECK_THROWS_AS(make_shared_synthetic(cut, "none", 1), Error);

  for (const ShapeRow& row : testing::kSmallAnalytic) {
    const ModelWeights other = make_shared_synthetic(row, "short");
    check_same(other, make_synthetic(row, "short"));
    const ModelWeights read = load_folder(other.folder, "read");
    CHECK(read.config.rope.same_angles(other.config.rope));
    CHECK(read.config.rms_norm_eps == row.rms_norm_eps);
    CHECK(read.model_type == other.model_type);
    CHECK(read.sha256 == other.sha256);
  }

  LoadOptions options;
  options.share = true;
  const ModelWeights loaded = load_model(model_at_depth(resolve_model("synthetic"), 11), options);
  CHECK(loaded.name == "synthetic:short");
  CHECK(loaded.folder.parent_path() == tmpdir.path());
}

TEST_CASE("the published file is a safetensors file with an aligned data section") {
  const OwnTmpdir tmpdir;
  const ModelWeights shared = share_weights(random_micro(false));
  const std::string bytes = text_of(shared.folder / "model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  CHECK((8 + header_bytes) % 256 == 0);
  const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  CHECK(header.at("__metadata__").at("format") == "pt");
  CHECK(header.size() == 1 + tensor_table(shared.config).size());
  uint64_t end = 0;
  for (const NamedTensor& t : tensor_table(shared.config)) {
    CHECK(header.at(t.name).at("data_offsets").at(0) == end);
    end = header.at(t.name).at("data_offsets").at(1);
  }
  CHECK(8 + header_bytes + end == bytes.size());
}

TEST_CASE("the text of a config reads back to the same config, doubles exactly") {
  for (const double theta : {1e6, 10000.0, 1.0 / 3, 123456.789012345678, 1e12}) {
    for (const bool tied : {true, false}) {
      const ModelConfig config = {.shape = kTiny,
                                  .rope = {.theta = theta, .theta_key = "built in"},
                                  .rms_norm_eps = theta == 1e6 ? 1e-6 : 0.1 / 3,
                                  .tie_word_embeddings = tied,
                                  .max_positions = 4097};
      const ModelConfig read = parse_config(config_text(config), "config.json");
      CHECK(read.shape == config.shape);
      CHECK(read.rope.same_angles(config.rope));
      CHECK(read.rope.theta_key == "rope_parameters.rope_theta");
      CHECK(read.rms_norm_eps == config.rms_norm_eps);
      CHECK(read.tie_word_embeddings == tied);
      CHECK(read.max_positions == 4097);
    }
  }
}

// transformers fills a key that is missing from its own defaults, so no key of the committed config
// may be missing but special tokens, initialisation and the version.
TEST_CASE("the text of a config says what the committed config says") {
  const fs::path committed = data_dir() / "tiny" / "config.json";
  nlohmann::json wanted = nlohmann::json::parse(text_of(committed));
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "initializer_range",
                          "transformers_version"})
    wanted.erase(key);
  CHECK(nlohmann::json::parse(config_text(read_config(committed))) == wanted);
}

TEST_CASE("nobody can change a published file") {
  const OwnTmpdir tmpdir;
  const ModelWeights shared = share_weights(random_micro(true));
  for (const char* name : {"model.safetensors", "config.json"}) {
    const fs::path file = shared.folder / name;
    const std::string before = text_of(file);
    REQUIRE_FALSE(before.empty());
    struct stat info {};
    REQUIRE(stat(file.c_str(), &info) == 0);
    CHECK((info.st_mode & 07777) == S_IRUSR);
    const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);  // works for root alone
    if (descriptor >= 0) {
      CHECK(pwrite(descriptor, "x", 1, 0) == -1);
      CHECK(ftruncate(descriptor, 1) == -1);
      CHECK(ftruncate(descriptor, 1 << 20) == -1);
      CHECK(mmap(nullptr, 1, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0) == MAP_FAILED);
      close(descriptor);
    } else {
      CHECK(errno == EACCES);
    }
    CHECK(text_of(file) == before);
  }
}

TEST_CASE("sealed memory can be written until it is sealed") {
  SealedMemory memory("test", 4096);
  memory.data()[17] = std::byte{42};
  CHECK(pwrite(memory.descriptor(), "abc", 3, 0) == 3);
  memory.seal();
  CHECK(memory.data() == nullptr);
  CHECK(pwrite(memory.descriptor(), "x", 1, 0) == -1);
  char held[18] = {};
  CHECK(pread(memory.descriptor(), held, 18, 0) == 18);
  CHECK((std::string(held) == "abc" && held[17] == 42));
}

TEST_CASE("another process loads the weights and leaves the folder alone") {
  const OwnTmpdir tmpdir;
  ModelWeights shared = share_weights(random_micro(true));
  const std::string stamp = snapshot_stamp(shared.folder);
  const int code = in_child([&] {
    const ModelWeights loaded = load_shared(shared.folder, "other", "deep", "hash", stamp);
    const bool same = hash_weights(loaded) == shared.sha256 && loaded.name == "other" &&
                      loaded.lagset == "deep" && loaded.sha256 == "hash" &&
                      loaded.folder == shared.folder;
    shared = {};  // the child's last copy: the folder is the parent's all the same
    // A folder of the child's own is there until the child removes it.
    ModelWeights own = share_weights(random_micro(false));
    const fs::path folder = own.folder;
    const bool there = fs::exists(folder / "config.json") && folder != loaded.folder;
    own = {};
    return same && there && !fs::exists(folder) ? 0 : 1;
  });
  CHECK(code == 0);
  CHECK(fs::exists(shared.folder / "model.safetensors"));
}

TEST_CASE("the folder goes with the last copy") {
  const OwnTmpdir tmpdir;
  ModelWeights first = share_weights(random_micro(true));
  ModelWeights second = first;
  struct stat info {};
  REQUIRE(stat(first.folder.c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == S_IRWXU);
  first = {};
  CHECK(fs::exists(second.folder));
  second = {};
  CHECK(tmpdir.empty());

  const ModelWeights third = share_weights(random_micro(true)),
                     fourth = share_weights(random_micro(false));
  CHECK(third.folder != fourth.folder);
}

TEST_CASE("only folders of dead processes are removed, and only links in them") {
  const OwnTmpdir tmpdir;
  const std::string dead = std::to_string(dead_pid()), alive = std::to_string(getppid());
  const fs::path stale = make_folder(tmpdir.path(), "mkbench-" + dead + "-0");
  const fs::path living = make_folder(tmpdir.path(), "mkbench-" + alive + "-0");
  const fs::path locked = make_folder(tmpdir.path(), "mkbench-" + dead + "-1");
  const int lock = open(locked.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  REQUIRE(flock(lock, LOCK_EX) == 0);
  const fs::path holds_file = make_folder(tmpdir.path(), "mkbench-" + dead + "-2");
  write_file(holds_file / "notes", "mine");
  std::vector<fs::path> others;
  for (const std::string& name :
       {"mkbench-" + dead, "mkbench-" + dead + "-", "mkbench-" + dead + "-x",
        std::string("mkbench--1-0"), "mkbench-" + dead + "-0x", "mkbench-test-" + dead,
        "other-" + dead + "-0"})
    others.push_back(make_folder(tmpdir.path(), name));

  remove_stale_snapshots();
  CHECK_FALSE(fs::exists(stale));
  CHECK(fs::is_symlink(living / "model.safetensors"));
  CHECK(fs::is_symlink(locked / "model.safetensors"));
  CHECK(text_of(holds_file / "notes") == "mine");
  for (const fs::path& other : others) {
    INFO(other);
    CHECK(fs::is_symlink(other / "model.safetensors"));
  }
  close(lock);
  remove_stale_snapshots();
  CHECK_FALSE(fs::exists(locked));
}

TEST_CASE("a folder for temporary files that cannot be used is named") {
  const OwnTmpdir tmpdir;
  const std::string missing = (tmpdir.path() / "missing").string();
  const ScopedVariable variable("TMPDIR", missing.c_str());
  const std::string message =
      error_line(ErrorKind::kEnvUnfit, [] { share_weights(random_micro(true)); });
  CHECK_THAT(message, ContainsText(missing) && ContainsText("No such file or directory"));
}

TEST_CASE("a stamp tells a changed file, and changed weights are refused") {
  const TemporaryFolder folder;
  write_micro_model(folder.path());
  const std::string stamp = snapshot_stamp(folder.path());
  CHECK_THAT(stamp, ContainsText("'config.json' ") && ContainsText("'model.safetensors' "));
  CHECK(stamp.find('\n') == std::string::npos);
  write_file(folder.path() / "README.md", "no weights");
  CHECK(snapshot_stamp(folder.path()) == stamp);
  const std::string hash = load_folder(folder.path(), "micro").sha256;
  CHECK(hash_weights(load_shared(folder.path(), "micro", "", hash, stamp)) == hash);

  for (const char* name : {"config.json", "model.safetensors"}) {
    const fs::path file = folder.path() / name;
    const auto time = fs::last_write_time(file);
    fs::last_write_time(file, time + std::chrono::nanoseconds(1));
    const std::string message = error_line(
        ErrorKind::kIntegrity, [&] { load_shared(folder.path(), "micro", "", hash, stamp); });
    CHECK_THAT(message, ContainsText(folder.path().string()) &&
                            ContainsText("found " + snapshot_stamp(folder.path())) &&
                            ContainsText("wanted " + stamp));
    fs::last_write_time(file, time);
    CHECK(snapshot_stamp(folder.path()) == stamp);
  }
  write_file(folder.path() / "extra.safetensors", "");
  CHECK(snapshot_stamp(folder.path()) != stamp);
}

TEST_CASE("a folder without weights, or with a dangling link, has no stamp") {
  const TemporaryFolder folder;
  for (const fs::path& none : {folder.path() / "missing", folder.path()})
    CHECK(error_line([&] { snapshot_stamp(none); }) != "accepted");
  fs::create_symlink("/proc/1/fd/900", folder.path() / "model.safetensors");
  const std::string message = error_line([&] { snapshot_stamp(folder.path()); });
  CHECK_THAT(message, ContainsText("model.safetensors: "));
}

TEST_CASE("free memory is the smallest of the machine's and every cgroup's") {
  const TemporaryFolder root;
  const auto write = [&](const char* name, const std::string& text) {
    fs::create_directories((root.path() / name).parent_path());
    write_file(root.path() / name, text);
  };
  write("proc/meminfo", "MemTotal: 900 kB\nMemAvailable:    500 kB\n");
  CHECK(free_memory(root.path()).bytes == 500 * 1024);
  CHECK(free_memory(root.path()).limit == "MemAvailable");
  CHECK(free_memory(root.path()).total == 900 * 1024);

  // Version 2: "max" sets no limit; the parent's limit holds; page cache counts as free.
  write("proc/self/cgroup", "0::/a/b\n");
  write("sys/fs/cgroup/a/b/memory.max", "max\n");
  write("sys/fs/cgroup/a/b/memory.current", "100\n");
  CHECK(free_memory(root.path()).bytes == 500 * 1024);
  write("sys/fs/cgroup/a/memory.max", "10000\n");
  write("sys/fs/cgroup/a/memory.current", "9000\n");
  CHECK(free_memory(root.path()).bytes == 1000);
  write("sys/fs/cgroup/a/memory.stat", "anon 1\nactive_file 300\ninactive_file 20\n");
  CHECK(free_memory(root.path()).bytes == 1320);
  CHECK_THAT(free_memory(root.path()).limit, ContainsText("cgroup/a/memory.max"));
  CHECK(free_memory(root.path()).total == 10000);

  // Version 1, and a container that sees its own group as the root of the mount.
  write("proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/not/mounted\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "8000\n");
  write("sys/fs/cgroup/memory/memory.usage_in_bytes", "9000\n");
  CHECK(free_memory(root.path()).bytes == 0);
  write("sys/fs/cgroup/memory/memory.stat", "total_active_file 1500\ntotal_inactive_file 500\n");
  CHECK(free_memory(root.path()).bytes == 1000);

  CHECK_NOTHROW(check_free_memory(1000, "a test", root.path()));
  const std::string message = error_line(
      ErrorKind::kEnvUnfit, [&] { check_free_memory(7'000'001, "a test", root.path()); });
  CHECK_THAT(message, ContainsText("a test needs 8 MB of memory, 0 MB are free"));
}

TEST_CASE("weights that do not fit into memory are refused before memory is taken") {
  const OwnTmpdir tmpdir;
  ModelWeights huge = random_micro(true);
  huge.config.shape.vocab = 2'000'000'000;  // 16 TB of embedding with the width below
  huge.config.shape.hidden = 4000;
  for (const NamedTensor& t : tensor_table(huge.config))
    tensor_of(huge, t) = {huge.embed_tokens.data, t.rows, t.cols};
  const std::string message = error_line(ErrorKind::kEnvUnfit, [&] { share_weights(huge); });
  CHECK_THAT(message, ContainsText("needs 16000") && ContainsText("are free"));
  CHECK(tmpdir.empty());
}

}  // namespace mkbench::testing
