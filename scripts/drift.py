"""Steps in a history: where the times of an engine changed for good, by how much, and whether the card or the kernel did.

Each engine of a case has a control in the same run, which a change of the machine slows as much as the engine: the ceiling,
without one the first baseline. A step of the control is the card's (or its driver's, or the library's), one of the engine's
time over the control's is the kernel's.

Levels are found by circular binary segmentation (Olshen and others, 2004): the stretch of runs that differs most from the
rest, which also finds a slowdown that was mended; a permutation test says whether it is noise.
"""

import dataclasses
import functools

import numpy

LEAST = 5  # runs of a level
ENOUGH = 12  # runs of a series below which the permutation test can hardly tell anything
MOST = 250  # runs that are looked at, the latest
DRAWS = 1999  # of the permutation test, and of the bootstrap
LEVEL = 0.005  # of the permutation test
CONFIDENCE = 0.95  # of a step's intervals
LEAST_SHARE = 0.005  # a step must exceed this much, or the margin of the calibration if that is more
CELLS = 1 << 22  # numbers that the permutation test holds at a time


@dataclasses.dataclass
class Series:
    """Times, or ratios of times, of finished runs in the order in which they began; all over 0."""

    card: str
    case: str
    engine: str
    of: str  # "kernel": over the control's; "card": the control's own; "either": there is no control
    control: str
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

    @property
    def least(self) -> float:
        """The ratio that its interval must exceed: by the margins of the runs on both sides."""
        return 1 + max(margin_of(self.series.runs), LEAST_SHARE)

    @property
    def counts(self) -> bool:
        return self.low > self.least or self.high < 1 / self.least


def margin_of(runs: list) -> float:
    """The median of the runs' margins: a single bad calibration mutes nothing."""
    return float(numpy.median([run.get("margin") or 0.0 for run in runs]))


def short(engine: str) -> str:
    return engine.rsplit("/", 1)[-1]


def geometric_mean(values: list) -> float:
    return float(numpy.exp(numpy.log(values).mean()))


@functools.cache
def stretches(n: int) -> tuple:
    """Begins, ends and weights of all stretches of n runs that leave no level below LEAST runs."""
    begin, end = numpy.triu_indices(n + 1, LEAST)
    fits = (n - (end - begin) >= LEAST) & ((begin == 0) | (begin >= LEAST)) & ((end == n) | (n - end >= LEAST))
    begin, end = begin[fits], end[fits]
    return begin, end, n / ((end - begin) * (n - (end - begin)))


def differences(logs: numpy.ndarray) -> numpy.ndarray:
    """For each row, whose mean is 0, and each stretch the squares between it and the rest."""
    begin, end, weight = stretches(logs.shape[1])
    sums = numpy.concatenate([numpy.zeros((len(logs), 1)), logs.cumsum(axis=1)], axis=1)
    return (sums[:, end] - sums[:, begin]) ** 2 * weight


def is_noise(logs: numpy.ndarray, found: float) -> bool:
    """Whether at least LEVEL of the orders of the same values have a stretch that differs as much."""
    source, allowed, left = numpy.random.default_rng(len(logs)), LEVEL * (DRAWS + 1) - 1, DRAWS
    part = max(1, CELLS // len(stretches(len(logs))[0]))
    while left > 0 and allowed >= 0:
        drawn = source.permuted(numpy.tile(logs, (min(left, part, 64), 1)), axis=1)
        allowed -= (differences(drawn).max(axis=1) >= found * (1 - 1e-9)).sum()
        left -= len(drawn)
    return allowed < 0


def cuts_of(logs: numpy.ndarray, begin: int = 0) -> list:
    """Where the level of logs changes, counted from `begin`."""
    if len(logs) < 2 * LEAST:
        return []
    centred = logs - logs.mean()
    squares = differences(centred[None])[0]
    best = squares.argmax()
    if is_noise(centred, squares[best]):
        return []
    inner = [int(place[best]) for place in stretches(len(logs))[:2] if 0 < place[best] < len(logs)]
    cuts, bounds = [begin + place for place in inner], [0, *inner, len(logs)]
    for a, b in zip(bounds, bounds[1:]):
        cuts += cuts_of(logs[a:b], begin + a)
    return sorted(cuts)


def ends(values: numpy.ndarray) -> tuple:
    return tuple(numpy.quantile(values, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2), method="nearest"))


