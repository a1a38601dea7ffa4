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

AXES = ("models", "depths", "engines", "n_gen")
WORD_AXES = ("models", "engines")
# What the plan or the fleet decides, in their own words.
OWNED = ("model", "engine", "n-depth", "n-gen", "compare", "device", "gpu", "out", "resume", "dry-run", "list-devices",
         "history", "baseline", "save-baseline", "junit", "output", "plot")
MOST_MATRIX_JOBS = 256  # GitHub's limit of a matrix


class BadPlan(Exception):
    """A plan that cannot be used; the message names file, field, found and wanted."""


@dataclasses.dataclass(frozen=True)
class Cards:
    each: bool = True  # every cell on every card; false: on any one
    count: int = 0  # how many cards there are; 0: those that this machine shows
    only: tuple = ()  # beginnings of uuids; empty: all
    stand_ins: int = 0  # device cpu: jobs of this machine that each stand for a card

    def takes(self, card_id: str) -> bool:
        return not self.only or card_id.startswith(self.only)


@dataclasses.dataclass(frozen=True)
class Slurm:
    partition: str = ""
    account: str = ""
    minutes: int = 60  # of a job, which takes cell after cell
    jobs: int = 0  # at most so many at a time; 0: as many as cards or cells
    cpus: int = 0
    memory_gb: int = 0
    srun: tuple = ()  # options of srun, as --container-image=...
    sbatch: dict = dataclasses.field(default_factory=dict)  # options of sbatch without dashes
    setup: tuple = ()  # lines of shell before a job's work


@dataclasses.dataclass(frozen=True)
class Plan:
    name: str = "fleet"
    models: tuple = ()
    engines: tuple = ()
    depths: tuple = ((0,),)
    n_gen: tuple = ((128,),)
    compare: tuple = ("eager",)
    repeats: int = 1
    tries: int = 2  # of a cell that fails, in all
    minutes: float = 30  # limit of a cell
    device: str = "cuda"
    options: tuple = ()  # of mkbench run, for all cells
    program: str = ""  # the mkbench of the nodes; empty: this one
    heartbeat_s: float = 5  # a claim is lost after twelve of them without a beat
    exclude: tuple = ()
    cards: Cards = Cards()
    slurm: Slurm = Slurm()


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


class Reader:
    """Takes the fields of one table of the file, and refuses what is left or has another type."""

    def __init__(self, file: str, table: dict, where: str, known: list):
        self.file, self.table, self.where, self.known = file, table, where, known
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean '{near[0]}'?" if near else ""
                raise BadPlan(f"{file}: {where}{key}: unknown key, wanted one of {', '.join(known)}{hint}")

    def refuse(self, key: str, wanted: str):
        raise BadPlan(f"{self.file}: {self.where}{key}: found {self.table[key]!r}, wanted {wanted}")

    def take(self, key: str, kind: type, wanted: str, fits=lambda value: True):
        value = self.table[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool) or not fits(value):
            self.refuse(key, wanted)
        return value

    def whole(self, key: str, least: int) -> int:
        return self.take(key, int, f"a whole number of at least {least}", lambda v: v >= least)

    def seconds(self, key: str, what: str) -> float:
        return self.take(key, float, f"a number of {what} over 0", lambda v: 0 < v < 1e6)

    def text(self, key: str, pattern: str = r"[^\n\0]+") -> str:
        wanted = "a text" if pattern == r"[^\n\0]+" else f"a text of the form {pattern}"
        return self.take(key, str, wanted, lambda v: re.fullmatch(pattern, v))

    def texts(self, key: str) -> tuple:
        return tuple(self.take(key, list, "a list of texts", lambda v: all(isinstance(t, str) and t for t in v)))

    def axis(self, key: str) -> tuple:
        """Entries, each a tuple of what one run takes together."""
        words, found = key in WORD_AXES, []
        least = 1 if key == "n_gen" else 0
        wanted = f"a list of {'names' if words else f'whole numbers of at least {least}'}, or of lists of them, each once"
        value = self.take(key, list, wanted, lambda v: len(v) > 0)
        for entry in value:
            together = entry if isinstance(entry, list) else [entry]
            for one in together:
                good = isinstance(one, str) and one and "," not in one if words else \
                    isinstance(one, int) and not isinstance(one, bool) and one >= least
                if not good:
                    self.refuse(key, wanted)
            if not together or tuple(together) in found or len(set(together)) < len(together):
                self.refuse(key, wanted)
            found.append(tuple(together))
        return tuple(found)


def read_cards(file: str, table: dict) -> Cards:
    take = Reader(file, table, "cards.", [f.name for f in dataclasses.fields(Cards)])
    found = {}
    for key in table:
        found[key] = take.take(key, bool, "true or false") if key == "each" else \
            take.texts(key) if key == "only" else take.whole(key, 1)
    return Cards(**found)


def read_slurm(file: str, table: dict) -> Slurm:
    take = Reader(file, table, "slurm.", [f.name for f in dataclasses.fields(Slurm)])
    found = {}
    for key in table:
        if key in ("partition", "account"):
            found[key] = take.text(key, r"[\w.,-]+")
        elif key in ("srun", "setup"):
            found[key] = take.texts(key)
        elif key == "sbatch":
            found[key] = dict(take.take(key, dict, "a table of sbatch's options"))
        else:
            found[key] = take.whole(key, 1)
    return Slurm(**found)


