"""The list of what must hold, printed line by line."""

from source_hash import KINDS

BOTH = " ".join(KINDS)


class Lines:
    """The list of what must hold, filled one line at a time."""

    def __init__(self):
        self.lines = []

    def add(self, what: str, holds: bool, found, rests_on: str = BOTH) -> None:
        """rests_on: the source hashes (scripts/source_hash.py) that must fit a tree for the line to hold there."""
        self.lines.append({"what": what, "holds": bool(holds), "found": str(found), "rests_on": rests_on})

    def all_hold(self) -> bool:
        return bool(self.lines) and all(line["holds"] for line in self.lines)

    def failed(self) -> list[str]:
        return [line["what"] for line in self.lines if not line["holds"]]

    def show(self) -> None:
        for line in self.lines:
            print(f"{'ok    ' if line['holds'] else 'FAILED'}  {line['what']}: {line['found']}")
        print(f"{len(self.lines)} lines, {len(self.failed())} failed")
