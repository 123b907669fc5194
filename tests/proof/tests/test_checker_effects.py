"""The checker's rule about effects of atomic handlers."""

from __future__ import annotations

import pytest

from tests.proof.tests.stories import Tale


def tale() -> Tale:
    return Tale(atomic=True).sent(1, "a")


def wrong(told: Tale) -> list[str]:
    return [breach.text for breach in told.breaches() if breach.rule == "effects"]


def test_once_is_right() -> None:
    assert tale().run(2, "a").effect("a").breaches() == []


def test_a_dead_letter_instead_of_an_effect_is_right() -> None:
    assert tale().run(2, "a", outcome="rejected").dead(2.1, "a", 1).breaches() == []


def test_twice_is_wrong_whatever_happened() -> None:
    told = (
        tale().run(2, "a").fault(2.02, "killed", "w1").server_down(3, 4).run(9, "a", worker="w2", attempt=2)
    )
    assert wrong(told.effect("a", 2)) == ["for atomic group 'billing' it took effect 2 times"]


def test_none_is_wrong() -> None:
    told = tale().run(2, "a")
    assert wrong(told) == ["for atomic group 'billing' it took no effect, and there is no dead letter"]


def test_an_effect_and_a_dead_letter_are_wrong() -> None:
    told = tale().run(2, "a", outcome="rejected").dead(2.1, "a", 1).effect("a")
    (text,) = wrong(told)
    assert "has 1 dead letters, but was stored 1 times" in text


def test_an_effect_of_what_was_rolled_back_is_wrong() -> None:
    told = Tale(atomic=True).sent(1, "a", end="rolled back").effect("a")
    assert wrong(told) == ["for atomic group 'billing' it took effect, though its transaction did not commit"]


@pytest.mark.parametrize(("effects", "count"), [([3], 0), ([3, 8], 0), ([3, 8, 9], 1)])
def test_a_message_that_is_stored_twice_may_take_effect_twice(effects: list[int], count: int) -> None:
    """A publisher sends the id again after the first copy was deleted."""
    told = (
        tale()
        .run(2, "a", offset=3)
        .deleted(3, "a", 3)
        .sent(5, "a", transaction="again")
        .run(6, "a", offset=8)
    )
    for offset in effects:
        told.effect("a", offset=offset)
    assert len(wrong(told)) == count


def test_what_was_committed_unheard_is_not_lost() -> None:
    """The connection broke at COMMIT. The worker notes a failure, but the message is done."""
    told = tale().fault(2, "disconnected", "7").run(2, "a", outcome="failed").effect("a")
    assert told.breaches() == []


def test_groups_that_are_not_atomic_have_no_effects() -> None:
    assert Tale().sent(1, "a").run(2, "a").breaches() == []
