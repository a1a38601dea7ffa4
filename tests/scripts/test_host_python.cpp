// scripts/host.py, the host of engines in Python, behind the proxy that every engine has.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "harness/hosts/host_process.h"
#include "harness/hosts/hosts.h"
#include "harness/wire/build_id.h"
#include "tests/scripts/python_engine.h"
#include "tests/support/catch2.h"

namespace mkbench {
namespace {

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Indented for the body of a class.
std::string decode_that(const std::string& does) {
  return "    def decode(self, n, forced, logits):\n        " + does +
         "\n        return super().decode(n, forced, logits)";
}

TEST_CASE("an engine in Python answers every call") {
  PythonEngine python;
  Engine& engine = python.open();
  const EngineCapabilities can = engine.capabilities();
  CHECK(can.name == "counting");
  CHECK(can.device == "cpu");
  CHECK(can.max_context == 40);
  CHECK((can.logits && can.forced && can.snapshots && can.counted && !can.one_launch));
  CHECK(python.proxy().settings() == "integers=1");

  engine.reset();
  engine.poison();
  std::vector<int32_t> ids = {3, 1, 4};
  engine.prefill(ids);
  CHECK(engine.position() == 2);
  CHECK(python.proxy().last_interval().ms() > 0);
  const Snapshot snapshot = engine.save();
  CHECK(snapshot.position == 2);
  CHECK(snapshot.pending == 4);
  CHECK(snapshot.kv_checksum == 1);

  std::vector<float> logits(2 * 6, -1);
  const std::vector<int32_t> made = engine.decode(2, nullptr, logits.data());
  const int32_t first = mix(ids);
  ids.push_back(first);
  CHECK(made == std::vector<int32_t>{first, mix(ids)});
  for (int32_t id = 0; id < 6; ++id) {
    CHECK(logits[static_cast<size_t>(id)] ==
          (id == first ? 10.0F : 0.01F * static_cast<float>(id)));
  }
  CHECK(logits[6 + static_cast<size_t>(made[1])] == 10);
  CHECK(engine.position() == 4);
  CHECK(engine.launch_count() == 1);
  CHECK(engine.last_times().host_ms == 0.5);
  CHECK(engine.last_times().per_token_ms == std::vector<double>{0.25, 0.25});

  engine.restore(snapshot);
  CHECK(engine.position() == 2);
  const int32_t forced[] = {0, 5, 2};
  const std::vector<int32_t> led = engine.decode(3, forced);
  CHECK(led == std::vector<int32_t>{first, mix({3, 1, 4, 5}), mix({3, 1, 4, 5, 2})});
  engine.restore(snapshot);
  CHECK(engine.step(5) == mix({3, 1, 5}));

  CHECK(engine.hidden(1) == std::vector<float>{1, 3, 0});
  engine.audit();
  CHECK(engine.hidden(1) == std::vector<float>{1, 3, 1});
  CHECK(engine.kv_row(7, 1) == std::vector<float>{7, 1});
  CHECK_FALSE(engine.kv_row(7, 3).has_value());
  CHECK(engine.skip_to(9));
  CHECK(engine.position() == 9);
  CHECK_THAT(python.proxy().ablate(Ablation::kNoWaits), ContainsText("no ablations"));

  CHECK(python.proxy().link().facts().program == "host.py");
  CHECK(python.proxy().link().facts().crossing_us > 0);
  const ModelShape& shape = python.weights.config.shape;
  const int64_t kv_row = int64_t{2} * shape.kv_heads * shape.head_dim;
  const int64_t layer =
      shape.hidden * (int64_t{2} * shape.heads * shape.head_dim + kv_row + 3 * shape.intermediate);
  const int64_t tables = int64_t{shape.vocab} * shape.hidden;
  CHECK(python.weights.config.tie_word_embeddings);
  const int64_t rows = int64_t{2} * shape.layers * kv_row * 40;
  CHECK(python.hosts.bytes(python.request, python.weights.config) == rows);  // weights are mapped
  EngineRequest on_card = python.request;
  on_card.cuda = true;
  CHECK(python.hosts.bytes(on_card, python.weights.config) ==
        rows + 2 * (tables + shape.layers * layer));
  python.hosts.take_turn(engine, FlushCall{false, 0});
  python.hosts.end_turn(engine, FlushCall{false, 0});
  CHECK_THAT(error_of([&] {
               python.hosts.take_turn(engine, FlushCall{true, 0});
             }).what(),
             ContainsText("defines no flush_l2"));
  CHECK_THAT(error_of([&] {
               ask<CardFacts>(python.proxy().link(), CardCall{}, {5, 5});
             }).what(),
             ContainsText("host.py has no call 'card'"));
  const PlainCall nobody{99, Verb::kReset};
  CHECK_THAT(error_of([&] {
               ask<Answered>(python.proxy().link(), nobody, {5, 5});
             }).what(),
             ContainsText("no engine has the number 99"));
}

TEST_CASE("launches of a Python engine are what the recorder's library tells") {
  PythonEngine python(
      "    def decode(self, n, forced, logits):\n"
      "        if n == 9:\n            raise RuntimeError('nine')\n"
      "        return super().decode(n, forced, logits)");
  Engine& without = python.open();
  without.prefill(std::vector<int32_t>{3, 1, 4});
  CHECK_THAT(python.hosts.trace(without, 2).problem, ContainsText("no recorder of launches: "));
  CHECK(without.position() == 2);

  Hosts hosts(
      [](HostKind, const std::string& holds) -> std::shared_ptr<HostLink> {
        HostCommand command = host_command(HostKind::kPython, holds, MKBENCH_PYTHON);
        command.argv.back() = MKBENCH_FAKE_RECORDER;
        return std::make_shared<HostProcess>(command);
      },
      20);
  const std::unique_ptr<Engine> engine = hosts.open(python.request, python.weights);
  engine->prefill(std::vector<int32_t>{3, 1, 4});
  const LaunchTrace trace = hosts.trace(*engine, 2);
  CHECK(trace.problem.empty());
  CHECK((trace.tokens == 2 && trace.kernels == 5 && trace.copies == 2 && trace.wall_ms == 1.5));
  CHECK(engine->position() == 4);
  CHECK_THAT(hosts.trace(*engine, 9).problem, ContainsText("RuntimeError: nine"));
}

TEST_CASE("two engines of one Python host are apart") {
  PythonEngine python;
  Engine& one = python.open();
  const std::unique_ptr<Engine> other = python.hosts.open(python.request, python.weights);
  CHECK(&python.proxy().link() == &dynamic_cast<HostEngine&>(*other).link());
  one.prefill(std::vector<int32_t>{1, 2, 3});
  other->prefill(std::vector<int32_t>{5, 4});
  CHECK(one.decode(1) == std::vector<int32_t>{mix({1, 2, 3})});
  CHECK(other->decode(1) == std::vector<int32_t>{mix({5, 4})});
}

TEST_CASE("without launch_count() a Python engine's launches are not counted") {
  PythonEngine python(
      "    def __getattribute__(self, name):\n"
      "        if name == 'launch_count':\n            raise AttributeError(name)\n"
      "        return super().__getattribute__(name)");
  CHECK_FALSE(python.open().capabilities().counted);
  CHECK(python.engine->launch_count() == 0);
  CHECK_FALSE(fs::exists(python.folder.path() / "__pycache__"));  // beside the user's file
}

TEST_CASE("an exception in a Python engine fails its call") {
  const auto raised = [](const std::string& does) {
    PythonEngine python(decode_that(does));
    Engine& engine = python.open();
    engine.prefill(std::vector<int32_t>{1, 2});
    const Error error = error_of([&] { engine.decode(1); });
    engine.reset();  // the host is still there
    CHECK(engine.position() == 0);
    const Failed& told = python.hosts.tracebacks().at(python.request.name);
    CHECK(told.message == error.what());
    CHECK(told.traceback.starts_with("Traceback (most recent call last):\n"));
    CHECK_THAT(told.traceback, ContainsText("in take_decode\n"));
    return error;
  };
  const Error plain = raised("raise RuntimeError('two\\nlines')");
  CHECK(plain.kind() == ErrorKind::kRuntime);
  CHECK(std::string(plain.what()) == "RuntimeError: two lines (altered.py, line 9)");
  CHECK_THAT(raised("sys.exit(3)").what(), ContainsText("SystemExit: 3 (altered.py, line 9)"));
  CHECK_THAT(raised("return ['no id']").what(), ContainsText("ValueError: "));
  for (const auto& [name, kind] : {std::pair{"bad_input", ErrorKind::kBadInput},
                                   {"env_unfit", ErrorKind::kEnvUnfit},
                                   {"unsupported_device", ErrorKind::kUnsupportedDevice},
                                   {"integrity", ErrorKind::kIntegrity},
                                   {"not_built", ErrorKind::kNotBuilt},
                                   {"no such kind", ErrorKind::kRuntime}}) {
    INFO(name);
    CHECK(raised(fmt::format("raise type('Own', (Exception,), {{'mkbench_kind': '{}'}})", name))
              .kind() == kind);
  }
  CHECK(raised("raise MemoryError").kind() == ErrorKind::kEnvUnfit);
  CHECK(raised("raise type('OutOfMemoryError', (RuntimeError,), {})").kind() ==
        ErrorKind::kEnvUnfit);
  const Error missing = raised("import nothing_like_this");
  CHECK(missing.kind() == ErrorKind::kBadInput);
  CHECK_THAT(missing.what(), ContainsText("No module named 'nothing_like_this'"));
  CHECK_THAT(missing.what(),
             ContainsText("; the Python is " MKBENCH_PYTHON ", --python names another"));
  const Error optional =
      raised("raise type('Own', (ImportError,), {'mkbench_kind': 'not_built'})('found 4')");
  CHECK(optional.kind() == ErrorKind::kNotBuilt);
  CHECK_THAT(optional.what(), ContainsText("; the Python is " MKBENCH_PYTHON));
  CHECK_THAT(raised("raise ValueError('x' * 400)").what(),
             ContainsText(std::string(288, 'x') + "... (altered.py, line 9)"));
  // The engine's own line comes before those of the libraries that it calls.
  CHECK_THAT(raised("__import__('json').loads('{')").what(), ContainsText("(altered.py, line 9)"));
}

TEST_CASE("bad ids and a bad n are refused before any work") {
  PythonEngine python;
  Engine& engine = python.open();
  CHECK(error_of([&] {
          engine.prefill(std::vector<int32_t>{1, 6});
        }).kind() == ErrorKind::kBadInput);
  CHECK(engine.position() == 0);
  CHECK(error_of([&] { engine.decode(0); }).kind() == ErrorKind::kBadInput);
  CHECK(engine.launch_count() == 0);
}

TEST_CASE("more ids than were asked for, and fewer, are told") {
  for (const int count : {1, 3}) {
    PythonEngine python(decode_that(fmt::format("return [4] * {}", count)));
    std::vector<int32_t> wanted(static_cast<size_t>(count), 4);
    if (count == 3) wanted[2] = -1;  // what was not asked for is not sent
    CHECK(python.open().decode(2) == wanted);
  }
}

TEST_CASE("a Python engine that answers what the wire has no word for fails its call") {
  const auto at_open = [](const std::string& body) {
    PythonEngine python(body);
    return std::string(error_of([&] { python.open(); }).what());
  };
  CHECK_THAT(
      at_open("    def capabilities(self):\n        return {'speed': 1}"),
      ContainsText("opened.capabilities: found speed, wanted some of context_limit, counted, "));
  CHECK_THAT(at_open("    def capabilities(self):\n        return {'logits': 1}"),
             ContainsText("opened.capabilities.logits: found 1, wanted bool"));
  PythonEngine python("    def last_times(self):\n        return {'host_ms': math.nan}");
  CHECK_THAT(error_of([&] { python.open().decode(1); }).what(), ContainsText("ValueError: "));
  REQUIRE(python.engine);
  CHECK(python.engine->launch_count() == 0);  // as before the call that failed
}

TEST_CASE("a file that is no engine is bad input") {
  const auto refused = [](const std::string& text) {
    PythonEngine python;
    python.write(text);
    if (text.empty()) fs::remove(python.request.name);
    const Error error = error_of([&] { python.open(); });
    CHECK(error.kind() == ErrorKind::kBadInput);
    return std::string(error.what());
  };
  CHECK_THAT(refused(""), ContainsText("altered.py: no such file"));
  CHECK_THAT(refused("import nothing_like_this\n"),
             ContainsText(
                 "ModuleNotFoundError: No module named 'nothing_like_this' (altered.py, line 1)"));
  CHECK_THAT(refused("class Decoder(:\n"),
             ContainsText("SyntaxError: invalid syntax (altered.py, line 1)"));
  CHECK_THAT(refused("make = 1\n"), ContainsText("altered.py: defines no class Decoder"));
  PythonEngine faulty;
  faulty.request.fault = PlantedFault::kNanWeight;
  CHECK_THAT(error_of([&] { faulty.open(); }).what(),
             ContainsText("a fault cannot be planted in it"));
}

TEST_CASE("weights that have changed since they were loaded are not opened") {
  PythonEngine python;
  python.open();
  const fs::path file = python.folder.path() / "model/model.safetensors";
  // The proxy takes the stamp itself, so the call is sent by hand.
  const ModelWeights& w = python.weights;
  const Error error = error_of([&] {
    ask<Opened>(python.proxy().link(),
                OpenCall{python.request, {w.folder, "micro", "", w.sha256, "'config.json' 1 1"}},
                {5, 5});
  });
  CHECK(error.kind() == ErrorKind::kIntegrity);
  CHECK_THAT(error.what(), ContainsText("the weights have changed since mkbench loaded them: found "
                                        "'config.json' "));
  CHECK_THAT(error.what(),
             ContainsText(fmt::format("'model.safetensors' {} ", fs::file_size(file))));
}

TEST_CASE("the interpreter's lock does not make a Python engine hang before its limit") {
  // PyDLL keeps the lock: the second thread cannot answer.
  const std::string holds = decode_that("ctypes.PyDLL(None).usleep(2000000)");
  PythonEngine patient(holds, 10);
  patient.open().prefill(std::vector<int32_t>{1, 2});
  CHECK(patient.engine->decode(1).size() == 1);
  CHECK(patient.proxy().last_interval().ms() > 1900);
  PythonEngine hasty(holds, 1);
  hasty.open().prefill(std::vector<int32_t>{1, 2});
  CHECK(error_of([&] { hasty.engine->decode(1); }).kind() == ErrorKind::kHang);
}

TEST_CASE("the second thread of a Python host tells where the engine is") {
  PythonEngine python(decode_that("self.ids += [0] * 5; time.sleep(0.4)"));
  python.open().prefill(std::vector<int32_t>{1, 2});
  python.engine->decode(1);
  const Progress progress = python.engine->progress();
  CHECK(progress.position == 6);
  CHECK(progress.layer == 3);
  CHECK(progress.phase == "counting");
  // What moves is not hung, and has its limit all the same.
  PythonEngine endless(decode_that("while True: self.ids.append(0); time.sleep(0.01)"), 2);
  endless.open().prefill(std::vector<int32_t>{1, 2});
  const Error error = error_of([&] { endless.engine->decode(1); });
  CHECK(error.kind() == ErrorKind::kTimeout);
  CHECK_THAT(error.what(), ContainsText("phase counting"));
}

TEST_CASE("a Python host that dies costs its call, and the next engine has a new one") {
  PythonEngine python(decode_that("os.kill(os.getpid(), 11)"));
  python.open().prefill(std::vector<int32_t>{1, 2});
  const Error error = error_of([&] { python.engine->decode(1); });
  CHECK(error.kind() == ErrorKind::kRuntime);
  CHECK_THAT(error.what(), ContainsText("died by signal 11"));
  CHECK_THAT(error_of([&] { python.engine->reset(); }).what(), ContainsText("died by signal 11"));
  CHECK(python.open().position() == 0);
  PythonEngine leaves(decode_that("os._exit(5)"));
  leaves.open();
  CHECK_THAT(error_of([&] { leaves.engine->decode(1); }).what(),
             ContainsText("left with exit status 5"));
}

// Sends stdout and stderr of this process to files while it lives.
class Outputs {
 public:
  explicit Outputs(const fs::path& folder) : folder_(folder) {
    for (const int fd : {1, 2}) {
      saved_[fd] = dup(fd);
      const int file = open(name(fd).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
      dup2(file, fd);
      close(file);
    }
  }
  ~Outputs() {
    for (const int fd : {1, 2}) {
      dup2(saved_[fd], fd);
      close(saved_[fd]);
    }
  }
  fs::path name(int fd) const { return folder_ / ("output" + std::to_string(fd)); }

 private:
  const fs::path folder_;
  int saved_[3] = {};
};

TEST_CASE("what a Python engine prints reaches neither stdout nor the wire") {
  PythonEngine python(decode_that("print('a word'); os.write(1, b'bytes\\n')"));
  std::vector<int32_t> ids;
  std::string out, err;
  {
    const Outputs outputs(python.folder.path());
    python.open().prefill(std::vector<int32_t>{1, 2});
    ids = python.engine->decode(1);
    out = text_of(outputs.name(1));
    err = text_of(outputs.name(2));
  }
  CHECK(ids == std::vector<int32_t>{mix({1, 2})});
  CHECK(out.empty());
  CHECK(err == "a word\nbytes\n");
}

// Lines of a class whose open has run `does`.
std::string at_open(const std::string& does) {
  return "    def __init__(self, *rest):\n        super().__init__(*rest)\n" + does;
}

TEST_CASE("an engine's own function runs in a process that multiprocessing spawns") {
  for (const char* name : {"altered.py", "a-b.1.py"}) {
    INFO(name);
    PythonEngine python;
    python.request.name = python.folder.path() / name;
    testing::write_file(
        python.request.name,
        "import multiprocessing, sys\nsys.path.append('" + (kRoot / "tests/engines").string() +
            "')\nimport counting\n\ndef work(box):\n    box.put(__file__)\n\n"
            "def make_engine(*rest):\n    spawn = multiprocessing.get_context('spawn')\n"
            "    box = spawn.SimpleQueue()\n    child = spawn.Process(target=work, args=(box,))\n"
            "    child.start()\n    child.join()\n    assert child.exitcode == 0, child.exitcode\n"
            "    assert box.get() == __file__\n    return counting.Counting(*rest)\n");
    CHECK_NOTHROW(python.open());
  }
}

TEST_CASE("a Python host has what a Python that is started by hand has") {
  // Programs beside the interpreter are found; at the end functions of atexit run, and files of the
  // engine's are written out.
  PythonEngine python(
      at_open("        import atexit, getpass, shutil\n"
              "        assert shutil.which(os.path.basename(sys.executable)) == sys.executable\n"
              "        getpass.getuser()\n"
              "        self.file = open(__file__ + '.buffered', 'w')\n"
              "        self.file.write('whole')\n"
              "        atexit.register(lambda: open(__file__ + '.atexit', 'w').close())\n"));
  setenv("PATH", "/nonexistent", 1);
  python.open();
  const std::string file = python.request.name;
  python.engine.reset();
  python.hosts.end_process(file);
  CHECK(fs::exists(file + ".atexit"));
  CHECK(fs::file_size(file + ".buffered") == 5);
}

TEST_CASE("a Python host ends when its parent closes the channel") {
  // A host that does not leave by itself is killed after five seconds; a busy machine may keep one
  // that leaves for so long, but not all of five.
  bool left = false;
  for (int tries = 0; tries < 5 && !left; ++tries) {
    std::shared_ptr<HostLink> link = start_processes()(HostKind::kPython, "x.py");
    const pid_t pid = link->facts().pid;
    REQUIRE(kill(pid, 0) == 0);
    const auto begin = std::chrono::steady_clock::now();
    link.reset();
    CHECK(kill(pid, 0) != 0);
    left = std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(4900);
  }
  CHECK(left);
}

TEST_CASE("a Python host is not started by hand") {
  const std::string command =
      std::string(MKBENCH_PYTHON) + " " + (kRoot / "scripts/host.py").string() + " 2>&1 3>&- 6>&-";
  FILE* const pipe = popen(command.c_str(), "r");
  char text[200] = {};
  const size_t bytes = fread(text, 1, sizeof(text) - 1, pipe);
  const int status = pclose(pipe);
  CHECK(std::string(text, bytes) == "host.py: is started by mkbench, not by hand\n");
  CHECK(WEXITSTATUS(status) == 2);
}

TEST_CASE("a wrapper that closes the descriptors it was given is named as the fault") {
  const testing::TemporaryFolder folder;
  const fs::path wrapper = folder.path() / "python";
  testing::write_file(wrapper, "#!/bin/bash\nexec " MKBENCH_PYTHON " \"$@\" 3>&- 4>&- 5>&- 6>&-\n");
  fs::permissions(wrapper, fs::perms::owner_all);
  const auto link = start_processes(wrapper)(HostKind::kPython, "x.py");
  const Error error = error_of([&] { ask<Answered>(*link, FinishCall{}, {20, 20}); });
  CHECK(error.kind() == ErrorKind::kEnvUnfit);
  CHECK_THAT(error.what(), ContainsText(wrapper.string() +
                                        " cannot start: this Python closes the "
                                        "descriptors it was given (3, 4, 5, 6): give --python the "
                                        "interpreter itself (" MKBENCH_PYTHON ")"));
}

}  // namespace
}  // namespace mkbench
