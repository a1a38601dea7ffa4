"""Is it the kernel or the card? Planted cards: a slow one, one on which a kernel is slow, one with other bits, and none."""

import random

import fleet_support
from fleet_support import UUIDS, FleetTest, finish, main, report_of

import fleet_cards
import fleet_store


class CardsTest(FleetTest):
    def facts(self, cards, depths=(0, 512), **of_all):
        """The facts of a fleet: cards has what report_of() is to be told for each card."""
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


class Sentences(CardsTest):
    def test_cards_as_they_come_are_not_named(self):
        for seed in range(3):
            said, facts = self.sentences(spread(seed=seed))
            self.assertEqual((said, facts.exit_code, facts.notes), ([], 0, []))
            self.assertIn("- no card is off, and all compute alike\n", fleet_cards.render(facts))
            self.tearDown()
            self.doCleanups()
            self.setUp()

    def test_a_card_that_reads_less(self):
        cards = spread() | {UUIDS[3]: {"read": 0.94}}
        said, facts = self.sentences(cards)
        self.assertRegex(said[0], r"^card GPU-33333333 reads [56]\.\d % less than its seven neighbours; ring and plain's share on "
                                  r"it is as on the others: the card$")
        self.assertEqual((len(said), facts.exit_code), (1, 0))
        card = next(c for c in facts.cards if c.id == UUIDS[3])
        self.assertAlmostEqual(card.reads, 0.94, delta=0.01)
        self.assertAlmostEqual(card.over["ring"], 1, delta=1e-6)

    def test_a_kernel_that_is_slow_on_one_card(self):
        said, _ = self.sentences(spread() | {UUIDS[3]: {"slower": {"ring": 1.05}}})
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], r"^card GPU-33333333 reads as its seven neighbours; ring's share on it is 4.8 % less: the kernel$")

    def test_both(self):
        said, _ = self.sentences(spread() | {UUIDS[3]: {"read": 0.9, "slower": {"ring": 1.05}}})
        self.assertRegex(said[0], r"^card GPU-33333333 reads \S+ % less than its seven neighbours; plain's share on it is as on the "
                                  r"others; ring's share on it is 4.8 % less: the card and the kernel$")

    def test_a_host_that_makes_eager_slow(self):
        said, _ = self.sentences(spread() | {UUIDS[3]: {"slower": {"eager": 1.5}}})
        self.assertEqual(len(said), 1)
        self.assertIn("reads as its seven neighbours; eager's rate on it is 33.3 % less: a baseline waits for its host", said[0])

    def test_three_cards_are_only_listed(self):
        said, facts = self.sentences({UUIDS[0]: {}, UUIDS[1]: {}, UUIDS[2]: {"read": 0.5}})
        self.assertEqual(said, [])
        self.assertEqual(facts.notes, ["NVIDIA H100 80GB HBM3: three cards: listed alone, an outlier needs at least 4 to be told"])
        self.assertIn("| GPU-22222222", fleet_cards.render(facts))

    def test_without_a_ceiling_nothing_is_told_apart(self):
        said, _ = self.sentences(spread(5) | {UUIDS[2]: {"slower": {"ring": 1.2}}}, stand_in=True)
        self.assertEqual(len(said), 1)
        self.assertRegex(said[0], r"ring's rate is 16.\d % less than on its four neighbours; no ceiling was measured, so card and "
                                  r"kernel cannot be told apart")


class Computes(CardsTest):
    def test_other_bits(self):
        said, facts = self.sentences(spread() | {UUIDS[5]: {"bits": {"ring": "bb" * 32}}})
        self.assertEqual(said, ["card GPU-55555555 computes otherwise: ring on synthetic: the logits have other bits than on its "
                                "seven neighbours"])
        self.assertEqual(facts.exit_code, 3)

    def test_another_verdict(self):
        said, facts = self.sentences(spread(2) | {UUIDS[2]: {"parity": {"plain": "FAIL_TOKEN"}}})
        self.assertEqual(said, ["card GPU-22222222 computes otherwise: plain on synthetic: parity is FAIL_TOKEN, PASS on its two "
                                "neighbours"])
        self.assertEqual(facts.exit_code, 3)

    def test_two_cards_that_differ(self):
        said, facts = self.sentences({UUIDS[0]: {}, UUIDS[1]: {"bits": {"ring": "bb" * 32}}})
        self.assertEqual(said, ["cards of one kind compute otherwise, and none is in the majority: ring on synthetic: "
                                "GPU-00000000; GPU-11111111"])
        self.assertEqual(facts.exit_code, 3)

    def test_engines_without_bits_are_not_compared(self):
        said, _ = self.sentences({UUIDS[0]: {"bits": {"ring": ""}}, UUIDS[1]: {}})
        self.assertEqual(said, [])


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
