"""The container file's checks, each of which can fail; no container engine is needed."""

import json
import re
import unittest

from support import ROOT
from support import page_blocks

import check_containers

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
                                ('"Dockerfile"', '"Containerfile"', "build: found"),
                                ("target=/cache,", "target=/src/c,", "mounts: found ['/mkbench/build', '/src/c']"),
                                ('"workspaceFolder": "/mkbench"', '"workspaceFolder": "/src"', "/src is not"),
                                ("target=/mkbench,type=bind", "target=/src,type=bind", "its target is not /mkbench")]:
            content = self.content.replace(good, bad)
            self.assertNotEqual(content, self.content)
            findings = check_containers.check_devcontainer(content, self.dockerfile)
            self.assertTrue(any(said in finding for finding in findings), (said, findings))

    def test_the_lines_for_an_engine(self):
        """Nothing runs them here: arguments, image, volumes and commands must be those of the container file."""
        page, has = "\n".join(PAGE), dict(re.findall(r"^(ARG|WORKDIR|VOLUME|CMD) ([^=\n]+)", self.dockerfile, re.MULTILINE))
        self.assertEqual([line.split()[:2] for line in PAGE],
                         [["docker", word] for word in ("build", "run", "run", "run", "volume")])
        self.assertEqual(re.findall(r"--build-arg (\w+)=", page), [has["ARG"]])
        [(file, tag)] = re.findall(r"build .*(?=.* -f (\S+))(?=.* -t (\S+)).* \.$", page, re.MULTILINE)
        self.assertTrue((ROOT / file).exists(), file)
        for line in PAGE[1:4]:
            mounts = re.findall(r'-v "?([^\s":]+):([^\s"]+)', line)
            self.assertEqual({target for _, target in mounts}, {has["WORKDIR"], *json.loads(has["VOLUME"])})
            [script] = re.findall(rf" --rm .* {tag}(?: (\S+).*)?$", line)
            self.assertTrue((ROOT / script).exists(), line)
        self.assertLessEqual(set(PAGE[4].removeprefix("docker volume rm ").split()), {source for source, _ in mounts})


if __name__ == "__main__":
    unittest.main()
