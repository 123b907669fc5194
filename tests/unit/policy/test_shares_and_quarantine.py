"""Fair shares of partitions by rank, and the moment when a quarantined message may run alone."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.policy.ids import new_incarnation, new_token, uuid7
from django_mqueue.policy.quarantine import Mode, Quarantine, alone_for
from django_mqueue.policy.shares import fair_share, takes_new

MEMBERS = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=12, unique=True)


@given(st.integers(0, 10_000), MEMBERS)
def test_shares_add_up_and_differ_by_one_at_most(partitions: int, members: list[str]) -> None:
    shares = [fair_share(partitions, members, member) for member in members]
    assert sum(shares) == partitions
    assert max(shares) - min(shares) <= 1
    assert shares == [fair_share(partitions, members[::-1], member) for member in members]


def test_twelve_over_five() -> None:
    assert [fair_share(12, list("edcba"), member) for member in "abcde"] == [3, 3, 2, 2, 2]
    assert fair_share(12, ["a"], "unknown") == 0
    assert fair_share(12, [], "a") == 0


@given(st.text(min_size=1), st.integers(1, 300), st.integers(0, 12))
def test_each_turn_lets_eight_times_as_many_members_take_a_new_partition(
    partition: str, members: int, turn: int
) -> None:
    takers, more = (
        {rank for rank in range(members) if takes_new(partition, rank, members, number)}
        for number in (turn, turn + 1)
    )
    assert len(takers) == min(8**turn, members)
    assert takers <= more


def test_a_suspect_runs_once_nothing_else_does() -> None:
    """The worker claims nothing until all other messages have ended, and while the quarantined message runs."""
    solitude = Quarantine(quiet_for=10)
    assert solitude.mode(in_flight=3, alone=False, quarantined=False, now=0) is Mode.NORMAL
    assert solitude.mode(in_flight=3, alone=False, quarantined=True, now=1) is Mode.WAIT
    assert solitude.mode(in_flight=1, alone=False, quarantined=True, now=5) is Mode.WAIT
    assert solitude.mode(in_flight=0, alone=False, quarantined=True, now=6) is Mode.ALONE
    assert solitude.mode(in_flight=1, alone=True, quarantined=True, now=7) is Mode.WAIT
    assert solitude.mode(in_flight=0, alone=False, quarantined=False, now=8) is Mode.NORMAL


def test_work_goes_on_when_it_does_not_fall_quiet() -> None:
    """A long handler blocks the other messages only for a short time. The next attempt waits longer."""
    solitude = Quarantine(quiet_for=10)
    modes = [solitude.mode(in_flight=1, alone=False, quarantined=True, now=now) for now in range(0, 60)]
    assert modes[:10] == [Mode.WAIT] * 10
    assert modes[10:20] == [Mode.NORMAL] * 10
    assert modes[20:40] == [Mode.WAIT] * 20
    assert modes[40:60] == [Mode.NORMAL] * 20


def test_a_handler_that_hangs_stops_the_other_messages_for_ten_minutes_at_a_time() -> None:
    solitude = Quarantine(quiet_for=10)
    modes = [solitude.mode(in_flight=1, alone=False, quarantined=True, now=now) for now in range(10_000)]
    phases = [(mode, len(list(each))) for mode, each in groupby(modes)]
    assert max(seconds for _, seconds in phases) == 600
    assert phases[-4:-1] == [(Mode.NORMAL, 600), (Mode.WAIT, 600), (Mode.NORMAL, 600)]


def test_by_hand_nothing_waits_for_suspects() -> None:
    solitude = Quarantine(quiet_for=0)
    assert solitude.mode(in_flight=1, alone=False, quarantined=True, now=0) is Mode.NORMAL
    assert solitude.mode(in_flight=0, alone=False, quarantined=True, now=0) is Mode.ALONE


def test_a_suspect_is_met_alone_for_longer_with_each_attempt() -> None:
    assert [alone_for(attempt) for attempt in (1, 2, 3)] == [10, 20, 40]
    assert alone_for(1000) == 3600


def test_ids_are_new_each_time() -> None:
    """Tokens are positive and fit a signed BIGINT. UUIDs contain their version, and rise with each millisecond."""
    tokens = {new_token() for _ in range(1000)}
    assert len(tokens) == 1000
    assert all(0 < token < 1 << 62 for token in tokens)
    assert len({new_incarnation() for _ in range(100)}) == 100
    assert len(new_incarnation()) == 32
    ids = [uuid7() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(one[14] == "7" and one[19] in "89ab" for one in ids)
    assert [one[:13] for one in ids] == sorted(one[:13] for one in ids)
