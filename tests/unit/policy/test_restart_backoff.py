"""The wait before a dead process is replaced."""

from __future__ import annotations

from itertools import pairwise

from django_mqueue.policy.backoff import RestartBackoff


def test_a_process_that_has_lived_for_long_is_replaced_at_once() -> None:
    backoff = RestartBackoff()
    assert [backoff.wait_after(lived) for lived in (10, 3600, 11)] == [0, 0, 0]


def test_the_waits_grow_while_lives_are_short_up_to_half_a_minute() -> None:
    backoff = RestartBackoff()
    waits = [backoff.wait_after(0.1) for _ in range(50)]
    assert 0.9 <= waits[0] <= 1
    assert all(1.7 < later / earlier < 2.3 for earlier, later in pairwise(waits[:5]))
    assert all(27 <= wait <= 30 for wait in waits[5:])


def test_a_long_life_ends_the_row() -> None:
    backoff = RestartBackoff()
    for _ in range(5):
        backoff.wait_after(9.9)
    assert backoff.wait_after(10) == 0
    assert backoff.wait_after(0) <= 1
