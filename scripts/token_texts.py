"""Texts of token ids, by the tokenizer.json of a model's folder.

As a program: reads {"FOLDER": [id, ...], ...} from standard input and prints {"FOLDER": {"pieces": {"id": "bytes in
hexadecimal", ...}}, ...}, with {"problem": "one line"} for a folder whose tokenizer cannot be used. mkbench calls it
once a report.
"""

import json
import pathlib
import re
import sys
import unicodedata

from hub_cache import BadInput


def byte_of_character():
    """The byte that each character of a byte-level BPE vocabulary stands for (GPT-2's table)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + i): b for i, b in enumerate(others)}


BYTES = byte_of_character()
SHORT = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}


def printable(text):
    """Text whose control characters are escaped."""
    out = []
    for c in text:
        if c in SHORT:
            out.append(SHORT[c])
        elif unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"):
            out.append(f"\\x{ord(c):02x}" if ord(c) < 256 else f"\\u{ord(c):04x}")
        else:
            out.append(c)
    return "".join(out)


class Tokenizer:
    """A folder's tokenizer. Adds no special tokens: what is written is what is encoded."""

    def __init__(self, folder):
        """Raises BadInput naming the file."""
        self.path = folder / "tokenizer.json"
        try:
            import tokenizers  # here, because a capture of ids alone needs no tokenizers
        except ImportError as error:
            raise BadInput(f"{error}; to install it: python3 -m pip install -r scripts/requirements/capture.txt") from None
        try:
            self.tokenizer = tokenizers.Tokenizer.from_file(str(self.path))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the library raises Exception itself, and a panic in it is no Exception
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BadInput(f"{self.path}: no tokenizer: {reason}") from None

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def text(self, token):
        """One id in printable characters; bytes that are no whole character as \\xNN."""
        whole = self.tokenizer.decode([token], skip_special_tokens=False)
        if whole and "\ufffd" not in whole:
            return printable(whole)
        raw = self.tokenizer.id_to_token(token)
        if raw is None:
            return f"<{token}>"  # a row of the embedding that no text uses
        if not all(c in BYTES for c in raw):
            return printable(raw)
        data = bytes(BYTES[c] for c in raw)
        return printable(data.decode("utf-8", errors="backslashreplace"))


    def piece(self, token):
        """The bytes that one id adds to a text."""
        raw = self.tokenizer.id_to_token(token) if 0 <= token < 1 << 32 else None
        if raw is None:
            return f"<{token}>".encode()  # a row of the embedding that no text uses
        if token in self.tokenizer.get_added_tokens_decoder():
            return raw.encode()
        if self.byte_level and all(c in BYTES for c in raw):
            return bytes(BYTES[c] for c in raw)
        if byte := re.fullmatch("<0x([0-9A-Fa-f]{2})>", raw):
            return bytes.fromhex(byte[1])
        return raw.replace("\u2581", " ").encode(errors="backslashreplace")  # a space, as SentencePiece writes it

    @property
    def byte_level(self):
        """Whether the vocabulary is written in GPT-2's characters for bytes."""
        return "ByteLevel" in repr(self.tokenizer.decoder)


def of_folder(folder):
    """The folder's tokenizer; None where it has no tokenizer.json. Raises BadInput for a defective one."""
    return Tokenizer(folder) if (folder / "tokenizer.json").is_file() else None


def answer(folder, ids):
    """What the program prints of one folder."""
    try:
        tokenizer = Tokenizer(pathlib.Path(folder))
        return {"pieces": {str(token): tokenizer.piece(token).hex() for token in ids}}
    except BadInput as error:
        return {"problem": str(error)}


def main():
    json.dump({folder: answer(folder, ids) for folder, ids in json.load(sys.stdin).items()}, sys.stdout)


if __name__ == "__main__":
    main()
