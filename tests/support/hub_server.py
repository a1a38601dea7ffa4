"""A hub of its own on loopback, and a hub cache as the client lays it out, for tests."""

import hashlib
import http.server
import json
import pathlib
import re
import threading
import urllib.parse

COMMIT = "5f" * 20


def git_blob_id(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """Serves the files of one repository as the hub does: large ones by a redirect, both with range requests."""

    def __init__(self, files, repository="Org/Tiny", commit=COMMIT):
        self.files, self.repository, self.commit = files, repository, commit
        self.requests = []  # (path, Range header)
        self.refuse = None  # HTTP status for the repository, or None
        self.revisions = ("main", "v1.0", commit)
        self.hashes = {}  # large file -> sha256 that /api/models claims
        self.wrong = {}  # file -> bytes that are sent instead
        self.stop_after = {}  # file -> bytes after which the connection hangs until the hub is closed
        self.closing = threading.Event()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            do_HEAD = do_GET

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://%s:%d" % self.server.server_address
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()

    def info(self):
        """What /api/models says with blobs=true."""
        siblings = []
        for name, data in self.files.items():
            sibling = {"rfilename": name, "size": len(data), "blobId": git_blob_id(data)}
            if is_large(name):
                sibling["lfs"] = {"sha256": self.hashes.get(name, hashlib.sha256(data).hexdigest()), "size": len(data), "pointerSize": 134}
            siblings.append(sibling)
        return {"_id": "1", "id": self.repository, "modelId": self.repository, "sha": self.commit, "private": False,
                "gated": False, "disabled": False, "downloads": 0, "likes": 0, "tags": [], "siblings": siblings}

    def answer(self, handler):
        path = urllib.parse.unquote(urllib.parse.urlsplit(handler.path).path)
        self.requests.append((path, handler.headers.get("Range")))
        api = re.fullmatch(rf"/api/models/{self.repository}/revision/(.+)", path)
        resolve = re.fullmatch(rf"/{self.repository}/resolve/{self.commit}/(.+)", path)
        content = re.fullmatch(r"/content/(.+)", path)
        if self.refuse and not content:
            codes = {401: "", 404: "RepoNotFound", 403: "GatedRepo"}
            return self.send(handler, self.refuse, b"", {"X-Error-Code": codes.get(self.refuse, ""),
                                                         "X-Error-Message": "refused by the test"})
        if api and api[1] in self.revisions:
            return self.send(handler, 200, json.dumps(self.info()).encode(), {"Content-Type": "application/json"})
        if api:
            return self.send(handler, 404, b"", {"X-Error-Code": "RevisionNotFound"})
        if resolve and is_large(resolve[1]):
            return self.send(handler, 302, b"", {"Location": f"{self.url}/content/{resolve[1]}"})
        if resolve or content:
            return self.send_file(handler, (resolve or content)[1])
        return self.send(handler, 404, b"", {"X-Error-Code": "RepoNotFound"})

    def send(self, handler, status, body, headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    def send_file(self, handler, name):
        data = self.wrong.get(name, self.files[name])
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range") or "")
        begin = int(asked[1]) if asked else 0
        handler.send_response(206 if asked else 200)
        if asked:
            handler.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - begin))
        handler.end_headers()
        end = self.stop_after.get(name, len(data))
        handler.wfile.write(data[begin:end])
        if end < len(data):
            handler.wfile.flush()
            self.closing.wait(60)
            handler.close_connection = True


def is_large(name):
    return name.endswith(".safetensors") or name == "tokenizer.json"


def byte_tokenizer():
    """tokenizer.json of a vocabulary whose first 256 ids are the bytes: that of the committed tiny checkpoints."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers

    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    vocabulary = {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<bos>", "<eos>", "<pad>"])
    return tokenizer.to_str().encode()


def sharded(folder, shards=2):
    """The files of a checkpoint folder with its weights in shards, and a tokenizer: name -> bytes."""
    import safetensors.torch

    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    names = sorted(tensors)
    files = {"config.json": (folder / "config.json").read_bytes(), "tokenizer.json": byte_tokenizer()}
    weight_map = {}
    for i in range(shards):
        shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[i::shards]
        files[shard] = safetensors.torch.save({name: tensors[name] for name in part}, {"format": "pt"})
        weight_map |= {name: shard for name in part}
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    files["model.safetensors.index.json"] = json.dumps(index).encode()
    return files


def make_cache(cache, files, repository="Org/Tiny", commit=COMMIT):
    """models--ORG--NAME/{blobs,refs,snapshots} in `cache`; returns the snapshot."""
    root = pathlib.Path(cache) / ("models--" + repository.replace("/", "--"))
    snapshot = root / "snapshots" / commit
    for folder in (root / "blobs", root / "refs", snapshot):
        folder.mkdir(parents=True)
    for name, data in files.items():
        blob = hashlib.sha256(data).hexdigest() if is_large(name) else git_blob_id(data)
        (root / "blobs" / blob).write_bytes(data)
        (snapshot / name).symlink_to(f"../../blobs/{blob}")
    (root / "refs" / "main").write_text(commit)
    return snapshot
