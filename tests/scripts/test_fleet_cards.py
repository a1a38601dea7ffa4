"""Is it the kernel or the card? Planted cards: a slow one, one on which a kernel is slow, one with other bits, and none."""

import pathlib
import random
import tempfile

from support import fleet_support
from support.fleet_support import UUIDS, FleetTest, finish, main, report_of

import fleet_cards
import fleet_store


class CardsTest(FleetTest):
    def facts(self, cards, depths=(0, 512), **of_all):
        """The facts of a fleet: cards has what report_of() is to be told for each card."""
        self.folder = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        folder = self.fleet(copies=len(cards), depths=[list(depths)], engines=[["ring", "plain"]])
        for card, told in cards.items():
            finish(folder, card, lambda cell: report_of(card, depths, **of_all | told))
        done = fleet_store.merge(folder.path)
        self.addCleanup(done.base.close)
        self.assertEqual(done.refused, [])
        return fleet_cards.facts_of(done.base)

    def sentences(self, cards, **of_all):
        found = self.facts(cards, **of_all)
        return [text for text, _ in found.sentences], found


def spread(count=8, share=0.01, seed=1):
    """Cards of one kind as they come: they read differently by about `share`."""
    draw = random.Random(seed)
    return {uuid: {"read": 1 + share * draw.uniform(-1, 1)} for uuid in UUIDS[:count]}


NEIGHBOURS = "its seven neighbours"


class Sentences(CardsTest):
    def test_cards_as_they_come_are_not_named(self):
        for seed in range(3):
            said, facts = self.sentences(spread(seed=seed))
            self.assertEqual((said, facts.exit_code, facts.notes), ([], 0, []))
            self.assertIn("- no card is off, and all compute alike\n", fleet_cards.render(facts))

    def test_one_card_of_eight_is_off(self):
        for told, wanted in (
                ({"read": 0.94}, rf"^card GPU-33333333: read rate [56]\.\d % less than on {NEIGHBOURS}; ring and "
                                 "plain's share of it is as on the others; cause: the card$"),
                ({"slower": {"ring": 1.05}}, f"^card GPU-33333333: read rate as on {NEIGHBOURS}; ring's share of it is "
                                             "4.8 % less; cause: the kernel$"),
                ({"read": 0.9, "slower": {"ring": 1.05}},
                 rf"^card GPU-33333333: read rate \S+ % less than on {NEIGHBOURS}; plain's share of it is as on the "
                 "others; ring's share of it is 4.8 % less; cause: the card and the kernel$"),
                ({"slower": {"eager": 1.5}}, f": read rate as on {NEIGHBOURS}; eager's token rate is 33.3 % less; "
                                             "cause: probably the host")):
            with self.subTest(told):
                said, facts = self.sentences(spread() | {UUIDS[3]: told})
                self.assertEqual((len(said), facts.exit_code), (1, 0))
                self.assertRegex(said[0], wanted)
                card = next(c for c in facts.cards if c.id == UUIDS[3])
                self.assertAlmostEqual(card.reads, told.get("read", 1), delta=0.015)
                self.assertAlmostEqual(card.over["ring"], 1 / told.get("slower", {}).get("ring", 1), delta=1e-6)

    def test_three_cards_are_only_listed(self):
        said, facts = self.sentences({UUIDS[0]: {}, UUIDS[1]: {}, UUIDS[2]: {"read": 0.5}})
        self.assertEqual(said, [])
        self.assertEqual(facts.notes, ["NVIDIA H100 80GB HBM3: three cards: too few to tell an outlier, which takes at least 4"])
        self.assertIn("| GPU-22222222", fleet_cards.render(facts))

    def test_without_a_ceiling_nothing_is_told_apart(self):
        said, _ = self.sentences(spread(5) | {UUIDS[2]: {"slower": {"ring": 1.2}}}, stand_in=True)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], r"ring's token rate is 16.\d % less than on its four neighbours; no ceiling was "
                                  r"measured, so card and kernel cannot be told apart")

    def test_cards_that_compute_otherwise(self):
        other = {"bits": {"ring": "bb" * 32}}
        for cards, wanted in (
                (spread() | {UUIDS[5]: other}, "card GPU-55555555 computes otherwise: ring on synthetic: the logits have other bits "
                                               f"than on {NEIGHBOURS}"),
                (spread(2) | {UUIDS[2]: {"parity": {"plain": "FAIL_TOKEN"}}},
                 "card GPU-22222222 computes otherwise: plain on synthetic: parity is FAIL_TOKEN, PASS on its two neighbours"),
                ({UUIDS[0]: {}, UUIDS[1]: other}, "cards of one kind give different results, and no result is in the "
                                                  "majority: ring on synthetic: GPU-00000000; GPU-11111111"),
                ({UUIDS[0]: {"bits": {"ring": ""}}, UUIDS[1]: {}}, "")):  # an engine whose bits do not repeat
            with self.subTest(wanted):
                said, facts = self.sentences(cards)
                self.assertEqual((said, facts.exit_code), ([wanted], 3) if wanted else ([], 0))


class Rule(FleetTest):
    def test_outliers(self):
        names = "abcdefgh"
        self.assertEqual(fleet_cards.outliers(dict(zip("abc", (1, 1, 2)))), {})
        self.assertEqual(fleet_cards.outliers(dict(zip(names, [1.0] * 7 + [1.009]))), {})  # a spread of 0, and the floor
        self.assertEqual(set(fleet_cards.outliers(dict(zip(names, [1.0] * 7 + [1.02])))), {"h"})
        wide = [0.97, 0.98, 0.99, 1.0, 1.01, 1.02, 1.03, 0.94]
        self.assertEqual(fleet_cards.outliers(dict(zip(names, wide))), {})  # within the spread of these cards
        self.assertEqual(set(fleet_cards.outliers(dict(zip(names, wide[:-1] + [0.8])))), {"h"})


if __name__ == "__main__":
    main(fleet_support.modules_missing())
