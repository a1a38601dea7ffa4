"""Reads the machine code of every device object of a build, for every architecture that it holds.

  check_device_code.py BUILD           names what must not be there, and registers that differ from registers.txt
  check_device_code.py BUILD --update  writes that table anew

Never allowed: a stack frame or local memory, and a call into the driver (`__cuda_syscall...`). An instruction that an
architecture lacks becomes such a call: a bulk copy to shared::cluster on sm_120, for one. It is slow, and every thread
that the card can hold gets a stack for it. The registers are those of the kernels that users run, and are compared
where the build's ptxas is the table's.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import scripts_path  # noqa: F401
from check_cuda128 import LOCAL_MEMORY_KERNEL
from pinned_wheels import installed
from tracked_files import ROOT

TABLE = ROOT / "dev" / "registers.txt"
# The self-test compiles these for sm_120: what is found in each of them, and its code.
BAD_KERNELS = {
    "a call into the driver": """__global__ void copy(const char* from) {
      extern __shared__ char to[]; __shared__ unsigned long long done;
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::
        "r"((unsigned)__cvta_generic_to_shared(to)), "l"(__cvta_generic_to_global(from)),
        "r"((unsigned)__cvta_generic_to_shared(&done)) : "memory"); }""",
    "local memory": LOCAL_MEMORY_KERNEL,
}


def output_of(*command: str | pathlib.Path, given: str | None = None) -> str:
    return subprocess.run([str(part) for part in command], input=given, capture_output=True, text=True,
                          check=True).stdout


def short_name(symbol: str) -> str:
    """A demangled kernel without its parameters and the namespaces that all share."""
    name = re.sub(r"^void |mkbench::|\(anonymous namespace\)::", "", symbol)
    return re.sub(r"\(\w+\)(?=\d)", "", name).partition("(")[0]


class DeviceCode:
    """What objects below `root` hold."""

    def __init__(self, cuobjdump: pathlib.Path, root: pathlib.Path):
        self.cuobjdump, self.root = cuobjdump, root
        self.findings: list[str] = []
        self.registers: dict[str, dict[str, int]] = {}  # by kernel and architecture, without those of tests
        self.kernels = 0

    def read(self, path: pathlib.Path) -> None:
        source = re.sub(r"CMakeFiles/\w+\.dir/|\.o$", "", str(path.relative_to(self.root)))
        text = output_of(self.cuobjdump, "-res-usage", path) + output_of(self.cuobjdump, "-symbols", path)
        architecture = kernel = ""
        for line in output_of("c++filt", given=text).splitlines():
            if found := re.match(r"arch = sm_(\w+)", line):
                architecture = found[1]
            elif found := re.match(r" Function (.*):$", line):
                kernel = short_name(found[1])
            elif found := re.match(r"  REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", line):
                self.kernels += 1
                if (found[2], found[3]) != ("0", "0"):
                    self.findings.append(f"{source}, sm_{architecture}, {kernel}: local memory: a stack of {found[2]} "
                                         f"bytes and {found[3]} beside it")
                if not source.startswith("tests/"):
                    self.registers.setdefault(f"{source} {kernel}", {})[architecture] = int(found[1])
            elif found := re.search(r"\b__cuda_syscall\w*", line):
                self.findings.append(f"{source}, sm_{architecture}: a call into the driver: {found[0]}")


def self_test(cuobjdump: pathlib.Path, nvcc: pathlib.Path) -> None:
    """Raises unless each of BAD_KERNELS is found to be what it is."""
    for what, kernel in BAD_KERNELS.items():
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder) / "bad.cu"
            source.write_text(kernel)
            output_of(nvcc, "-arch=sm_120a", "-c", source, "-o", source.with_suffix(".o"))
            code = DeviceCode(cuobjdump, source.parent)
            code.read(source.with_suffix(".o"))
        if len(code.findings) != 1 or what not in code.findings[0]:
            raise SystemExit(f"self-test: found {code.findings}, wanted {what}")


def table_of(registers: dict[str, dict[str, int]], ptxas: str) -> str:
    architectures = sorted({a for row in registers.values() for a in row}, key=lambda a: int(a.rstrip("a")))
    lines = [f"# Registers a thread of each kernel, by {ptxas}; dev/check_device_code.py writes and reads this table.",
             "# " + " ".join(f"{a:>4}" for a in architectures)]
    lines += ["  " + " ".join(f"{row.get(a, '-'):>4}" for a in architectures) + f"  {kernel}"
              for kernel, row in sorted(registers.items())]
    return "\n".join(lines) + "\n"


def differences(found: str, wanted: str) -> list[str]:
    """Lines of two tables that differ; of tables of two assemblers none."""
    if found.partition("\n")[0] != wanted.partition("\n")[0]:
        print(f"registers are not compared: {TABLE.relative_to(ROOT)} comes from another ptxas")
        return []
    new, old = found.splitlines(), wanted.splitlines()
    return ([f"registers: found    {line}" for line in new if line not in old] +
            [f"registers: wanted   {line}" for line in old if line not in new])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", type=pathlib.Path, help="folder of a build for all architectures, with its setup.env")
    parser.add_argument("--update", action="store_true", help="write the table of registers")
    arguments = parser.parse_args()
    settings = dict(line.split("=", 1) for line in (arguments.build / "setup.env").read_text().split("\n") if "=" in line)
    tools = pathlib.Path(settings["toolkit"]) / "bin"
    cuobjdump = installed("device-code", "cuobjdump") / "nvidia" / "cu13" / "bin" / "cuobjdump"
    cuobjdump.chmod(0o755)
    self_test(cuobjdump, tools / "nvcc")
    code = DeviceCode(cuobjdump, arguments.build)
    objects = sorted(arguments.build.rglob("*.cu.o"))
    for path in objects:
        code.read(path)
    if not code.registers:
        raise SystemExit(f"{arguments.build}: found no machine code, wanted device objects for all architectures")
    version = re.search(r"release ([\d.]+), V([\d.]+)", output_of(tools / "ptxas", "--version"))
    table = table_of(code.registers, f"ptxas {version[2]}")
    if arguments.update:
        TABLE.write_text(table)
    findings = code.findings + differences(table, TABLE.read_text())
    print("\n".join([*findings, f"{len(objects)} device objects, {code.kernels} kernels of all architectures, "
                                f"{len(findings)} findings"]))
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
