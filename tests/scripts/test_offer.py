"""scripts/offer.sh: whether a rented machine will do, by fake nvidia-smi, nproc and curl, before anything is built."""

import subprocess
import unittest

from support import ROOT
from test_house_setup import FakeMachine

OFFER = ROOT / "scripts" / "offer.sh"
CARDS = """case "$*" in
  *memory.total*) printf '%s\n' '32607, 575.00, 575.00, 14001, NVIDIA GeForce RTX 5090' \\
                                '81559, 600.00, 700.00, 2619, NVIDIA H100 80GB HBM3' ;;
  *query-gpu*) echo '580.95.05, 12.0, NVIDIA GeForce RTX 5090' ;;
  *) echo 'CUDA Version: 13.0' ;;
esac"""
# The index has an older wheel, two for other machines, and the one that is downloaded.
NETWORK = """case "${@: -1}" in
  https://pypi.org/simple/torch/) for file in 2.10.0-cp311-cp311-manylinux_2_28_x86_64 %(pin)s-cp311-cp311-win_amd64 \\
      %(pin)s-cp311-cp311-manylinux_2_28_aarch64 %(pin)s-cp311-cp311-manylinux_2_28_x86_64; do
        echo "<a href=\\"https://files.pythonhosted.org/packages/torch-$file.whl#sha256=0\\">torch</a>"; done ;;
  https://files.pythonhosted.org/packages/torch-%(pin)s-cp311-cp311-manylinux_2_28_x86_64.whl) head -c 5000000 /dev/zero ;;
  *) echo "$*" >&2; exit 22 ;;
esac"""


