"""`mkbench fetch` against a hub of its own on loopback: all files, what was cut short, wrong hashes, refusals."""

import hashlib
import importlib.util
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import unittest

from support import hub_server
from support.cli_support import BINARY, DATA, ROOT, CliTest, environment

HAS_HUB = importlib.util.find_spec("huggingface_hub") is not None
WEIGHTS = bytes(range(256)) * 8192  # 2 MiB; nobody loads them here
FILES = {
    "config.json": b'{"model_type": "qwen3"}',
    "model.safetensors": WEIGHTS,
    "tokenizer.json": b'{"version": "1.0"}',
    "pytorch_model.bin": b"not wanted",
    "README.md": b"not wanted",
}
WANTED = ("config.json", "model.safetensors", "tokenizer.json")


@unittest.skipUnless(HAS_HUB, "this Python has no huggingface_hub")
class Fetch(CliTest):
    def setUp(self):
        super().setUp()
        self.hub = hub_server.Hub(dict(FILES))
        self.addCleanup(self.hub.close)
        self.cache = self.folder / "home" / "hub"
        self.root = self.cache / "models--Org--Tiny"
        self.snapshot = self.root / "snapshots" / hub_server.COMMIT

    def env(self, **extra):
        ours = {"HF_HOME": str(self.folder / "home"), "HF_ENDPOINT": self.hub.url, "NO_PROXY": "127.0.0.1",
                "HF_HUB_DISABLE_TELEMETRY": "1", "PYTHONDONTWRITEBYTECODE": "1"}
        for name in ("HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_TOKEN"):
            ours[name] = ""
        return ours | extra

    def fetch(self, name="Org/Tiny", *args, **extra):
        return self.mkbench("fetch", name, *args, env=self.env(**extra))

    def refused(self, done, code, *parts):
        """One line, the exit code, and no snapshot that resolves."""
        self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        for part in parts:
            self.assertIn(part, errors[0])
        self.assertFalse((self.root / "refs").exists(), "the name must not resolve")

    def test_all_files_that_are_wanted(self):
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout, f"{self.snapshot}\n")
        self.assertEqual(sorted(p.name for p in self.snapshot.iterdir()), sorted(WANTED))
        for name in WANTED:
            self.assertEqual((self.snapshot / name).read_bytes(), FILES[name])
            self.assertTrue((self.snapshot / name).is_symlink())
        self.assertEqual((self.snapshot / "model.safetensors").resolve().name, hashlib.sha256(WEIGHTS).hexdigest())
        self.assertEqual((self.root / "refs" / "main").read_text(), hub_server.COMMIT)
        self.assertIn("3 files", done.stderr)

        self.hub.requests.clear()
        again = self.fetch("Org/Tiny", "--quiet")
        self.assertEqual((again.returncode, again.stdout, again.stderr), (0, done.stdout, ""))
        self.assertEqual([path for path, _ in self.hub.requests if "/api/" not in path], [], "nothing is fetched twice")

    def test_the_model_of_pypi(self):
        cache = {"XDG_CACHE_HOME": str(self.folder / "cache"), "PIP_NO_INDEX": "1", "PIP_CONFIG_FILE": os.devnull}
        self.refused(self.fetch("smollm2-135m", **cache), 6, "smollm2-135m: pip ended with 1")
        snapshot = self.folder / "cache" / "mkbench" / "models" / "smollm2-135m"
        self.assertFalse(snapshot.exists())
        snapshot.mkdir(parents=True)
        (snapshot / "manifest.json").write_text("{}")
        done = self.fetch("smollm2-135m", **cache)
        self.assertEqual((done.returncode, done.stdout), (0, f"{snapshot}\n"), done.stderr)

    def test_quiet_silences_the_bars_of_libraries(self):
        code = "import sys; sys.argv.append({!r}); import fetch_model; from tqdm.auto import tqdm; list(tqdm(range(2)))"
        for argument, silent in (("--quiet", True), ("smollm2-135m", False)):
            done = subprocess.run([sys.executable, "-c", code.format(argument)], env=environment(**self.env()), text=True,
                                  check=True, cwd=ROOT / "scripts", stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=60)
            self.assertEqual(done.stderr == "", silent, done.stderr)

    def test_the_client_reads_this_cache(self):
        self.assertEqual(self.fetch().returncode, 0)
        code = "import huggingface_hub as h; print(h.snapshot_download('Org/Tiny', local_files_only=True))"
        python = sys.executable
        env = {name: value for name, value in environment(**self.env(HF_HUB_OFFLINE="1")).items() if value}
        done = subprocess.run([python, "-c", code], env=env, text=True, check=False, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=60)
        self.assertEqual(done.stdout.strip(), str(self.snapshot), done.stderr)

    def test_a_revision(self):
        done = self.fetch("Org/Tiny@v1.0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.root / "refs" / "v1.0").read_text(), hub_server.COMMIT)
        self.assertFalse((self.root / "refs" / "main").exists())
        self.assertEqual(self.fetch(f"Org/Tiny@{hub_server.COMMIT}").returncode, 0)

    def test_no_such_revision(self):
        self.refused(self.fetch("Org/Tiny@v2"), 2, "no revision v2")

    def test_goes_on_where_it_was_interrupted(self):
        self.hub.stop_after["model.safetensors"] = 1 << 20
        process = subprocess.Popen([BINARY, "fetch", "Org/Tiny"], cwd=self.folder, env=environment(**self.env()), text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
        partial = self.root / "blobs" / (hashlib.sha256(WEIGHTS).hexdigest() + ".mkbench-incomplete")
        deadline = time.monotonic() + 60
        while not (partial.exists() and partial.stat().st_size > 0):
            self.assertLess(time.monotonic(), deadline, "the download did not begin")
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130, errors)
        self.assertIn("interrupted", errors)
        self.assertNotIn("Traceback", errors)
        there = partial.stat().st_size
        self.assertGreater(there, 0)
        self.assertEqual(partial.read_bytes(), WEIGHTS[:there])

        self.hub.stop_after.clear()
        self.hub.requests.clear()
        done = self.fetch()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(("/content/model.safetensors", f"bytes={there}-"), self.hub.requests)
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), WEIGHTS)

    def test_a_wrong_hash(self):
        self.hub.wrong["config.json"] = b'{"model_type": "qwen4"}'
        self.refused(self.fetch(), 2, "config.json of Org/Tiny: git id is")
        self.hub.wrong = {"model.safetensors": WEIGHTS[:-1] + b"?"}
        done = self.fetch()
        self.refused(done, 2, "model.safetensors of Org/Tiny: sha256 is", hashlib.sha256(WEIGHTS).hexdigest())
        self.assertEqual([p for p in (self.root / "blobs").iterdir() if p.stat().st_size == len(WEIGHTS)], [])
        self.assertFalse(self.snapshot.exists(), "a part of the files must not resolve")
        self.hub.wrong = {}
        self.assertEqual(self.fetch().returncode, 0)

    def test_a_published_revision_has_the_published_files(self):
        known = json.loads((DATA / "qwen3-0.6b" / "files.json").read_text())
        config = (DATA / "qwen3-0.6b" / "config.json").read_bytes()
        hub = hub_server.Hub(dict(FILES) | {"config.json": config}, known["repository"], known["revision"])
        self.addCleanup(hub.close)
        done = self.fetch(known["repository"], HF_ENDPOINT=hub.url)
        self.assertEqual(done.returncode, 2, done.stderr)
        wanted = known["files"]["model.safetensors"]["sha256"]
        self.assertRegex(done.stderr, rf"model.safetensors: sha256 is [0-9a-f]{{64}}, .*files.json says {wanted}")

    def test_a_hash_that_is_a_path(self):
        self.hub.hashes["model.safetensors"] = "../../../../elsewhere"
        self.refused(self.fetch(), 2, "model.safetensors: the hub gives hash '../../../../elsewhere'")
        self.assertFalse(self.root.exists())

    def test_what_was_there_before_is_not_believed(self):
        blobs = self.root / "blobs"
        blobs.mkdir(parents=True)
        (blobs / (hashlib.sha256(WEIGHTS).hexdigest() + ".mkbench-incomplete")).write_bytes(b"x" * 1000)
        self.refused(self.fetch(), 2, "sha256 is")
        self.assertEqual(self.fetch().returncode, 0, "and the next one starts afresh")

    def test_refusals(self):
        for status in (401, 403, 404):
            self.hub.refuse = status
            self.refused(self.fetch(), 2, "HF_TOKEN")
        self.hub.refuse = None
        self.refused(self.fetch("Org/Other"), 2, "Org/Other")
        del self.hub.files["model.safetensors"]
        self.refused(self.fetch(), 2, "no *.safetensors")

    def test_no_connection(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            url = "http://%s:%d" % free.getsockname()
        wanted = ("cannot reach " + url, "hf download Org/Tiny --local-dir Tiny", "--model ./Tiny")
        self.refused(self.fetch(HF_ENDPOINT=url), 6, *wanted)
        self.refused(self.fetch("Org/Tiny@v1.0", HF_ENDPOINT=url), 6, "hf download Org/Tiny --revision v1.0 --local-dir Tiny")
        self.refused(self.fetch(HF_HUB_OFFLINE="1"), 6, "HF_HUB_OFFLINE is set", wanted[1])
        self.assertEqual(self.hub.requests, [])

    def test_a_full_disk(self):
        site = self.folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(
            "import collections, shutil\n"
            "usage = collections.namedtuple('usage', 'total used free')\n"
            "shutil.disk_usage = lambda path: usage(10**9, 10**9 - 10**6, 10**6)\n")
        self.refused(self.fetch(PYTHONPATH=str(site)), 6, "2 MB needed, 1 MB free on that disk", "HF_HUB_CACHE")
        self.assertFalse(self.snapshot.exists())

    def test_offline_with_a_cache(self):
        hub_server.make_cache(self.cache, {name: FILES[name] for name in WANTED})
        done = self.fetch(HF_HUB_OFFLINE="1")
        self.assertEqual((done.returncode, done.stdout), (0, f"{self.snapshot}\n"), done.stderr)
        (self.snapshot / "model.safetensors").resolve().write_bytes(b"changed")
        done = self.fetch(HF_HUB_OFFLINE="1")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("model.safetensors of Org/Tiny: sha256 is", done.stderr)

    def test_usage(self):
        for args in ((), ("Org/Tiny", "Org/Other")):
            done = self.mkbench("fetch", *args)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn("ORG/NAME@REVISION", done.stderr)
        done = self.mkbench("fetch", "../Tiny")
        self.assertEqual(done.returncode, 2)
        self.assertIn("not of the form ORG/NAME", done.stderr)
        self.assertFalse(pathlib.Path(self.cache).exists())


if __name__ == "__main__":
    unittest.main()
