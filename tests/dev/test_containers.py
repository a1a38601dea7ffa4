"""The container file's checks, each of which can fail; no container engine is needed."""

import argparse
import json
import pathlib
import re
import shlex
import sys
import unittest

from support import page_blocks

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "dev"))

import check_containers  # noqa: E402

# The commands of docs/containers.md, line by line.
PAGE = [line for block in page_blocks.blocks("docs/containers.md") for line in block.splitlines()]


class Files(unittest.TestCase):
    """What .devcontainer must hold; hadolint is run by the CI step `containers`."""

    def setUp(self):
        self.dockerfile = (check_containers.FOLDER / "Dockerfile").read_text()
        self.content = (check_containers.FOLDER / "devcontainer.json").read_text()

    def test_this_tree(self):
        self.assertEqual(check_containers.check_image(self.dockerfile, check_containers.LANES.read_text()), [])
        self.assertEqual(check_containers.check_devcontainer(self.content, self.dockerfile), [])

    def test_planted_images(self):
        for image in ("debian:12", "nvidia/cuda:12.8.1-runtime-ubuntu24.04", "nvidia/cuda"):
            text = re.sub(r"^FROM .*$", f"FROM {image}", self.dockerfile, flags=re.MULTILINE)
            self.assertEqual(len(check_containers.check_image(text, check_containers.LANES.read_text())), 1, image)

    def test_planted_keys(self):
        for good, bad, said in [('"remoteUser": "mkbench"', '"remoteUser": "root"', "remoteUser: root is not"),
                                ('"build": {', '"biuld": {', "build: missing"), ('"name"', '"nmae"', "nmae: unknown"),
                                ('"name": "mkbench",', '"name": "mkbench"', "not JSON"), ('"Dockerfile"', '"Containerfile"', "build: found"),
                                ('"mounts": [', '"mounts": "", "postCreateCommand": [', "mounts: found str, wanted"),
                                ("target=/cache,", "target=/src/c,", "mounts: found ['/mkbench/build', '/src/c']"),
                                ('"workspaceFolder": "/mkbench"', '"workspaceFolder": "/src"', "/src is not"),
                                ("target=/mkbench,type=bind", "target=/src,type=bind", "its target is not /mkbench")]:
            content = self.content.replace(good, bad)
            self.assertNotEqual(content, self.content)
            findings = check_containers.check_devcontainer(content, self.dockerfile)
            self.assertTrue(any(said in finding for finding in findings), (said, findings))

    def engine_findings(self, lines):
        """What the lines of `docker` have that the container file has not."""
        found, tags, volumes = [], set(), {}
        has = dict(re.findall(r"^(ARG|WORKDIR|VOLUME|CMD) ([^=\n]+)", self.dockerfile, re.MULTILINE))
        targets = {has["WORKDIR"], *json.loads(has["VOLUME"])}
        for words in map(shlex.split, lines):
            parser = argparse.ArgumentParser(exit_on_error=False)
            for flag in ("--build-arg", "-t", "-f", "--gpus"):
                parser.add_argument(flag)
            parser.add_argument("--rm", action="store_true")
            parser.add_argument("-v", action="append", default=[])
            parser.add_argument("rest", nargs=argparse.REMAINDER)
            line = parser.parse_args(words[2:])
            if words[1] == "build":
                tags.add(line.t)
                if line.build_arg.partition("=")[0] != has["ARG"] or not (ROOT / line.f).exists() or line.rest != ["."]:
                    found.append(f"build: {words}")
            elif words[1] == "run":
                mounts = dict(reversed(mount.split(":")) for mount in line.v)
                volumes |= mounts
                if set(mounts) != targets or line.rest[0] not in tags or not line.rm:
                    found.append(f"run: {words}")
                if line.rest[1:] and not (ROOT / line.rest[1]).exists():
                    found.append(f"command: {words}")
            elif words[1:3] != ["volume", "rm"] or not set(words[3:]) <= set(volumes.values()):
                found.append(f"other: {words}")
        return found

    def test_the_lines_for_an_engine(self):
        """Nothing runs them here: arguments, image, volumes and commands must be those of the container file."""
        self.assertEqual(self.engine_findings(PAGE), [])
        self.assertEqual([line.split()[:2] for line in PAGE],
                         [["docker", word] for word in ("build", "run", "run", "run", "volume")])
        for good, bad, said in [("USER_ID=", "USER=", "build"), ("-f .dev", "-f dev", "build"),
                                (":/cache", ":/c", "run"), ("mkbench scripts", "mkbnch scripts", "run"),
                                ("scripts/test.sh", "scripts/tst.sh", "command"),
                                ("rm mkbench-cache", "rm mkbench-c", "other")]:
            found = self.engine_findings([line.replace(good, bad) for line in PAGE])
            self.assertTrue(found and found[0].startswith(said), (good, found))


if __name__ == "__main__":
    unittest.main()
