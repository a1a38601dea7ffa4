"""Plans of a fleet: the cells that follow from one, and each bad one refused by name."""

import dataclasses
import json
import re

from support import page_blocks
from support.fleet_support import ROOT, FleetTest, main

import fleet_plan

GOOD = """
models = ["tiny", "synthetic"]
depths = [0, [512, 4096]]
engines = [["ring", "plain"]]
n_gen = [64]
repeats = 2
options = ["--blocks=10"]
[[exclude]]
model = "tiny"
depth = [512, 4096]
[cards]
each = false
"""


class Cells(FleetTest):
    def test_the_product_of_the_axes_less_what_is_excluded(self):
        plan = fleet_plan.read_plan(self.write_plan(GOOD))
        cells = fleet_plan.cells_of(plan, 8)
        self.assertEqual([(c.model, c.engines, c.depths, c.repeat) for c in cells], [
            (m, ("ring", "plain"), d, r) for r in (1, 2) for m, d in (("tiny", (0,)), ("synthetic", (0,)),
                                                                      ("synthetic", (512, 4096)))])
        self.assertEqual(len({c.id for c in cells}), 6)
        self.assertEqual(fleet_plan.arguments_of(plan, cells[2], "X"),
                         ["run", "--model=synthetic", "--engine=ring,plain", "--compare=eager", "--n-depth=512,4096",
                          "--n-gen=64", "--device=cuda", "--out=X", "--plot=off", "--blocks=10"])

    def test_each_makes_a_copy_for_each_card(self):
        plan = fleet_plan.read_plan(self.write_plan(GOOD.replace("false", "true")))
        cells = fleet_plan.cells_of(plan, 3)
        self.assertEqual(len(cells), 18)
        self.assertEqual(len({c.base for c in cells}), 6)

    def test_a_plan_is_read_back_from_what_is_stored(self):
        plan = fleet_plan.read_plan(self.write_plan(
            GOOD + 'only = ["GPU-1"]\n[slurm]\npartition = "a"\nsbatch = {qos = "high"}\nsrun = ["--x"]\n'))
        self.assertEqual(fleet_plan.plan_of("x", json.loads(json.dumps(fleet_plan.table_of(plan)))), plan)
        self.assertNotEqual(plan, fleet_plan.plan_of("x", fleet_plan.table_of(dataclasses.replace(plan, repeats=1))))

    def test_paths_count_from_the_plan(self):
        plan = fleet_plan.read_plan(self.write_plan('models = ["./m"]\nengines = ["sub/e.so", "ring"]\n'))
        self.assertEqual(plan.engines, ((str(self.folder / "sub/e.so"),), ("ring",)))
        self.assertEqual(plan.models, ((str(self.folder / "./m"),),))


class Page(FleetTest):
    """docs/fleet.md says what the plan can hold."""

    def test_its_plan_and_its_table(self):
        [text] = page_blocks.blocks("docs/fleet.md", "A plan", "toml")
        plan = fleet_plan.read_plan(self.write_plan(text))
        self.assertEqual([(c.engines, c.depths, c.repeat) for c in fleet_plan.cells_of(plan, 1)],
                         [(("ring", "plain"), depths, repeat) for repeat in (1, 2) for depths in ((0, 512), (4096,))])
        told = set(re.findall(r"^\| (`.*?) \|", (ROOT / "docs/fleet.md").read_text().split("## Run it")[0], re.MULTILINE))
        words = set(re.findall(r"[\w.]+", " ".join(told)))
        keys = {f.name for f in dataclasses.fields(fleet_plan.Plan)} - {"cards", "slurm", "name"}
        self.assertEqual(keys - words, set())
        for table in (fleet_plan.Cards, fleet_plan.Slurm):
            self.assertEqual({f.name for f in dataclasses.fields(table)} - {word.split(".")[-1] for word in words}, set())


class Refused(FleetTest):
    def test_bad_plans_are_refused_by_name(self):
        base = {"models": ["tiny"], "engines": ["ring"]}
        for change, said in (
                ({"modles": ["x"]}, "plan.toml: modles: unknown key, wanted one of .*; did you mean 'models'?"),
                ({"cards": {"counts": 2}}, "plan.toml: cards.counts: unknown key, .*'count'"),
                ({"slurm": {"partition": 3}}, "plan.toml: slurm.partition: found 3, wanted a text"),
                ({"models": []}, r"plan.toml: models: found \[\], wanted a list of names"),
                ({"models": ["a,b"]}, "plan.toml: models: found .*a,b.*, wanted a list of names"),
                ({"engines": [["ring", "ring"]]}, "plan.toml: engines: .* each once"),
                ({"depths": [-1]}, r"plan.toml: depths: found \[-1\], wanted a list of whole numbers of at least 0"),
                ({"depths": [True]}, "plan.toml: depths: "),
                ({"n_gen": [0]}, "plan.toml: n_gen: .* at least 1"),
                ({"repeats": 0}, "plan.toml: repeats: found 0, wanted a whole number of at least 1"),
                ({"minutes": 0}, "plan.toml: minutes: found 0, wanted a number of minutes over 0"),
                ({"device": "tpu"}, "plan.toml: device: found 'tpu', wanted a text of the form cuda|cpu"),
                ({"options": ["--out=x"]}, "plan.toml: options: found '--out=x', wanted none that the fleet sets"),
                ({"options": ["-n"]}, "plan.toml: options: found '-n', wanted flags"),
                ({"exclude": [{"depth": 7}]}, r"plan.toml: exclude\[0\].depth: found 7, wanted an entry of depths"),
                ({"exclude": [{"model": "tiny"}]}, "plan.toml: exclude: no cell is left"),
                ({"exclude": {}}, "plan.toml: exclude: found {}, wanted tables"),
                ({"cards": {"stand_ins": 2}}, "plan.toml: cards.stand_ins: found 2 with device = \"cuda\""),
                ({"cards": 2}, r"plan.toml: cards: found 2, wanted a table \[cards\]")):
            with self.subTest(change):
                with self.assertRaisesRegex(fleet_plan.BadPlan, said):
                    fleet_plan.plan_of("plan.toml", base | change)
        for field in base:
            with self.assertRaisesRegex(fleet_plan.BadPlan, f"plan.toml: {field}: not there"):
                fleet_plan.plan_of("plan.toml", {key: value for key, value in base.items() if key != field})

    def test_files_that_are_no_plan(self):
        with self.assertRaisesRegex(fleet_plan.BadPlan, "plan.toml: no TOML: "):
            fleet_plan.read_plan(self.write_plan("models = ["))
        with self.assertRaisesRegex(fleet_plan.BadPlan, "absent.toml: No such file"):
            fleet_plan.read_plan(self.folder / "absent.toml")


if __name__ == "__main__":
    main()
