"""The checker's reports: breaches with their stories, a limited number per rule, and the numbers of a run."""

from __future__ import annotations

from pathlib import Path

from tests.proof.checker import Rules, check, summary
from tests.proof.history import Closed, Event, Fault, Handed, Sent, Writer, line, read
from tests.proof.tests.stories import Tale, ns


def test_a_breach_tells_its_whole_story() -> None:
    tale = (
        Tale(groups=("billing", "stock")).sent(1, "a", "b").fault(0.5, "joined", "w1").sent(1, "far", key="z")
    )
    tale.run(2, "a").run(2.1, "a", group="stock", worker="w2", outcome="rejected").dead(
        2.2, "a", 1, group="stock"
    )
    tale.run(3, "b").run(3, "b", group="stock", worker="w2")
    tale.run(4, "far").run(4.1, "far", group="stock", worker="w2")
    tale.fault(2.3, "killed", "publisher.1").fault(2.4, "rows locked", "billing")
    tale.fault(2.5, "stopped", "elsewhere").fault(50, "killed", "w2").run(5, "a", attempt=2, worker="w1")
    [breach] = tale.breaches()
    assert (breach.rule, breach.subject) == ("again", "a")
    kinds = [type(event).__name__ for event in breach.story]
    assert kinds == [
        "Fault", "Sent", "Closed", "Started", "Finished", "Started", "Finished", "DeadLettered", "Fault", "Fault",
        "Started", "Finished",
    ]  # fmt: skip
    faults = [event for event in breach.story if isinstance(event, Fault)]
    assert [fault.kind for fault in faults] == ["joined", "killed", "rows locked"]
    text = str(breach)
    assert text.startswith("again: a: ")
    assert all(
        name in text
        for name in ("Sent(", "transaction='of a'", "DeadLettered(", "'publisher.1'", "attempt=2")
    )
    assert "far" not in text


def test_a_breach_of_order_tells_both_stories() -> None:
    tale = Tale(strict=True).sent(1, "first").sent(2, "second").run(3, "second").run(4, "first")
    for breach in tale.breaches():
        assert {getattr(event, "message", "") for event in breach.story} >= {"first", "second"}


def test_a_rule_lists_so_many_and_counts_all() -> None:
    tale = Tale()
    for number in range(50):
        tale.sent(number, f"m{number}", key=f"k{number}")
    found = check(tale.events, Rules(5, 1, listed=7))
    assert [breach.subject for breach in found] == [*(f"m{number}" for number in range(7)), ""]
    assert "43 more, 50 in all" in str(found[-1])


def test_nothing_is_wrong_with_nothing() -> None:
    assert check([], Rules(5, 1)) == []
    assert summary([]).sent == 0


def test_events_may_come_in_any_order() -> None:
    tale = Tale(strict=True).sent(1, "a").sent(2, "b").run(3, "a").run(4, "b")
    assert check(tale.events[::-1], Rules(5, 1)) == []


def told_everything() -> Tale:
    tale = (
        Tale(groups=("billing", "stock"))
        .sent(1, "a")
        .sent(1.5, "b", end="rolled back")
        .sent(2, "c", key=None)
    )
    tale.ignored(2.01, "c").sent(2.5, "d", end=None, delay=0.5).unowned(2, 4.5).fault(
        3, "killed", "w1"
    ).server_down(5, 6)
    tale.run(2, "a", outcome="failed").run(7, "a", attempt=2, worker="w2")
    tale.run(2, "a", outcome="rejected", group="stock", worker="w3").dead(2.1, "a", 1, group="stock")
    tale.events += [
        Handed(ns(2), "w1", "billing", 3, 3),
        Handed(ns(2), "w1", "billing", 2, 2),
        Handed(ns(2), "w3", "stock", 1, 7),
    ]
    return tale.deleted(8, "a").left(9, "a")


def test_the_numbers_of_a_run() -> None:
    found = summary(told_everything().events)
    assert (found.sent, found.committed, found.rolled_back, found.unknown, found.ignored) == (4, 2, 1, 1, 1)
    assert found.deliveries == {"orders:billing": 2, "orders:stock": 1}
    assert found.outcomes == {"done": 1, "failed": 1, "rejected": 1}
    assert (found.redelivered, found.deleted, found.unowned, found.seconds) == (1, 1, 2.5, 9.0)
    assert found.dead_letters == {"orders:stock": 1}
    assert found.faults == {"killed": 1, "server down": 1, "server up": 1}
    assert (found.scheduled, found.lots, found.in_lots, found.batches, found.in_batches) == (1, 2, 5, 1, 7)
    table = found.markdown("MariaDB").splitlines()
    assert table[0] == "| MariaDB | |"
    assert "| messages sent | 4 |" in table
    assert "| longest time a partition had no owner | 2.500 s |" in table


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Several processes write, each to its own file. ``read`` returns the events in the order of time."""
    events = told_everything().events
    for name, part in (("one", events[::2]), ("other", events[1::2])):
        writer = Writer(tmp_path, name)
        writer.write(*part)
        writer.close()
    found = read(tmp_path)
    assert sorted(found, key=repr) == sorted(events, key=repr)
    assert [event.at for event in found] == sorted(event.at for event in events)


def test_a_line_that_a_kill_cut_short_is_left_out(tmp_path: Path) -> None:
    whole: Event = Sent(ns(1), "p", "x", "a", "orders", None)
    cut = line(Closed(ns(2), "x", "committed"))[:-1]
    (tmp_path / "killed.jsonl").write_bytes(line(whole) + cut)
    assert read(tmp_path) == [whole]
