"""What does sharing a host cost? The times of cards that worked at once, beside those of one of them alone.

  beside.py ALONE BESIDE [--most 0.01] [--engine ring]

Both are folders of fleets of one plan, merged. Prints a table for the cards that are in both. Exit status: 0, or 1 where
the named engine takes longer beside others by more than --most, or is not in both.
"""

import argparse
import pathlib
import sqlite3
import statistics
import sys

QUERY = """SELECT r.card, x.depth, x.n_gen, x.engine, x.ms_per_tok, x.ms_per_tok_low, x.ms_per_tok_high, x.share
           FROM results x JOIN reports r USING (report) JOIN tries t ON t.report = r.report
           WHERE x.ms_per_tok IS NOT NULL AND t.outcome IN ('done', '')"""


def read(folder: pathlib.Path) -> dict:
    """(card, depth, n_gen, engine) -> rows of the repeats"""
    base = sqlite3.connect(folder / "fleet.sqlite")
    found = {}
    for row in base.execute(QUERY):
        found.setdefault(row[:4], []).append(row[4:])
    base.close()
    return found


def text(rows: list) -> str:
    ms, low, high = (statistics.median(row[i] for row in rows if row[i] is not None) if any(row[i] is not None for row in rows)
                     else None for i in range(3))
    return f"{ms:.4g}" + (f" [{low:.4g}, {high:.4g}]" if low is not None else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("alone", type=pathlib.Path)
    parser.add_argument("beside", type=pathlib.Path)
    parser.add_argument("--most", type=float, default=0.01)
    parser.add_argument("--engine", default="ring")
    arguments = parser.parse_args()
    alone, beside = read(arguments.alone), read(arguments.beside)
    both = sorted(key for key in alone if key in beside)
    if not any(engine == arguments.engine for _, _, _, engine in both):
        print(f"beside: no card and case of {arguments.engine} is in both folders", file=sys.stderr)
        return 1
    worst = 0.0
    print("| card | depth | engine | ms/tok alone | ms/tok beside | ratio | share alone | share beside |\n|" + "---|" * 8)
    for card, depth, n_gen, engine in both:
        rows = alone[card, depth, n_gen, engine], beside[card, depth, n_gen, engine]
        ratio = statistics.median(r[0] for r in rows[1]) / statistics.median(r[0] for r in rows[0])
        shares = [statistics.median(r[3] for r in side if r[3]) if any(r[3] for r in side) else None for side in rows]
        if engine == arguments.engine:
            worst = max(worst, ratio - 1)
        print(f"| {card[:12]} | {depth} | {engine} | {text(rows[0])} | {text(rows[1])} | {ratio:.4f} | "
              + " | ".join("-" if s is None else f"{100 * s:.1f} %" for s in shares) + " |")
    fits = worst <= arguments.most
    print(f"\n{arguments.engine} beside others: at most {100 * worst:+.2f} % of its time alone, wanted at most "
          f"{100 * arguments.most:+.2f} %: {'holds' if fits else 'does not hold'}")
    return 0 if fits else 1


if __name__ == "__main__":
    sys.exit(main())
