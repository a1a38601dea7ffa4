"""Plans of a fleet: the cells that follow from one, each bad one refused by name, and how its jobs are submitted."""

import contextlib
import dataclasses
import functools
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
from unittest import mock

from support import page_blocks
from support.fleet_support import ROOT, UUIDS, FleetTest, main

import fleet
import fleet_checks
import fleet_gpus
import fleet_plan
import fleet_submit
import fleet_worker

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


class Edges(FleetTest):
    def test_least_values_and_defaults(self):
        """The least value of each number is taken and the one below it refused; the page names the defaults."""
        base = {"models": ["tiny"], "engines": ["ring"]}
        for kind, wrap in ((fleet_plan.Plan, lambda key, value: {key: value}),
                           (fleet_plan.Cards, lambda key, value: {"device": "cpu", "cards": {key: value}}),
                           (fleet_plan.Slurm, lambda key, value: {"slurm": {key: value}})):
            for field in dataclasses.fields(kind):
                if field.type in (int, float):
                    least = 1 if field.type is int else 0.001
                    fleet_plan.plan_of("p", base | wrap(field.name, least))
                    for bad in (0, -1, True, "1", 1e6):
                        with self.subTest(field.name, bad=bad), self.assertRaisesRegex(fleet_plan.BadPlan, field.name):
                            fleet_plan.plan_of("p", base | wrap(field.name, bad))
        plan = fleet_plan.plan_of("p", base)
        text = (ROOT / "docs/fleet.md").read_text()
        lines = re.findall(r"^\| (`[\w.`, ]+) \| ([`\d][^|]*|true) \|", text, re.MULTILINE)
        self.assertGreater(len(lines), 4)
        for names, told in lines:
            for name, told in zip(re.findall(r"[\w.]+", names), told.replace("`", "").split(", ")):
                at = functools.reduce(getattr, name.split("."), plan)
                shown = [one[0] if isinstance(one, tuple) else one for one in at] if isinstance(at, tuple) else at
                if name != "cards.stand_ins":
                    self.assertEqual(shown, json.loads(told), name)

    def test_the_matrix_of_a_workflow(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            fleet.print_matrix("p", self.plan(depths=list(range(256))))
            with self.assertRaisesRegex(fleet_plan.BadPlan, "found 257 cells, wanted at most 256"):
                fleet.print_matrix("p", self.plan(depths=list(range(257))))
        self.assertEqual(len(json.loads(out.getvalue())["include"]), 256)


SINFO = """n1 cards* idle gpu:h100:8(S:0-1), and more
n2 cards* mixed gpu:8
n3 cards* down* gpu:a:1
n4 cards* idle* (null)
m1 other idle (null)
"""


class Checks(FleetTest):
    """What is looked at before a job is submitted, with answers of programs that are not there."""

    def check(self, sinfo=SINFO, node="n1: v", **slurm):
        """Checks a plan for Slurm; returns the commands that were asked."""
        asked, plan = [], self.plan(cards=slurm.pop("cards", {"count": 1}), slurm=slurm)

        def ask(*command):
            asked.append(command)
            said = sinfo or "" if command[0] == "sinfo" else f"of {node}\n"
            return subprocess.CompletedProcess(command, sinfo is None, said, "no")

        with mock.patch.object(fleet_checks, "ask", ask):
            fleet_checks.check_slurm("p", plan, "prog", "v")
        return asked

    def test_words(self):
        """mkbench is asked about each model, each set of engines, and each model's largest cell if it runs here."""
        for fails, here, said in (("b", True, "models: 'b': no"), ("--list-devices", True, "no"), ("--dry-run", False, ""),
                                  ("--dry-run", True, "cell 0000.*: no"), ("e.so", False, "engines: 'e.so': no such file")):
            plan = self.plan(models=["a", ["b", "a"]], engines=["ring", [fails if fails == "e.so" else "ring", "plain"]],
                             depths=[0, 512, [4, 7]], n_gen=[64, 8])
            asked = []

            def ask(*words):
                asked.append(words[1:])
                return subprocess.CompletedProcess(words, fails in words, "", "first\nmkbench: error: no")

            with self.subTest(fails), mock.patch.object(fleet_checks, "ask", ask):
                if said:
                    with self.assertRaisesRegex(fleet_plan.BadPlan, f"^p: {said}$"):
                        fleet_checks.check_words("p", plan, "prog", here)
                else:
                    fleet_checks.check_words("p", plan, "prog", here)
                    self.assertEqual([words[-1] for words in asked], ["a", "b", "--list-devices", "--list-devices"])
        self.assertEqual(fleet_worker.why_of(subprocess.CompletedProcess((), 7, "", " \n")), "exit code 7")
        good = lambda *words: asked.append(words) or subprocess.CompletedProcess(words, 0)  # noqa: E731
        with mock.patch.object(fleet_checks, "ask", good):
            fleet_checks.check_words("p", self.plan(models=["a", "b"], depths=[0, 512, [4, 7]], n_gen=[8, 64]), "prog", True)
        self.assertEqual([{"--n-depth=512", "--n-gen=64"} <= set(words) for words in asked[-2:]], [True, True])

    def test_slurm(self):
        for change, said in (({"minutes": 32}, "minutes: found 32, wanted 33 or more: .* 30 minutes .* 120 s"),
                             ({"cards": {}}, "cards.count: not there"), ({"sinfo": None}, "--on slurm: sinfo: no"),
                             ({"partition": "fast"}, "partition: found 'fast', wanted one of cards, other"),
                             ({"sinfo": ""}, "partition: found '', wanted one of "),
                             ({"partition": "other", "cards": {"each": False}}, "'other' has no card"),
                             ({"cards": {"count": 18}}, "found 18, wanted at most the 17 cards of partition 'cards'"),
                             ({"node": "n2: w"}, "node n2: prog is 'w', wanted 'v'")):
            with self.subTest(change), self.assertRaisesRegex(fleet_plan.BadPlan, f"^p: .*{said}"):
                self.check(**change)
        for change in ({"minutes": 33}, {"cards": {"count": 17}}, {"cards": {"each": False, "count": 18}}, {"account": "m"}):
            _, srun = self.check(**change)
            self.assertLessEqual({"--partition=cards", "--nodes=2", "--nodelist=n1,n2"}, set(srun))
            self.assertEqual("--account=m" in srun, "account" in change)
        self.assertEqual(len(self.check(sinfo=SINFO.replace("idle", "allocated").replace("mixed", "drained"))), 1)

    def test_cards_of_this_machine(self):
        uuids, kind = UUIDS[:3], "NVIDIA H100 80GB HBM3"
        shown = [[uuid, *kind.split(", ")] for uuid in uuids] + [["MIG-1", "x"], ["no card"]]
        for visible, wanted in ((None, [0, 1, 2]), ("", []), ("2,0", [2, 0]), ("GPU-1", [1]), ("3", []), ("1, 3,0", [1]),
                                ("GPU-", []), ("GPU-2,GPU-0", [2, 0]), ("x,0", [])):
            with self.subTest(visible=visible), mock.patch.object(fleet_gpus, "rows_of", lambda *_: shown), \
                    mock.patch.dict(os.environ, {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}):
                cards, why = fleet_gpus.visible_cards()
                self.assertEqual([card.id for card in cards], [uuids[n] for n in wanted])
                self.assertEqual((why, {card.kind for card in cards}) if wanted else why,
                                 ("", {kind}) if wanted else f"CUDA_VISIBLE_DEVICES={visible} leaves none of 3 cards")
        for asked, said in ((mock.Mock(return_value=mock.Mock(stdout="")), "it printed nothing"),
                            (FileNotFoundError, "nvidia-smi: not on PATH"), (OSError("x"), "nvidia-smi: x"),
                            (subprocess.TimeoutExpired("nvidia-smi", 60), "nvidia-smi: .*timed out after 60 seconds")):
            with self.subTest(said), mock.patch.object(subprocess, "run", mock.Mock(side_effect=asked)):
                found, why = fleet_gpus.all_cards()
                self.assertEqual(found, [])
                self.assertRegex(why, f"^nvidia-smi shows no card: {said}$")
        cards = [fleet_gpus.Card(uuid, kind) for uuid in uuids]
        with mock.patch.object(fleet_gpus, "visible_cards", lambda: (cards, "")):
            for table, wanted in (({}, [0, 1, 2]), ({"count": 3}, [0, 1, 2]), ({"count": 2}, [0, 1]),
                                  ({"only": ["GPU-2", "GPU-0"]}, [0, 2]),
                                  ({"only": ["GPU-2"], "count": 2}, "count: found 2, wanted at most the 1 cards"),
                                  ({"count": 4}, "count: found 4, wanted at most the 3 cards"),
                                  ({"only": ["GPU-1", "GPU-x"]},
                                   f"only: found 'GPU-x', wanted .* one of {', '.join(uuids)}")):
                with self.subTest(table):
                    if isinstance(wanted, str):
                        with self.assertRaisesRegex(fleet_plan.BadPlan, f"^p: cards.{wanted}"):
                            fleet_checks.local_cards("p", self.plan(cards=table))
                    else:
                        self.assertEqual(fleet_checks.local_cards("p", self.plan(cards=table)), [cards[n] for n in wanted])
        with mock.patch.object(fleet_gpus, "visible_cards", lambda: ([], "why")), \
                self.assertRaisesRegex(fleet_plan.BadPlan, '^p: device = "cuda": why$'):
            fleet_checks.local_cards("p", self.plan())
        for table, count in (({}, 1), ({"count": 2}, 2), ({"count": 2, "stand_ins": 3}, 3)):
            self.assertEqual(len(fleet_checks.local_cards("p", self.plan(device="cpu", cards=table))), count)

    def test_readings_of_a_card(self):
        card = fleet_gpus.Card(UUIDS[0], "x")
        whole = dict(zip(fleet_gpus.COUNTED, (40, None, 3, 4, 5, 6, 7, 8)))
        for shown, wanted in (([["40", "[N/A]", *"345678"]], whole), ([], {"problem": ""}),
                              ([["no", "x" * 300]], {"problem": "no, " + "x" * 196})):
            with mock.patch.object(fleet_gpus, "rows_of", return_value=shown) as asked:
                self.assertEqual(fleet_gpus.counted(card), wanted)
                self.assertIn(card.id, asked.call_args.args)
                self.assertEqual(fleet_gpus.counted(fleet_gpus.stand_in("0")), {})


class Submits(FleetTest):
    """How long jobs are submitted: a backend whose jobs are over at once, each after `work` on the folder."""

    def submitted(self, work, cancelled=False, copies=2):
        self.folder, rounds = pathlib.Path(tempfile.mkdtemp(dir=self.folder)), []
        folder = self.fleet(copies=copies)

        def submit(cells):
            rounds.append(cells)
            name = f"w{len(rounds)}"
            facts = work(folder, name, len(rounds))
            if facts is not None:
                folder.write_worker(name, **{"card": "A", "at": 0, "claimed": 0, "ended": "x"} | facts)
            return {name: None}

        backend = mock.Mock(submit=submit, running=lambda jobs: set(), was_cancelled=lambda jobs: cancelled)
        with mock.patch.object(signal, "signal"), contextlib.redirect_stderr(io.StringIO()) as said:
            return fleet_submit.run(folder, backend, False), rounds, said.getvalue()

    def test_until_no_cell_is_missing_or_none_gets_on(self):
        def one(folder, name, number):  # a card that takes one cell
            return {"claimed": folder.end(folder.claim(f"C{number}", name), "done")}

        def none(folder, name, number):  # claims, and gives back
            return {"claimed": folder.end(folder.claim("A", name), "cancelled")}

        def dies(folder, name, number):
            folder.note_try(folder.claim("A", name), started="x")

        self.assertEqual(self.submitted(one)[:2], ("", [2, 1]))
        self.assertIn("2 of 2 cells done, 0 running, 0 waiting, 0 failed\n", self.submitted(one)[2])
        self.assertEqual(self.submitted(none)[:2], ("no cell has ended in 3 rounds of jobs", [2, 2, 2]))
        self.assertEqual(self.submitted(dies, copies=1)[:2], ("", [1, 1, 1]))  # MOST_LOST: the cell is given up
        self.assertEqual(self.submitted(none, cancelled=True)[:2], ("their jobs were cancelled", [2]))
        self.assertEqual(self.submitted(one, cancelled=True, copies=1)[:2], ("", [1]))
        for facts, why in (({"refused": "n1: no"}, "1 of 1 jobs could not work"),
                           ({}, "no job got a further card, and a cell runs once on each card"),
                           (None, "1 of 1 jobs ended before they began; .*jobs has their logs")):
            found, rounds, said = self.submitted(lambda *_: facts)
            self.assertRegex(found, f"^{why}$")
            self.assertEqual((rounds, "fleet: n1: no\n" in said), ([2], bool(facts)))

    def test_what_squeue_lists(self):
        backend, jobs = object.__new__(fleet_submit.Slurm), dict.fromkeys(("slurm-7_0", "slurm-7_1", "slurm-8", "slurm-6"))
        listed, asked = "7 0 RUNNING\n7 1 COMPLETED\n8 N/A PENDING \n9 0 CANCELLED\n", []
        for said, status, why, running, cancelled in (
                (listed, 0, "", {"slurm-7_0", "slurm-8"}, False),
                (listed + "6 N/A CANCELLED\n", 0, "", {"slurm-7_0", "slurm-8"}, True),
                ("", 1, "Invalid job id specified", set(), False), ("", 1, "away", set(jobs), False)):
            def answer(*words, **_):
                asked.append(words)
                return subprocess.CompletedProcess(words, status, said, why)  # noqa: B023

            with self.subTest(why), mock.patch.object(fleet_submit, "ask", answer), \
                    contextlib.redirect_stderr(io.StringIO()) as told:
                self.assertEqual((backend.running(jobs), backend.was_cancelled(jobs)), (running, cancelled))
                self.assertEqual(told.getvalue(), "fleet: squeue: away\n" if why == "away" else "")
                backend.cancel({})
                self.assertEqual(asked[-1][-1], "--jobs=6,7,8")
                backend.cancel(jobs)
                self.assertEqual(asked[-1], ("scancel", "6", "7", "8"))
                self.assertEqual("scancel: " in told.getvalue(), status != 0)


if __name__ == "__main__":
    main()
