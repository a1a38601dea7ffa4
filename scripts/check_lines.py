"""The list of what must hold, printed line by line."""


class Lines:
    """The list of what must hold, filled one line at a time."""

    def __init__(self):
        self.lines = []

    def add(self, what: str, holds: bool, found) -> None:
        self.lines.append({"what": what, "holds": bool(holds), "found": str(found)})

    def all_hold(self) -> bool:
        return bool(self.lines) and all(line["holds"] for line in self.lines)

    def failed(self) -> list[str]:
        return [line["what"] for line in self.lines if not line["holds"]]

    def show(self) -> None:
        for line in self.lines:
            print(f"{'ok    ' if line['holds'] else 'FAILED'}  {line['what']}: {line['found']}")
        print(f"{len(self.lines)} lines, {len(self.failed())} failed")
