"""The container file's checks, each of which can fail, and scripts/container_digest.py against a registry on loopback
that speaks the v2 API: challenge, token, manifest. No real registry is asked, and no container engine is needed.
"""

import argparse
import hashlib
import http.server
import json
import os
import pathlib
import re
import shlex
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.parse

import page_blocks

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import check_containers  # noqa: E402
import container_digest  # noqa: E402

INDEX = json.dumps({"schemaVersion": 2, "mediaType": container_digest.MANIFESTS[0], "manifests": []}).encode()
DIGEST = "sha256:" + hashlib.sha256(INDEX).hexdigest()
# The commands of docs/containers.md, line by line.
PAGE = [line for block in page_blocks.blocks("docs/containers.md") for line in block.splitlines()]
DOCKERFILE = "# a comment\nFROM nvidia/cuda:12.8.1-devel-ubuntu24.04\nRUN true\n"


class Registry(http.server.ThreadingHTTPServer):
    """Answers for one image, with a token; what it does otherwise stands in `faults`."""

    def __init__(self, faults=(), certificate=None):
        super().__init__(("127.0.0.1", 0), Answers)
        self.faults, self.asked = set(faults), []
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that does not trust the certificate hangs up


class Answers(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass

    def answer(self, status, body, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        server, url = self.server, urllib.parse.urlsplit(self.path)
        server.asked.append(self.path)
        if url.path == "/token":
            scope = urllib.parse.parse_qs(url.query)
            right = scope == {"service": ["registry here"], "scope": ["repository:nvidia/cuda:pull"]}
            if "no token" in server.faults or not right:
                return self.answer(403, b"{}")
            return self.answer(200, b"[]" if "odd token" in server.faults else b'{"token": "open sesame"}')
        if self.headers.get("Authorization") != "Bearer open sesame":
            realm = "http://nvidia.com/token" if "plain realm" in server.faults else server.url + "/token"
            challenge = f'Bearer realm="{realm}",service="registry here",scope="repository:nvidia/cuda:pull"'
            return self.answer(401, b"", WWW_Authenticate="Basic" if "basic" in server.faults else challenge)
        if not re.fullmatch("/v2/nvidia/cuda/manifests/(12.8.1|13.0.2)-devel-ubuntu24.04", url.path):
            return self.answer(404, b"{}")
        if container_digest.MANIFESTS[0] not in self.headers.get("Accept", ""):
            return self.answer(406, b"{}")
        kind = "text/html" if "page" in server.faults else container_digest.MANIFESTS[0]
        body = INDEX + b" " if "changed" in server.faults else INDEX
        return self.answer(200, body, Content_Type=kind, Docker_Content_Digest=DIGEST)


class Digest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.home = pathlib.Path(holder.name)
        self.file = self.home / "Dockerfile"
        self.file.write_text(DOCKERFILE)

    def registry(self, *faults, certificate=None):
        server = Registry(faults, certificate)
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return server

    def pin(self, url, *arguments, **environment):
        done = subprocess.run([sys.executable, str(ROOT / "scripts" / "container_digest.py"),
                               *(["--registry", url] if url else []), "--file", str(self.file), *arguments], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "no_proxy": "*", **environment}, check=False)
        return done.returncode, done.stdout.strip(), done.stderr.strip()

    def test_the_digest_is_written_and_renewed(self):
        registry = self.registry()
        line = f"FROM nvidia/cuda:12.8.1-devel-ubuntu24.04@{DIGEST}"
        self.assertEqual(self.pin(registry.url), (0, line, ""))
        self.assertEqual(self.file.read_text(), f"# a comment\n{line}\nRUN true\n")
        self.file.write_text(DOCKERFILE.replace("ubuntu24.04", "ubuntu24.04@sha256:" + "0" * 64))
        self.assertEqual(self.pin(registry.url), (0, line, ""))
        self.assertEqual([p.name for p in self.home.iterdir()], ["Dockerfile"])

    def test_the_commands_of_the_page(self):
        """As they stand there, but for the registry and the file."""
        commands = [shlex.split(line) for line in PAGE if not line.startswith("docker ")]
        self.assertEqual([command[0] for command in commands], ["scripts/container_digest.py"] * 2)
        for command, image in zip(commands, ("13.0.2-devel-ubuntu24.04", "12.8.1-devel-ubuntu24.04")):
            shutil.copy(ROOT / ".devcontainer" / "Dockerfile", self.file)
            self.assertEqual(self.pin(self.registry().url, *command[1:]), (0, f"FROM nvidia/cuda:{image}@{DIGEST}", ""))

    def test_what_is_refused_changes_nothing(self):
        for fault, said in [("no token", "HTTP 403, wanted a token"), ("odd token", "the answer holds no token"),
                            ("basic", "asks for 'Basic', wanted a Bearer challenge"),
                            ("page", "is of the type 'text/html', wanted a manifest"),
                            ("changed", f"the registry states the digest {DIGEST}, what it sent has sha256:")]:
            status, out, error = self.pin(self.registry(fault).url)
            self.assertEqual((status, out, error.count("\n")), (1, "", 0), error)
            self.assertIn(said, error)
        for image, said in [("nvidia/cuda:9.0", "HTTP 404, there is no such image"), ("cuda", "wanted NAME:TAG"),
                            ("nvidia/../cuda:9", "wanted NAME:TAG")]:
            self.assertIn(said, self.pin(self.registry().url, "--image", image)[2])
        closed = self.registry()
        closed.shutdown()
        closed.server_close()
        self.assertIn("Connection refused", self.pin(closed.url)[2])
        self.assertEqual(self.file.read_text(), DOCKERFILE)
        self.file.write_text("FROM scratch\n")
        self.assertIn("found 0 lines of the form NAME:TAG", self.pin(self.registry().url)[2])

    def test_https(self):
        """A certificate must be trusted, and no token is fetched without one."""
        certificate = self.home / "certificate.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
                        "-nodes", "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2",
                        "-keyout", str(certificate), "-out", str(self.home / "trusted.pem")],
                       check=True, capture_output=True)
        with certificate.open("a", encoding="ascii") as both:
            both.write((self.home / "trusted.pem").read_text())
        trusted = {"SSL_CERT_FILE": str(self.home / "trusted.pem")}
        self.assertEqual(self.pin(self.registry(certificate=certificate).url, **trusted)[0], 0)
        self.file.write_text(DOCKERFILE)
        nothing = {"SSL_CERT_FILE": "/dev/null", "SSL_CERT_DIR": "/none"}
        self.assertIn("CERTIFICATE_VERIFY_FAILED", self.pin(self.registry(certificate=certificate).url, **nothing)[2])
        plain = self.registry("plain realm", certificate=certificate)
        self.assertIn("wanted HTTPS", self.pin(plain.url, **trusted)[2])
        self.assertEqual(self.file.read_text(), DOCKERFILE)

    def test_by_default_it_is_the_public_registry(self):
        nowhere = "127.0.0.1:9"  # no proxy answers there, so nothing leaves this machine
        error = self.pin("", https_proxy=f"http://{nowhere}", no_proxy="")[2]
        self.assertEqual(container_digest.DEFAULT_REGISTRY, "registry-1.docker.io")
        self.assertIn(f"https://{container_digest.DEFAULT_REGISTRY}/v2/nvidia/cuda/manifests/12.8.1-devel-ubuntu24.04: ", error)


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
        lines = [line for line in PAGE if line.startswith("docker ")]
        self.assertEqual(self.engine_findings(lines), [])
        self.assertEqual([line.split()[1] for line in lines], ["build", "run", "run", "run", "volume"])
        for good, bad, said in [("USER_ID=", "USER=", "build"), ("-f .dev", "-f dev", "build"),
                                (":/cache", ":/c", "run"), ("mkbench scripts", "mkbnch scripts", "run"),
                                ("scripts/test.sh", "scripts/tst.sh", "command"),
                                ("rm mkbench-cache", "rm mkbench-c", "other")]:
            found = self.engine_findings([line.replace(good, bad) for line in lines])
            self.assertTrue(found and found[0].startswith(said), (good, found))


if __name__ == "__main__":
    unittest.main()
