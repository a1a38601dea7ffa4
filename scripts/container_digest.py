#!/usr/bin/env python3
"""Pins the container file's image: asks its registry for the digest of the tag and writes it into the FROM line.

usage: scripts/container_digest.py [--image NAME:TAG] [--registry URL] [--file DOCKERFILE]

The registry's v2 API is spoken over HTTPS, with the token that its own challenge names. The digest is computed from the
manifest that was received, and must be the one that the registry states. Nothing is written unless all of it holds;
exit code 1 otherwise. --image changes the image too; without it the tag stays as the file has it.
"""

import argparse
import hashlib
import json
import os
import pathlib
import re
import sys
import urllib.error
import urllib.parse
import urllib.request

from tracked_files import ROOT

DOCKERFILE = ROOT / ".devcontainer" / "Dockerfile"
# Where images without a host in their name live.
DEFAULT_REGISTRY = "registry-1.docker.io"
FROM = re.compile(r"^FROM (?P<name>[^\s:@]+):(?P<tag>[^\s:@]+)(?:@(?P<digest>\S+))?$", re.MULTILINE)
IMAGE = re.compile(r"(?P<name>[a-z0-9]+(?:(?:/|[._]|__|-+)[a-z0-9]+)*):(?P<tag>[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})")
# An index (of several platforms) first: its digest serves every platform.
MANIFESTS = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json",
             "application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
TIMEOUT_S = 30
MAX_BYTES = 4 << 20  # the size of a manifest that every registry must accept


class Refused(Exception):
    """The digest could not be had; the text is the line that the user sees."""


def get(url: str, token: str = "") -> tuple[bytes, dict[str, str]]:
    """The answer's body and headers, their names in lower case. HTTPError where the status is no success."""
    request = urllib.request.Request(url, headers={"Accept": ", ".join(MANIFESTS)})
    if token:
        # Not sent on to where a registry redirects.
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            body = answer.read(MAX_BYTES + 1)
            headers = {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError:
        raise
    except (OSError, ValueError) as failure:  # URLError is an OSError
        raise Refused(f"{url}: {getattr(failure, 'reason', failure)}") from None
    if len(body) > MAX_BYTES:
        raise Refused(f"{url}: the answer is longer than {MAX_BYTES} bytes")
    return body, headers


def token_of(challenge: str, name: str, url: str) -> str:
    """The token for reading an image, from where a registry's challenge (WWW-Authenticate) says."""
    scheme, _, rest = challenge.partition(" ")
    fields = dict(re.findall(r'(\w+)="([^"]*)"', rest))
    realm = urllib.parse.urlsplit(fields.get("realm", ""))
    if scheme.lower() != "bearer" or not realm.netloc:
        raise Refused(f"{url}: the registry asks for '{scheme}', wanted a Bearer challenge with a realm")
    if realm.scheme != "https" and urllib.parse.urlsplit(url).scheme == "https":
        raise Refused(f"{url}: the registry sends for a token to {fields['realm']}, wanted HTTPS")
    query = {"scope": f"repository:{name}:pull"}
    if "service" in fields:
        query["service"] = fields["service"]
    where = f"{fields['realm']}?{urllib.parse.urlencode(query)}"
    try:
        answer = json.loads(get(where)[0])
        return str(answer.get("token") or answer["access_token"])
    except urllib.error.HTTPError as failure:
        raise Refused(f"{where}: HTTP {failure.code}, wanted a token") from None
    except (ValueError, KeyError, AttributeError, TypeError):
        raise Refused(f"{where}: the answer holds no token") from None


def digest_of(registry: str, name: str, tag: str) -> str:
    """The digest of an image's manifest, computed and compared with what the registry states."""
    if "/" not in name:
        name = f"library/{name}"  # where the public registry keeps names without an owner
    url = f"{registry.rstrip('/')}/v2/{name}/manifests/{tag}"
    try:
        try:
            body, headers = get(url)
        except urllib.error.HTTPError as failure:
            if failure.code != 401:
                raise
            challenge = failure.headers.get("WWW-Authenticate", "")
            body, headers = get(url, token_of(challenge, name, url))
    except urllib.error.HTTPError as failure:
        what = "there is no such image" if failure.code == 404 else failure.reason
        raise Refused(f"{url}: HTTP {failure.code}, {what}") from None
    kind = headers.get("content-type", "").split(";")[0]
    if kind not in MANIFESTS:
        raise Refused(f"{url}: the answer is of the type '{kind}', wanted a manifest")
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    stated = headers.get("docker-content-digest")
    if stated not in (None, digest):
        raise Refused(f"{url}: the registry states the digest {stated}, what it sent has {digest}")
    return digest


def pinned(text: str, path: pathlib.Path, image: str | None, registry: str) -> tuple[str, str]:
    """The container file's text with its image pinned, and the new FROM line."""
    lines = FROM.findall(text)
    if len(lines) != 1:
        raise Refused(f"{path}: FROM: found {len(lines)} lines of the form NAME:TAG, wanted one")
    wanted = IMAGE.fullmatch(image or "{}:{}".format(*lines[0]))
    if not wanted:
        raise Refused(f"--image: found '{image}', wanted NAME:TAG")
    digest = digest_of(registry, wanted["name"], wanted["tag"])
    line = f"FROM {wanted['name']}:{wanted['tag']}@{digest}"
    return FROM.sub(line, text), line


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--image")
    parser.add_argument("--registry", default="https://" + DEFAULT_REGISTRY)
    parser.add_argument("--file", type=pathlib.Path, default=DOCKERFILE)
    options = parser.parse_args()
    try:
        text, line = pinned(options.file.read_text(encoding="utf-8"), options.file, options.image, options.registry)
        # Replaced in one step, so that an interruption leaves the old file.
        new = options.file.with_name(options.file.name + ".new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, options.file)
    except (Refused, OSError) as failure:
        print(f"container_digest: error: {failure}", file=sys.stderr)
        return 1
    print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