def step_of(series: Series, begin: int, at: int, end: int) -> Step:
    """The step between two neighbouring levels of a series, with intervals by a bootstrap of the runs on each side."""
    logs, source = numpy.log(series.values), numpy.random.default_rng(at)
    before, after = logs[begin:at], logs[at:end]
    drawn = [source.choice(side, (DRAWS, len(side))) for side in (before, after)]
    low, high = ends(drawn[1].mean(axis=1) - drawn[0].mean(axis=1))
    both = numpy.concatenate(drawn, axis=1)
    n = end - begin
    sums, k = (both - both.mean(axis=1, keepdims=True)).cumsum(axis=1), numpy.arange(LEAST, n - LEAST + 1)
    first, last = ends(begin + k[(sums[:, k - 1] ** 2 / (k * (n - k))).argmax(axis=1)])
    ratio, low, high = (float(numpy.exp(x)) for x in (after.mean() - before.mean(), low, high))
    return Step(dataclasses.replace(series, runs=series.runs[begin:end]), at, ratio, low, high, int(first), int(last))


def steps_of(series: Series) -> list:
    """The steps of a series that exceed its margin with all of their interval, in their order. Of levels that differ by less
    the nearest two become one, so that a slow climb is told, too."""
    skipped = max(0, len(series.values) - MOST)
    cuts = cuts_of(numpy.log(series.values[skipped:]), skipped)
    while cuts:
        bounds = [skipped, *cuts, len(series.values)]
        steps = [step_of(series, *places) for places in zip(bounds, bounds[1:], bounds[2:])]
        weak = [step for step in steps if not step.counts]
        if not weak:
            return [dataclasses.replace(step, series=series) for step in steps]
        cuts.remove(min(weak, key=lambda step: abs(numpy.log(step.ratio))).at)
    return []


def control_of(row: dict, rows: list) -> tuple:
    """Name and time of the row's control among the rows of its run and case: ("", None) without one."""
    if row.get("share"):
        return "ceiling", row["share"] * row["ms_per_tok_mean"]
    if row["role"] != "candidate":
        return "", None
    return next(((one["engine"], one["ms_per_tok_mean"]) for one in rows if one["role"] == "baseline"), ("", None))


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
                one = made.setdefault(key, Series(*key, [], []))
                if one.runs and one.runs[-1]["run"] == run:  # the control of another engine, too
                    continue
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
    text = (f"{series.case}, {short(series.engine)}: {100 * abs(step.ratio - 1):.1f} % {'slower' if slower else 'quicker'} "
            f"[{shares[0]:.1f}, {shares[1]:.1f}] from {run['started'][:16]} ({run['label']}) on")
    if step.first != step.last:
        text += f", or from one of {series.runs[step.first]['started'][:16]} to {series.runs[step.last]['started'][:16]}"
    return f"{text}: {blame}"


def found_in(rows: list) -> list:
    """The series of a history's rows, each with its steps."""
    return [(series, steps_of(series)) for series in series_of(rows)]


def sentences(found: list, card: str, case: str = "") -> list:
    """A sentence for each step on a card, of one case or of all."""
    return [sentence(step) for series, steps in found for step in steps if series.card == card and case in ("", series.case)]


def none_found(found: list, card: str) -> str:
    """What is said of a card without steps."""
    runs = max((len(series.values) for series, _ in found if series.card == card), default=0)
    if runs < ENOUGH:
        return f"too few runs to tell a step from noise: {runs}, about {ENOUGH} are needed"
    return "no step is told from noise"
