"""Tables in Markdown, with columns that stand under each other in a terminal too."""


def markdown(headings: list, rows: list, right: tuple = ()) -> str:
    """Headings and rows of texts; `right` has the numbers of the columns that are set to the right."""
    lines = [[str(cell).replace("|", "\\|") for cell in line] for line in (headings, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines)]
    rule = [f"{'-' * (width + 1)}:" if i in right else f":{'-' * (width + 1)}" for i, width in enumerate(widths)]
    text = [[cell.rjust(width) if i in right else cell.ljust(width) for i, (cell, width) in enumerate(zip(line, widths))]
            for line in lines]
    drawn = ["| " + " | ".join(line) + " |" for line in text]
    return "\n".join([drawn[0], "|" + "|".join(rule) + "|", *drawn[1:]])
