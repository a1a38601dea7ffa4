"""Steps in a history: where the times of an engine changed for good, by how much, and whether the card or the kernel did.

Each engine of a case has a control in the same run, which a change of the machine slows as much as the engine: the ceiling,
without one the first baseline. A step of the control is the card's (or its driver's, or the library's), one of the engine's
time over the control's is the kernel's.
"""

import dataclasses
import math
import random

LEAST = 5  # runs on each side of a step
DRAWS = 1999  # of the permutation test, and of the bootstrap
LEVEL = 0.001  # of the permutation test: a history has many series, and each is tested again with every run
CONFIDENCE = 0.95  # of a step's intervals
LEAST_SHARE = 0.005  # a step must exceed this much, or the margin of the calibration if that is more


@dataclasses.dataclass
class Series:
    """Times, or ratios of times, of finished runs in the order in which they began; all over 0."""

    card: str
    case: str
    engine: str
    of: str  # "kernel": over the control's; "card": the control's own; "either": there is no control
    control: str
    margin: float
    runs: list
    values: list


@dataclasses.dataclass
class Step:
    series: Series
    at: int  # index of the first run after the step
    ratio: float  # later over earlier, geometric means
    low: float
    high: float
    first: int  # the step lies at one of the runs first..last
    last: int


def best_split(logs: list) -> tuple:
    """The split with the largest |t| of two equal variances: (t, index); LEAST values on each side."""
    n, total, squares = len(logs), math.fsum(logs), math.fsum(x * x for x in logs)
    best, left, left_squares = (0.0, 0), 0.0, 0.0
    for k in range(1, n - LEAST + 1):
        left += logs[k - 1]
        left_squares += logs[k - 1] ** 2
        if k < LEAST:
            continue
        right = total - left
        within = squares - left * left / k - right * right / (n - k)
        error = math.sqrt(max(within, 1e-18) / (n - 2) * (1 / k + 1 / (n - k)))
        best = max(best, (abs(right / (n - k) - left / k) / error, k))
    return best


def mean(values: list) -> float:
    return math.fsum(values) / len(values)


def geometric_mean(values: list) -> float:
    return math.exp(mean([math.log(value) for value in values]))


def is_step(logs: list, t: float, source: random.Random) -> bool:
    """Whether fewer than LEVEL of the orders of the same values have a split as clear as this one."""
    allowed, shuffled = LEVEL * (DRAWS + 1) - 1, list(logs)
    for _ in range(DRAWS):
        source.shuffle(shuffled)
        allowed -= best_split(shuffled)[0] >= t
        if allowed < 0:
            return False
    return True


def ends(values: list) -> tuple:
    values, cut = sorted(values), (1 - CONFIDENCE) / 2
    return values[round(cut * (len(values) - 1))], values[round((1 - cut) * (len(values) - 1))]


def cuts_of(logs: list, begin: int = 0) -> list:
    """Where the level of logs changes, counted from `begin`: the clearest place, then those of both parts."""
    if len(logs) < 2 * LEAST:
        return []
    t, k = best_split(logs)
    if not is_step(logs, t, random.Random(len(logs))):
        return []
    return [*cuts_of(logs[:k], begin), begin + k, *cuts_of(logs[k:], begin + k)]


def step_of(series: Series, begin: int, at: int, end: int) -> Step:
    """The step between two neighbouring levels of a series, with intervals by a bootstrap of the runs on each side."""
    logs, source, sizes, places = [math.log(value) for value in series.values], random.Random(at), [], []
    before, after = logs[begin:at], logs[at:end]
    for _ in range(DRAWS):
        drawn = source.choices(before, k=len(before)), source.choices(after, k=len(after))
        sizes.append(mean(drawn[1]) - mean(drawn[0]))
        places.append(begin + best_split(drawn[0] + drawn[1])[1])
    return Step(series, at, *map(math.exp, (mean(after) - mean(before), *ends(sizes))), *ends(places))


def steps_of(series: Series) -> list:
    """The steps of a series that exceed its margin with all of their interval, in their order."""
    cuts = [0, *cuts_of([math.log(value) for value in series.values]), len(series.values)]
    least = 1 + max(series.margin, LEAST_SHARE)
    steps = [step_of(series, *places) for places in zip(cuts, cuts[1:], cuts[2:])]
    return [step for step in steps if step.low > least or step.high < 1 / least]


def control_of(row: dict, rows: list) -> tuple:
    """Name and time of the row's control among the rows of its run and case: ("", None) without one."""
    if row.get("share"):
        return "ceiling", row["share"] * row["ms_per_tok_mean"]
    if row["role"] != "candidate":
        return "", None
    return next(((one["engine"], one["ms_per_tok_mean"]) for one in rows if one["role"] == "baseline" and one["ms_per_tok_mean"]),
                ("", None))


def series_of(rows: list) -> list:
    """The series of a history's rows (history.read_rows): of each engine, and of each control, for each card and case."""
    cases, made = {}, {}
    for row in sorted(rows, key=lambda row: (row["started"], row["run"])):
        if row["ms_per_tok_mean"]:
            cases.setdefault((row["run"], row["case_name"]), []).append(row)
    for (run, case), mine in cases.items():
        for row in mine:
            control, ms = control_of(row, mine)
            time = row["ms_per_tok_mean"]
            for of, engine, value in (("kernel", row["engine"], time / ms), ("card", control, ms)) if ms else \
                    (("either", row["engine"], time),):
                key = row["card"], case, engine, of, control
                one = made.setdefault(key, Series(*key, 0.0, [], []))
                if one.runs and one.runs[-1]["run"] == run:  # the control of another engine, too
                    continue
                one.margin = max(one.margin, row.get("margin") or 0.0)
                one.runs.append(row)
                one.values.append(value)
    # A baseline's own series says the same as the control that it is.
    controls = {(s.card, s.case, s.engine) for s in made.values() if s.of == "card"}
    return [s for s in made.values() if s.of != "either" or (s.card, s.case, s.engine) not in controls]


def sentence(step: Step) -> str:
    """"synthetic d=0 n=64, ring: 2.0 % slower [1.8, 2.3] from 2026-11-14T03:00 (a1c06ad3) on: the kernel, over the ceiling"."""
    series, run = step.series, step.series.runs[step.at]
    slower = step.ratio > 1
    shares = sorted(100 * abs(ratio - 1) for ratio in (step.low, step.high))
    control = "the ceiling" if series.control == "ceiling" else series.control
    blame = {"kernel": f"the kernel, over {control}", "card": "the card or what runs on it, not a kernel",
             "either": "the kernel or the card: the runs have no control"}[series.of]
    text = (f"{series.case}, {series.engine.rsplit('/', 1)[-1]}: {100 * abs(step.ratio - 1):.1f} % {'slower' if slower else 'quicker'} "
            f"[{shares[0]:.1f}, {shares[1]:.1f}] from {run['started'][:16]} ({run['label']}) on")
    if step.first != step.last:
        text += f", or from {series.runs[step.first]['started'][:16]} to {series.runs[step.last]['started'][:16]}"
    return f"{text}: {blame}"


def found_in(rows: list) -> list:
    """The series of a history's rows, each with its steps."""
    return [(series, steps_of(series)) for series in series_of(rows)]


def sentences(found: list, card: str, case: str = "") -> list:
    """A sentence for each step on a card, of one case or of all."""
    return [sentence(step) for series, steps in found for step in steps if series.card == card and case in ("", series.case)]
