"""The checker's rules about time: early deletions, and partitions without an owner."""

from __future__ import annotations

import pytest

from tests.proof.tests.stories import Tale

GROUPS = ("billing", "stock")


def test_deleted_when_every_group_was_done() -> None:
    tale = (
        Tale(groups=GROUPS).sent(1, "a").run(2, "a").run(5, "a", group="stock", worker="w2").deleted(5.1, "a")
    )
    assert tale.breaches() == []


def test_deleted_before_one_group_was_done() -> None:
    tale = (
        Tale(groups=GROUPS).sent(1, "a").run(2, "a").run(5, "a", group="stock", worker="w2").deleted(3, "a")
    )
    assert tale.wrong() == {("deleted early", "a")}
    assert "'stock'" in tale.breaches()[0].text


def test_deleted_before_its_dead_letter() -> None:
    tale = Tale().sent(1, "a").run(2, "a", outcome="rejected").dead(9, "a", 1).deleted(3, "a")
    assert tale.wrong() == {("deleted early", "a")}


def test_the_databases_clock_may_differ_a_little() -> None:
    assert Tale().sent(1, "a").run(2, "a").deleted(1.5, "a").breaches() == []


@pytest.mark.parametrize(
    ("is_atomic", "begins", "is_breach"), [(True, 2, False), (False, 2, True), (True, 7, True)]
)
def test_an_atomic_run_may_note_its_end_long_after_its_commit(
    is_atomic: bool, begins: float, is_breach: bool
) -> None:
    """Its worker is stopped during the run, and the message is deleted. Not if the run begins after the deletion."""
    tale = Tale(atomic=is_atomic).sent(1, "a").run(begins, "a", until=12).stopped(2.005, 11.9).deleted(6, "a")
    if is_atomic:
        tale.effect("a")
    assert (("deleted early", "a") in tale.wrong()) is is_breach


def test_a_run_that_failed_is_no_reason_to_delete() -> None:
    tale = Tale().sent(1, "a").run(2, "a", outcome="failed").deleted(3, "a").run(9, "a", attempt=2)
    assert tale.wrong() == {("deleted early", "a")}


def owned() -> Tale:
    """A worker lives from 0 to 100 s and has run a message of the group. The lease lasts 5 s, the slack 1 s."""
    return Tale().fault(0, "joined", "w1").sent(1, "a").run(2, "a").fault(100, "left", "w1")


def breached(tale: Tale) -> bool:
    found = tale.breaches()
    assert {breach.rule for breach in found} <= {"unowned"}
    return bool(found)


@pytest.mark.parametrize(("seconds", "expected"), [(5.9, False), (6.1, True), (50, True)])
def test_a_partition_has_an_owner_within_the_lease(seconds: float, expected: bool) -> None:
    assert breached(owned().unowned(20, 20 + seconds)) is expected


def test_one_that_never_had_an_owner_again() -> None:
    assert breached(owned().unowned(20, None))


def test_time_without_a_server_does_not_count_nor_the_lease_after_it() -> None:
    assert not breached(owned().unowned(20, 45).server_down(22, 35))
    assert breached(owned().unowned(20, 47).server_down(22, 35))


def test_time_in_which_a_worker_imports_its_handlers_does_not_count() -> None:
    def tale(until: float) -> Tale:
        starting = Tale().fault(20, "joined", "w1").fault(30, "ready", "w1").sent(1, "a").run(31, "a")
        return starting.unowned(20, until).fault(100, "left", "w1")

    assert not breached(tale(35.9))
    assert breached(tale(36.1))


def test_time_with_a_full_disk_does_not_count_once_it_is_known_to_have_ended() -> None:
    full = owned().unowned(20, 35).fault(22, "disk full")
    assert breached(full)
    assert not breached(full.fault(26, "disk free"))


def test_time_in_which_no_worker_runs_does_not_count() -> None:
    assert not breached(owned().unowned(20, 45).stopped(22, 40))
    assert breached(owned().unowned(20, 47).stopped(22, 40))
    dead = Tale().fault(0, "joined", "w1").sent(1, "a").run(2, "a").fault(20, "killed", "w1").unowned(25, 90)
    assert not breached(dead)


def test_time_in_which_no_worker_stays_does_not_count() -> None:
    """Workers join and are killed every four seconds. No worker has the time to take the free partition."""
    tale = owned().fault(20, "killed", "w1")
    tale.events.pop(-2)  # W1 does not leave at 100 s.
    for place in range(10):
        name, at = f"w{place + 2}", 20 + 4 * place
        tale.fault(at, "joined", name).sent(at, name).run(at + 1, name, worker=name)
        tale.fault(at + 3.9, "killed", name)
    assert not breached(tale.unowned(22, 60))


def test_workers_of_other_groups_do_not_count() -> None:
    tale = (
        Tale(groups=GROUPS)
        .fault(0, "joined", "w1")
        .sent(1, "a")
        .run(2, "a")
        .run(2, "a", group="stock", worker="w2")
    )
    assert not breached(tale.fault(10, "killed", "w1").unowned(20, 90))


def test_partitions_are_apart() -> None:
    tale = owned().unowned(20, 25, "x").unowned(25.5, 30, "x").unowned(22, 27, "y")
    assert not breached(tale)
    [breach] = tale.unowned(40, 60, "y").breaches()
    assert "'y'" in breach.subject
