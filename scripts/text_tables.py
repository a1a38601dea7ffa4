"""Tables in Markdown."""


def markdown(headings: list, rows: list, right: tuple = (), padded: bool = True) -> str:
    """A Markdown table. `right`: indices of the columns that are aligned to the right. Padding aligns columns in a
    terminal too; without it a changed cell changes only one line of a committed file."""
    lines = [[str(cell).replace("|", "\\|") for cell in line] for line in (headings, *rows)]
    widths = [max(map(len, column)) if padded else 0 for column in zip(*lines)]
    rule = ["---" if not padded else "-" * (width + 1) + ":" if i in right else ":" + "-" * (width + 1)
            for i, width in enumerate(widths)]
    drawn = ["| " + " | ".join(cell.rjust(width) if i in right else cell.ljust(width)
                               for i, (cell, width) in enumerate(zip(line, widths))) + " |" for line in lines]
    return "\n".join([drawn[0], "|" + "|".join(rule) + "|", *drawn[1:]])