def read_exclude(file: str, plan: dict, value) -> tuple:
    keys = {"model": "models", "depth": "depths", "engine": "engines", "n_gen": "n_gen"}
    if not isinstance(value, list) or not all(isinstance(row, dict) and row for row in value):
        raise BadPlan(f"{file}: exclude: found {value!r}, wanted tables [[exclude]] with one or more of {', '.join(keys)}")
    rows = []
    for number, row in enumerate(value):
        Reader(file, row, f"exclude[{number}].", list(keys))
        wanted = {}
        for key, one in row.items():
            entry = tuple(one) if isinstance(one, list) else (one,)
            if entry not in plan.get(keys[key], ()):
                raise BadPlan(f"{file}: exclude[{number}].{key}: found {one!r}, wanted an entry of {keys[key]}")
            wanted[keys[key]] = entry
        rows.append(wanted)
    return tuple(rows)


def read_options(file: str, take: Reader) -> tuple:
    options = take.texts("options")
    for option in options:
        name = re.match(r"--(?:no-)?([a-z-]+)(?==|$)", option)
        if not name:
            raise BadPlan(f"{file}: options: found {option!r}, wanted flags of mkbench run as --name=value")
        if name[1] in OWNED:
            raise BadPlan(f"{file}: options: found {option!r}, wanted none that the fleet sets itself: {', '.join(OWNED)}")
    return options


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
    def whole(name: str, is_path: bool) -> str:
        return str(folder / name) if is_path else name

    return dataclasses.replace(
        plan, program=whole(plan.program, bool(plan.program)),
        engines=tuple(tuple(whole(e, e.endswith((".so", ".py"))) for e in entry) for entry in plan.engines),
        models=tuple(tuple(whole(m, m.startswith(("/", "./", "../"))) for m in entry) for entry in plan.models))


def plan_of(file: str, table: dict) -> Plan:
    """The plan that a table holds; `file` is what messages call it."""
    take = Reader(file, table, "", [f.name for f in dataclasses.fields(Plan)])
    for key in ("models", "engines"):
        if key not in table:
            raise BadPlan(f"{file}: {key}: not there, wanted a list with at least one name")
    found = {}
    for key in table:
        if key in AXES:
            found[key] = take.axis(key)
        elif key in ("repeats", "tries"):
            found[key] = take.whole(key, 1)
        elif key in ("minutes", "heartbeat_s"):
            found[key] = take.seconds(key, "minutes" if key == "minutes" else "seconds")
        elif key == "device":
            found[key] = take.text(key, "cuda|cpu")
        elif key == "name":
            found[key] = take.text(key, r"[\w.-]+")
        elif key == "program":
            found[key] = take.text(key)
        elif key == "compare":
            found[key] = take.texts(key)
        elif key == "options":
            found[key] = read_options(file, take)
    for key, read in (("cards", read_cards), ("slurm", read_slurm)):
        if key in table:
            found[key] = read(file, take.take(key, dict, f"a table [{key}]"))
    if "exclude" in table:
        defaults = {"depths": Plan.depths, "n_gen": Plan.n_gen}
        found["exclude"] = read_exclude(file, defaults | found, table["exclude"])
    plan = Plan(**found)
    if plan.cards.stand_ins and plan.device != "cpu":
        raise BadPlan(f"{file}: cards.stand_ins: found {plan.cards.stand_ins} with device = \"{plan.device}\", wanted "
                      "device = \"cpu\": a job on the CPU may stand for a card, a card needs none")
    if not cells_of(plan, 1):
        raise BadPlan(f"{file}: exclude: no cell is left")
    return plan


def table_of(plan: Plan) -> dict:
    """A plan as a table of plain values, which plan_of() reads again."""
    table = dataclasses.asdict(plan)
    words = {key: table.pop(key) for key in ("exclude", "cards", "slurm")}
    table = {key: value for key, value in table.items() if value != ""}
    singular = {"models": "model", "depths": "depth", "engines": "engine", "n_gen": "n_gen"}
    if plan.exclude:
        table["exclude"] = [{singular[key]: list(entry) for key, entry in row.items()} for row in plan.exclude]
    for key in ("cards", "slurm"):
        table[key] = {name: value for name, value in words[key].items() if value not in (0, "", (), {})
                      or isinstance(value, bool)}
    return plain(table)


def plain(value):
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def slug(text: str) -> str:
    """What a file's name may hold of a text; '+' and '@' divide names of markers."""
    return re.sub(r"[^A-Za-z0-9.-]+", "_", text)[:40].strip("._") or "_"


def cells_of(plan: Plan, cards: int) -> list:
    """All cells in the order in which they are taken; with `each` a copy for each of `cards` cards."""
    cells = []
    for repeat in range(plan.repeats):
        for model, engines, n_gen, depths in itertools.product(plan.models, plan.engines, plan.n_gen, plan.depths):
            entry = {"models": model, "engines": engines, "n_gen": n_gen, "depths": depths}
            if any(all(entry[key] == value for key, value in row.items()) for row in plan.exclude):
                continue
            names = "-".join((*(slug(m.rsplit("/", 1)[-1]) for m in model),
                              *(slug(e.rsplit("/", 1)[-1]) for e in engines),
                              "d" + "_".join(map(str, depths)), "n" + "_".join(map(str, n_gen))))[:60]
            base = f"{len(cells):05d}-{names}-r{repeat + 1}"
            cells.append(Cell(base, ",".join(model), engines, depths, n_gen, repeat + 1))
    if not plan.cards.each:
        return cells
    return [dataclasses.replace(cell, id=f"{cell.id}+{copy:04d}") for cell in cells for copy in range(cards)]


def arguments_of(plan: Plan, cell: Cell, out: str) -> list:
    """What mkbench is called with for a cell."""
    together = {"--model": cell.model, "--engine": ",".join(cell.engines), "--compare": ",".join(plan.compare) or "none",
                "--n-depth": ",".join(map(str, cell.depths)), "--n-gen": ",".join(map(str, cell.n_gen)),
                "--device": plan.device, "--out": out}
    return ["run", *(f"{name}={value}" for name, value in together.items()), "--plot=off", *plan.options]