class Offer(FakeMachine):
    def offer(self, *args, start=("bash", str(OFFER)), **environment):
        """The exit code, the rows by topic, the last line and stderr."""
        done = subprocess.run([*start, *args], capture_output=True, text=True, timeout=100, cwd=self.home, env={
            "PATH": f"{self.home / 'bin'}:/usr/bin:/bin", "HOME": str(self.home), **environment})
        lines = done.stdout.splitlines()
        rows = {line.split()[2]: (line.split()[1], line) for line in lines if line.startswith("- ")}
        return done.returncode, rows, lines[-1] if lines else "", done.stderr

    def found(self, wanted):
        """Whether the one wanted number is met."""
        status, rows, last, said = self.offer(wanted)
        topic = wanted.split("=")[0]
        self.assertEqual((status, last), (0, "offer: this machine will do") if rows[topic][0] == "ok" else
                         (6, f"offer: this machine will not do: {topic}"), said)
        return rows[topic][0] == "ok"

    def setUp(self):
        super().setUp()
        self.program("nvidia-smi", CARDS)
        self.program("nproc", "echo 8")

    def test_cards(self):
        status, rows, last, _ = self.offer("gpu=rtx 5090,vram=32,cores=8,ram=0.1,disk=0.1")
        self.assertEqual((status, last), (0, "offer: this machine will do"))
        self.assertIn("found NVIDIA GeForce RTX 5090, wanted rtx 5090", rows["gpu"][1])
        self.assertIn("found 34.2 GB, memory clock up to 14001 MHz, wanted 32 GB", rows["vram"][1])
        self.assertIn("CUDA 13 (the driver 580.95.05 runs CUDA 13), torch", rows["set-up"][1])
        # The second card is of the wanted name, and slower than others of it.
        status, rows, _, _ = self.offer("gpu=h100,vram=85.5")
        self.assertEqual((status, rows["gpu"][0], rows["vram"][0]), (0, "warning", "ok"))
        self.assertIn("power limit 600.00 W, default 700.00 W", rows["gpu"][1])
        status, rows, last, _ = self.offer("gpu=A100,vram=90")
        self.assertEqual((status, last), (6, "offer: this machine will not do: gpu, vram"))
        self.assertIn("found NVIDIA GeForce RTX 5090, wanted A100", rows["gpu"][1])
        # A limit above the default is no warning, nor is what the driver does not tell.
        for limits, finding in (("700.00, 600.00", "ok"), ("599.99, 600.00", "warning"), ("[N/A], [N/A]", "ok")):
            self.program("nvidia-smi", f"echo '81559, {limits}, 2619, NVIDIA X'")
            self.assertEqual(self.offer("vram=80")[1]["gpu"][0], finding, limits)
        self.program("nvidia-smi", "echo '[N/A], [N/A], [N/A], [N/A], NVIDIA GB10'")
        self.assertIn("found [N/A], wanted 32 GB", self.offer("vram=32")[1]["vram"][1])
        self.program("nvidia-smi", "exit 9")
        self.assertEqual(self.offer("gpu=5090,vram=32")[2], "offer: this machine will not do: gpu, vram")
        self.assertEqual(self.offer()[0], 0)  # nothing was wanted

    def test_numbers_as_sold(self):
        """Half a GB less will do, and no fraction of a core."""
        for wanted, met in (("vram=34.6", True), ("vram=34.8", False), ("cores=8", True), ("cores=8.1", False),
                            ("ram=0.1", True), ("ram=99999", False), ("disk=0.1", True), ("disk=999999", False)):
            with self.subTest(wanted=wanted):
                self.assertEqual(self.found(wanted), met)

    def test_a_container_has_what_its_groups_leave(self):
        script = (f'. "{OFFER}"; cgroups="{self.home}/cgroup" own_cgroups="{self.home}/own" wsl_lib=/none\n'
                  'read_list ram=3,cores=2; judge_container; echo "${missing[*]}"')
        for own, files, ram, cores in (
                ("0::/pod/box\n", {"pod/box/cpu.max": "max 100000", "pod/box/memory.max": "max"}, None, "8"),
                ("0::/pod/box\n", {"pod/cpu.max": "150000 100000", "pod/box/memory.max": "4000000000",
                                   "pod/memory.max": "2000000000"}, "2.0", "1.5"),
                ("4:cpu,cpuacct:/box\n5:memory:/box\n", {
                    "cpu/box/cpu.cfs_quota_us": "250000", "cpu/box/cpu.cfs_period_us": "100000",
                    "memory/box/memory.limit_in_bytes": "2600000000"}, "2.6", "2.5"),
                ("4:cpu,cpuacct:/box\n", {"cpu/box/cpu.cfs_quota_us": "-1", "cpu/box/cpu.cfs_period_us": "100000"}, None, "8")):
            with self.subTest(own=own, files=files):
                subprocess.run(["rm", "-rf", str(self.home / "cgroup")], check=True)
                (self.home / "own").write_text(own)
                for name, text in files.items():
                    file = self.home / "cgroup" / name
                    file.parent.mkdir(parents=True, exist_ok=True)
                    file.write_text(text + "\n")
                status, rows, last, said = self.offer(start=("bash", "-c", script))
                self.assertEqual(status, 0, said)
                if ram:
                    self.assertIn(f"found {ram} GB", rows["ram"][1])
                self.assertIn(f"found {cores}, wanted 2", rows["cores"][1])
                self.assertEqual(last, " ".join((["ram"] if ram == "2.0" else []) + (["cores"] if cores == "1.5" else [])))

    def test_the_network_is_tried_by_the_wheel_that_set_up_fetches(self):
        pin = self.call("lane=13; pinned torch")[1]
        self.program("curl", NETWORK % {"pin": pin})
        for wanted, status in (("0.001", 0), ("999999999", 6)):
            code, rows, _, said = self.offer(f"network={wanted}")
            self.assertEqual(code, status, said)
            self.assertRegex(rows["network"][1], rf"found [0-9.]+ MB/s, wanted {wanted} MB/s")
        self.program("curl", "exit 6")
        code, rows, _, _ = self.offer("network=1")
        self.assertEqual(code, 6)
        self.assertIn("found no wheel of torch at https://pypi.org/simple/torch/", rows["network"][1])
        self.assertNotIn("network", self.offer("cores=1")[1])  # not tried

    def test_the_network_is_tried_by_what_is_there(self):
        network = NETWORK % {"pin": self.call("lane=13; pinned torch")[1]}
        for tool in ("wget", "python3"):
            self.program(tool, network)
        for tool, found in (("wget", "MB/s"), ("python3", "MB/s"), ("none", "no curl, wget or python3")):
            script = (f'. "{OFFER}"; command() {{ [ "$2" = {tool} ]; }}; read_list network=0.001; judge_network; '
                      'echo "missing: ${missing[*]}"')
            status, rows, last, said = self.offer(start=("bash", "-c", script))
            self.assertEqual((status, last), (0, "missing: network" if tool == "none" else "missing: "), said)
            self.assertIn(found, rows["network"][1])

    def test_set_up_would_stop(self):
        self.program("nvidia-smi", "echo '550.54, 9.0, NVIDIA H100'")
        status, rows, last, _ = self.offer("cores=1")
        self.assertEqual((status, last), (6, "offer: this machine will not do: set-up"))
        self.assertIn("the driver 550.54 of 'NVIDIA H100' is too old", rows["set-up"][1])

    def test_what_is_not_understood(self):
        for text, part in (("vrma=32", "'vrma' is unknown; known: gpu, vram, ram, cores, disk, network"),
                           ("vram=lots", "vram: found 'lots', wanted a number"), ("vram=32GB", "'32GB'"),
                           ("cores=-1", "'-1'"), ("cores=0", "'0'"), ("ram=nan", "'nan'"), ("disk=.", "'.'"),
                           ("gpu=", "wanted gpu=VALUE"), ("vram", "wanted vram=VALUE"), ("5090", "'5090' is unknown"),
                           ("gpu=a,,ram=1", "'' is unknown"), ("ram=1,RAM=2", "'ram' is given twice")):
            status, _, last, said = self.offer(text)
            self.assertEqual((status, last), (2, ""), text)
            self.assertIn(part, said)
        for args in (("ram=1", "cores=1"), ("--strict",), ("",), ("--require",), ("--require=",)):
            self.assertEqual(self.offer(*args)[0], 2, args)

    def test_doctor_asks_it_before_anything_is_set_up(self):
        run = ("bash", str(ROOT / "scripts" / "run.sh"), "doctor")
        for args in (("--require", "gpu=A100"), ("--require=gpu=A100",)):
            status, _, last, said = self.offer(*args, start=run)
            self.assertEqual((status, last, said), (6, "offer: this machine will not do: gpu", ""))
        status, _, last, said = self.offer("--device", "cuda", "--require", "gpu=A100", start=run)
        self.assertEqual((status, last), (2, ""))
        self.assertIn("usage: scripts/offer.sh", said)


if __name__ == "__main__":
    unittest.main()
