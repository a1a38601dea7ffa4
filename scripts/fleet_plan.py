"""The plan of a fleet: a TOML file, read strictly, and the cells that follow from its axes.

A cell is one `mkbench run`. The cells are the product of the axes; an entry of an axis that is a list stands for one run
over all of it, so what must share a card stands in one entry.
"""

import dataclasses
import difflib
import itertools
import pathlib
import re
import tomllib

# Flags of mkbench run that the fleet sets itself, from the plan's other fields.
OWNED = ("model", "engine", "n-depth", "n-gen", "compare", "device", "gpu", "out", "resume", "dry-run", "list-devices",
         "history", "baseline", "save-baseline", "junit", "output", "plot")
MOST_MATRIX_JOBS = 256  # GitHub's limit of a matrix


class BadPlan(Exception):
    """A plan that cannot be used; the message names file, field, found and wanted."""


class Unfit(Exception):
    """A value, or a part of one, that a field cannot have; the message says what is wanted."""

    def __init__(self, wanted: str, part=None):
        super().__init__(wanted)
        self.part = part


# Readers of a value in the file: each returns the value for the plan, or raises Unfit.

def value(kind: type, wanted: str, fits=lambda found: True):
    def read(found):
        if not isinstance(found, kind) or isinstance(found, bool) != (kind is bool) or not fits(found):
            raise Unfit(wanted)
        return found
    return read


def whole(least: int):
    return value(int, f"a whole number of at least {least}", lambda v: v >= least)


def number_of(what: str):
    return value((int, float), f"a number of {what} over 0", lambda v: 0 < v < 1e6)


def text(pattern: str = ""):
    return value(str, f"a text of the form {pattern}" if pattern else "a text",
                 lambda v: re.fullmatch(pattern or r"[^\n\0]+", v))


def texts(found) -> tuple:
    return tuple(value(list, "a list of texts", lambda v: all(isinstance(t, str) and t for t in v))(found))


def axis(fits, things: str):
    """A reader of an axis, a list of values or lists of values; an entry becomes the tuple that one run takes."""
    def read(found):
        entries = [tuple(e) if isinstance(e, list) else (e,) for e in found] if isinstance(found, list) else []
        if not entries or not all(e and all(map(fits, e)) and len(set(e)) == len(e) for e in entries) or \
                len(set(entries)) < len(entries):
            raise Unfit(f"a list of {things}, or of lists of them, each once")
        return tuple(entries)
    return read


def names():
    return axis(lambda v: isinstance(v, str) and v and "," not in v, "names")


def numbers(least: int):
    return axis(lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= least,
                f"whole numbers of at least {least}")


def read_options(found) -> tuple:
    for option in texts(found):
        name = re.match(r"--(?:no-)?([a-z-]+)(?==|$)", option)
        if not name:
            raise Unfit("flags of mkbench run as --name=value", option)
        if name[1] in OWNED:
            raise Unfit(f"none that the fleet sets itself: {', '.join(OWNED)}", option)
    return tuple(found)


EXCLUDED = {"model": "models", "depth": "depths", "engine": "engines", "n_gen": "n_gen"}  # key -> axis of the plan


def read_exclude(found) -> tuple:
    if not isinstance(found, list) or not all(isinstance(row, dict) and row and set(row) <= set(EXCLUDED) for row in found):
        raise Unfit(f"tables [[exclude]] with one or more of {', '.join(EXCLUDED)}")
    return tuple({key: tuple(one) if isinstance(one, list) else (one,) for key, one in row.items()} for row in found)


def key(default, read):
    """A field of the plan that the file may have."""
    return dataclasses.field(default=default, metadata={"read": read})


@dataclasses.dataclass(frozen=True)
class Cards:
    each: bool = key(True, value(bool, "true or false"))  # every cell on every card; false: on any one
    count: int = key(0, whole(1))  # how many cards there are; 0: those that this machine shows
    only: tuple = key((), texts)  # beginnings of uuids; empty: all
    stand_ins: int = key(0, whole(1))  # device cpu: jobs of this machine that each stand for a card

    def takes(self, card_id: str) -> bool:
        return not self.only or card_id.startswith(self.only)


@dataclasses.dataclass(frozen=True)
class Slurm:
    partition: str = key("", text(r"[\w.,-]+"))
    account: str = key("", text(r"[\w.,-]+"))
    minutes: int = key(60, whole(1))  # time limit of a job, which takes cell after cell
    jobs: int = key(0, whole(1))  # most jobs at a time; 0: as many as cards or cells
    cpus: int = key(0, whole(1))
    memory_gb: int = key(0, whole(1))
    srun: tuple = key((), texts)  # options of srun, as --container-image=...
    sbatch: dict | None = key(None, value(dict, "a table of sbatch's options"))  # their names without dashes
    setup: tuple = key((), texts)  # lines of shell before a job's work


@dataclasses.dataclass(frozen=True)
class Plan:
    name: str = key("fleet", text(r"[\w.-]+"))
    models: tuple = key((), names())
    engines: tuple = key((), names())
    depths: tuple = key(((0,),), numbers(0))
    n_gen: tuple = key(((128,),), numbers(1))
    compare: tuple = key(("eager",), texts)
    repeats: int = key(1, whole(1))
    tries: int = key(2, whole(1))  # most tries of a cell that fails
    minutes: float = key(30, number_of("minutes"))  # time limit of a cell
    device: str = key("cuda", text("cuda|cpu"))
    options: tuple = key((), read_options)  # of mkbench run, for all cells
    program: str = key("", text())  # the mkbench of the nodes; empty: this one
    heartbeat_s: float = key(5, number_of("seconds"))  # time between beats; twelve missed ones lose a claim
    exclude: tuple = key((), read_exclude)
    cards: Cards = key(Cards(), Cards)
    slurm: Slurm = key(Slurm(), Slurm)


