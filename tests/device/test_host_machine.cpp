// What the files of a machine tell of cores, memory, WSL and containers.
#include <string>
#include <vector>

#include "harness/device/cpu_pressure.h"
#include "harness/device/fitness.h"
#include "harness/device/host_machine.h"
#include "references/base/parallel.h"
#include "tests/support/catch2.h"
#include "tests/support/micro_model.h"

namespace mkbench {
namespace {

// A machine of files; it has the cores and disks of this one.
struct FakeRoot {
  testing::TemporaryFolder folder;
  FakeRoot() { write("proc/version", "Linux version 6.8.0-45-generic (buildd@lcy02)\n"); }
  void write(const char* name, const std::string& text) const {
    std::filesystem::create_directories((folder.path() / name).parent_path());
    testing::write_file(folder.path() / name, text);
  }
  HostMachine read() const { return read_host_machine(folder.path(), folder.path()); }
};

TEST_CASE("cores are those of the affinity and of every group's quota") {
  const FakeRoot root;
  const double all = root.read().cores;
  CHECK(all >= 1);
  root.write("proc/self/cgroup", "0::/pod/box\n");
  root.write("sys/fs/cgroup/pod/box/cpu.max", "max 100000\n");
  CHECK(root.read().cores == all);
  root.write("sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  CHECK(root.read().cores == 0.5);
  root.write("proc/self/cgroup", "4:cpu,cpuacct:/elsewhere\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(root.read().cores == all);
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "25000\n");
  CHECK(root.read().cores == 0.25);
  CHECK(thread_count(0, root.folder.path()) == 1);
  CHECK(thread_count(3, root.folder.path()) == 3);
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "199999\n");
  CHECK(thread_count(0, root.folder.path()) == 1);
}

TEST_CASE("throttled periods of every group, and stolen time of all CPUs, are counted") {
  const FakeRoot root;
  CHECK(read_cpu(root.folder.path()).throttled == 0);
  root.write("proc/self/cgroup", "0::/pod/box\n");
  root.write("sys/fs/cgroup/pod/box/cpu.stat", "usage_usec 9\nnr_periods 513\nnr_throttled 2\n");
  root.write("sys/fs/cgroup/pod/cpu.stat", "nr_periods 513\nnr_throttled 500\nthrottled_usec 7\n");
  root.write("proc/stat", "cpu  1 2 3 4 5 6 7 80 900 1000\ncpu0 1 1 1 1 1 1 1 1 1 1\n");
  const CpuReading reading = read_cpu(root.folder.path());
  CHECK(reading.throttled == 502);
  CHECK(reading.stolen == 80);
  CHECK(reading.ticks == 108);
}

TEST_CASE("a quota that stopped a timed call, and much stolen time, are told") {
  const auto told = [](int64_t throttled, int64_t stolen) {
    CpuPressure pressure;
    const CpuReading begin{.throttled = 7, .stolen = 10, .ticks = 1000};
    pressure.add(begin, {.throttled = 7, .stolen = 10, .ticks = 1500});
    pressure.add(begin, {.throttled = 7 + throttled, .stolen = 10 + stolen, .ticks = 1500});
    return pressure.doubts();
  };
  CHECK(told(0, 50).empty());
  REQUIRE(told(1, 50).size() == 1);
  CHECK_THAT(told(3, 50)[0], ContainsText("stopped processes in 1 of 2 timed calls"));
  REQUIRE(told(0, 60).size() == 1);
  CHECK_THAT(told(0, 60)[0], ContainsText("took 6 % of the CPU time in timed calls"));
  CHECK(CpuPressure().doubts().empty());
}

TEST_CASE("memory in all is the machine's or the container's") {
  const FakeRoot root;
  root.write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 600 kB\n");
  CHECK(root.read().memory_total == 1000 * 1024);
  CHECK(root.read().memory_free == 600 * 1024);
  root.write("proc/self/cgroup", "0::/\n");
  root.write("sys/fs/cgroup/memory.max", "4096\n");
  CHECK(root.read().memory_total == 4096);  // also where the group does not tell its use
}

TEST_CASE("load and governors are those of the whole machine") {
  const FakeRoot root;
  TimingConditions conditions = read_timing_conditions(root.folder.path());
  CHECK_FALSE(conditions.load);
  CHECK(conditions.governors.empty());
  CHECK(conditions.processors >= 1);
  root.write("proc/loadavg", "7.25 3.10 1.00 2/345 6789\n");
  root.write("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance\n");
  root.write("sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave\n");
  root.write("sys/devices/system/cpu/cpufreq/policy2/scaling_governor", "performance\n");
  conditions = read_timing_conditions(root.folder.path());
  CHECK(conditions.load == 7.25);
  CHECK(conditions.governors == std::vector<std::string>{"performance", "powersave"});
}

TEST_CASE("disks are real ones") {
  const FakeRoot root;
  const HostMachine machine = root.read();
  CHECK(machine.disk_folder == root.folder.path().string());
  CHECK(machine.disk_free > 0);
  CHECK(machine.disk_total >= machine.disk_free);
  CHECK(read_host_machine("/no/such/folder").disk_total == 0);
}

TEST_CASE("WSL is told by its kernel") {
  const FakeRoot root;
  CHECK(root.read().wsl.version == 0);
  root.write("proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x) #1 SMP\n");
  CHECK(root.read().wsl.version == 2);
  root.write("proc/version", "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)\n");
  CHECK(root.read().wsl.version == 1);
  // A kernel of one's own: its release is named by hand, the way to the card stays.
  root.write("proc/version", "Linux version 6.6.0-mine (me@home) #1 SMP\n");
  CHECK(root.read().wsl.version == 0);
  root.write("proc/sys/kernel/osrelease", "6.6.0-mine-microsoft-standard-WSL2\n");
  CHECK(root.read().wsl.version == 2);
  root.write("proc/sys/kernel/osrelease", "6.6.0-mine\n");
  root.write("dev/dxg", "");
  CHECK(root.read().wsl.version == 0);
  root.write("usr/lib/wsl/lib/libdxcore.so", "");
  CHECK(root.read().wsl.version == 2);
}

TEST_CASE("under WSL2 Windows' libcuda is told from one that was installed inside") {
  namespace fs = std::filesystem;
  const FakeRoot root;
  const fs::path top = fs::canonical(root.folder.path());
  root.write("usr/lib/wsl/lib/libcuda.so.1", "");
  CHECK(root.read().wsl.windows_libcuda.empty());  // not looked for where this is no WSL
  root.write("proc/version", "Linux version 5.15.153.1-microsoft-standard-WSL2 (root@x) #1 SMP\n");
  CHECK(root.read().wsl.windows_libcuda == (top / "usr/lib/wsl/lib/libcuda.so.1").string());
  CHECK(root.read().wsl.linux_libcuda.empty());
  // A container has a link to Windows' there.
  const fs::path folder = top / "usr/lib/x86_64-linux-gnu";
  fs::create_directories(folder);
  fs::create_symlink("../wsl/lib/libcuda.so.1", folder / "libcuda.so.1");
  CHECK(root.read().wsl.linux_libcuda.empty());
  fs::remove(folder / "libcuda.so.1");
  root.write("usr/lib/x86_64-linux-gnu/libcuda.so.550.54.14", "");
  fs::create_symlink("libcuda.so.550.54.14", folder / "libcuda.so.1");
  CHECK(root.read().wsl.linux_libcuda == (folder / "libcuda.so.550.54.14").string());
}

TEST_CASE("containers are told by their marks") {
  struct Row {
    const char* file;
    const char* text;
    const char* container;
  };
  const Row rows[] = {
      {".dockerenv", "", "docker"},
      {"run/.containerenv", "engine=\"podman-4.9\"\n", "podman"},
      {"var/run/secrets/kubernetes.io/serviceaccount/token", "x", "kubernetes"},
      {"proc/self/cgroup", "12:memory:/docker/0123abcd\n", "docker"},
      {"proc/self/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/cri-x.scope\n",
       "kubernetes"},
      {"proc/1/cgroup", "0::/machine.slice/libpod-77.scope\n", "podman"},
      {"proc/1/cgroup", "3:devices:/lxc/box\n", "lxc"},
      {"run/systemd/container", "lxc\n", "lxc"},
      {"proc/self/mountinfo", "9 8 8:1 /var/lib/docker/containers/a/hosts /etc/hosts rw\n",
       "docker"},
      {"proc/self/mountinfo", "9 8 8:1 /var/lib/kubelet/pods/a /etc/hosts rw\n", "kubernetes"},
      {"proc/self/cgroup", "0::/user.slice/user-1000.slice\n", ""},
  };
  for (const Row& row : rows) {
    const FakeRoot root;
    root.write(row.file, row.text);
    CAPTURE(row.file, row.text);
    CHECK(root.read().container == row.container);
  }
}

}  // namespace
}  // namespace mkbench