@dataclasses.dataclass(frozen=True)
class Cell:
    id: str
    model: str
    engines: tuple
    depths: tuple
    n_gen: tuple
    repeat: int

    @property
    def base(self) -> str:
        """What all copies of a cell have in common: the copies run on different cards."""
        return base_of(self.id)


def base_of(cell_id: str) -> str:
    return cell_id.split("+", 1)[0]


def read_table(kind: type, where: str, table: dict):
    """A plan, or a part of one, from a table of the file. `where` begins the messages."""
    fields, found = {f.name: f for f in dataclasses.fields(kind)}, {}
    for name, given in table.items():
        if name not in fields:
            near = difflib.get_close_matches(name, fields, 1)
            hint = f"; did you mean '{near[0]}'?" if near else ""
            raise BadPlan(f"{where}{name}: unknown key, wanted one of {', '.join(fields)}{hint}")
        read = fields[name].metadata["read"]
        try:
            if dataclasses.is_dataclass(read):
                value(dict, f"a table [{name}]")(given)
                found[name] = read_table(read, f"{where}{name}.", given)
            else:
                found[name] = read(given)
        except Unfit as wanted:
            raise BadPlan(f"{where}{name}: found {(wanted.part or given)!r}, wanted {wanted}") from None
    return kind(**found)


def read_plan(path: pathlib.Path) -> Plan:
    file = str(path)
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadPlan(f"{file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPlan(f"{file}: no TOML: {error}") from None
    return with_paths(plan_of(file, table), path.resolve().parent)


def with_paths(plan: Plan, folder: pathlib.Path) -> Plan:
    """Engines' files and snapshot folders by their whole paths; a relative one counts from the plan's folder."""
    def whole_path(name: str, is_path: bool) -> str:
        return str(folder / name) if is_path else name

    return dataclasses.replace(
        plan, program=whole_path(plan.program, bool(plan.program)),
        engines=tuple(tuple(whole_path(e, e.endswith((".so", ".py"))) for e in entry) for entry in plan.engines),
        models=tuple(tuple(whole_path(m, m.startswith(("/", "./", "../"))) for m in entry) for entry in plan.models))


def plan_of(file: str, table: dict) -> Plan:
    """The plan that a table holds; `file` is what messages call it."""
    for name in ("models", "engines"):
        if name not in table:
            raise BadPlan(f"{file}: {name}: not there, wanted a list with at least one name")
    plan = read_table(Plan, f"{file}: ", table)
    for number, row in enumerate(plan.exclude):
        for name, entry in row.items():
            if entry not in getattr(plan, EXCLUDED[name]):
                raise BadPlan(f"{file}: exclude[{number}].{name}: found {table['exclude'][number][name]!r}, wanted an entry of "
                              f"{EXCLUDED[name]}")
    if plan.cards.stand_ins and plan.device != "cpu":
        raise BadPlan(f"{file}: cards.stand_ins: found {plan.cards.stand_ins} with device = \"{plan.device}\", wanted "
                      "device = \"cpu\": only a job on the CPU stands in for a card")
    if not cells_of(plan, 1):
        raise BadPlan(f"{file}: exclude: no cell is left")
    return plan


def table_of(plan) -> dict:
    """A plan as a table of plain values, which plan_of() reads again. Defaults are left out."""
    def plain(found):
        if dataclasses.is_dataclass(found):
            return table_of(found)
        if isinstance(found, dict):
            return {name: plain(inner) for name, inner in found.items()}
        return [plain(inner) for inner in found] if isinstance(found, tuple) else found

    return {f.name: plain(getattr(plan, f.name)) for f in dataclasses.fields(plan) if getattr(plan, f.name) != f.default}


def slug(text: str) -> str:
    """The text for use in names of files: letters, digits, '.' and '-' stay, all else becomes '_', also '+' and '@', which
    separate the parts of a marker's name."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text)[:40].strip("._") or "_"


def cells_of(plan: Plan, cards: int) -> list:
    """All cells in the order in which they are taken; with `each` a copy for each of `cards` cards."""
    cells = []
    for repeat in range(plan.repeats):
        for model, engines, n_gen, depths in itertools.product(plan.models, plan.engines, plan.n_gen, plan.depths):
            entry = {"model": model, "engine": engines, "n_gen": n_gen, "depth": depths}
            if any(all(entry[name] == excluded for name, excluded in row.items()) for row in plan.exclude):
                continue
            words = "-".join((*(slug(m.rsplit("/", 1)[-1]) for m in model),
                              *(slug(e.rsplit("/", 1)[-1]) for e in engines),
                              "d" + "_".join(map(str, depths)), "n" + "_".join(map(str, n_gen))))[:60]
            base = f"{len(cells):05d}-{words}-r{repeat + 1}"
            cells.append(Cell(base, ",".join(model), engines, depths, n_gen, repeat + 1))
    if not plan.cards.each:
        return cells
    return [dataclasses.replace(cell, id=f"{cell.id}+{copy:04d}") for cell in cells for copy in range(cards)]


def arguments_of(plan: Plan, cell: Cell, out: str) -> list:
    """The arguments of mkbench for a cell."""
    together = {"--model": cell.model, "--engine": ",".join(cell.engines), "--compare": ",".join(plan.compare) or "none",
                "--n-depth": ",".join(map(str, cell.depths)), "--n-gen": ",".join(map(str, cell.n_gen)),
                "--device": plan.device, "--out": out}
    return ["run", *(f"{name}={value}" for name, value in together.items()), "--plot=off", *plan.options]
