"""The checker's rules about attempts, dead letters, and repeats of finished messages."""

from __future__ import annotations

from tests.proof.tests.stories import Tale


def tale(**options: int) -> Tale:
    return Tale(**options).sent(1, "a")  # type: ignore[arg-type]


def test_one_more_each_time() -> None:
    good = (
        tale().run(2, "a", outcome="failed").run(3, "a", attempt=2, outcome="failed").run(4, "a", attempt=3)
    )
    assert good.breaches() == []


def test_a_first_attempt_is_the_first() -> None:
    assert tale().run(2, "a", attempt=2).wrong() == {("attempts", "a")}


def test_no_attempt_is_left_out_or_counted_twice() -> None:
    gap = tale().run(2, "a", outcome="failed").run(3, "a", attempt=3)
    assert gap.wrong() == {("attempts", "a")}
    same = tale().run(2, "a", outcome="failed").run(3, "a", attempt=1)
    assert same.wrong() == {("attempts", "a")}
    lower = (
        tale().run(2, "a", outcome="failed").run(3, "a", attempt=2, outcome="failed").run(4, "a", attempt=1)
    )
    assert lower.wrong() == {("attempts", "a")}


def test_a_run_whose_worker_died_has_used_an_attempt() -> None:
    good = tale().started(2, "a").fault(2.1, "killed", "w1").run(8, "a", worker="w2", attempt=2)
    assert good.breaches() == []
    free = tale().started(2, "a").fault(2.1, "killed", "w1").run(8, "a", worker="w2", attempt=1)
    assert free.wrong() == {("attempts", "a")}


def test_a_postponed_run_has_used_none() -> None:
    good = tale().run(2, "a", outcome="postponed").run(3, "a", attempt=1)
    assert good.breaches() == []
    counted = tale().run(2, "a", outcome="postponed").run(3, "a", attempt=2)
    assert counted.wrong() == {("attempts", "a")}


def test_a_postponement_may_be_lost_with_its_worker() -> None:
    for what in ("killed", "abandoned", "stopped"):
        lost = (
            tale().run(2, "a", outcome="postponed").fault(2.1, what, "w1").run(8, "a", worker="w2", attempt=2)
        )
        assert lost.breaches() == []
    stolen = tale().run(2, "a", outcome="postponed").stolen(2.1).run(3, "a", worker="w2", attempt=2)
    assert stolen.breaches() == []
    for what in ("killed", "left", "disconnected"):
        late = (
            tale().run(2, "a", outcome="postponed").fault(5, what, "w3").run(8, "a", worker="w2", attempt=3)
        )
        assert late.wrong() == {("attempts", "a")}


def test_a_worker_may_die_between_marking_and_starting() -> None:
    """Each death may hide one attempt. Two attempts are hidden here, and two deaths are in the history."""
    hidden = tale().run(2, "a", outcome="failed").run(20, "a", worker="w3", attempt=4)
    assert hidden.wrong() == {("attempts", "a")}
    hidden.fault(5, "killed", "w1")
    assert hidden.wrong() == {("attempts", "a")}
    hidden.server_down(12, 13)
    assert hidden.breaches() == []


def test_a_broken_connection_hides_no_attempt() -> None:
    hidden = tale().fault(1.5, "disconnected", "7").run(2, "a", attempt=2)
    assert hidden.wrong() == {("attempts", "a")}


def test_the_death_of_a_publisher_hides_no_attempt() -> None:
    hidden = tale().fault(1.5, "killed", "publisher.1").run(2, "a", attempt=2)
    assert hidden.wrong() == {("attempts", "a")}


def test_a_death_that_is_noted_twice_counts_once() -> None:
    """The handler that kills its own process notes the death, and so does the process that finds it dead."""
    hidden = tale().started(2, "a").fault(2.1, "killed", "w1").fault(2.5, "killed", "w1")
    assert hidden.run(8, "a", worker="w2", attempt=4).wrong() == {("attempts", "a")}


def test_a_worker_that_is_stopped_while_it_is_silent_hides_no_attempt_of_later_messages() -> None:
    """Silence and stop are separate. The end of one does not end the other."""
    hidden = tale().fault(1.1, "silent", "w3").fault(1.2, "stopped", "w3").fault(1.3, "continued", "w3")
    hidden.fault(1.4, "heard", "w3").fault(1.45, "killed", "w3")
    assert hidden.run(8, "a", worker="w2", attempt=3).breaches() == []
    assert hidden.run(9, "a", worker="w2", attempt=6).wrong() >= {("attempts", "a")}


def test_other_threads_of_a_process_that_kills_itself_go_on_for_a_moment() -> None:
    """Their messages are delivered again, because these threads could no longer answer."""
    again = tale().fault(1.9, "killed", "w1").run(2, "a").fault(2.5, "killed", "w1")
    assert again.run(8, "a", worker="w2", attempt=2).breaches() == []


def test_a_stalled_worker_starts_late_with_a_lower_number() -> None:
    late = (
        tale().stopped(1.9, 9).run(8, "a", attempt=2, worker="w2", outcome="failed").run(9.1, "a", attempt=1)
    )
    assert late.run(10, "a", attempt=3, worker="w2").breaches() == []


def test_what_was_done_does_not_come_again() -> None:
    again = tale().run(2, "a").run(3, "a", attempt=2)
    assert again.wrong() == {("again", "a")}
    rejected = tale().run(2, "a", outcome="rejected").dead(2.1, "a", 1).run(3, "a", attempt=2)
    assert rejected.wrong() == {("again", "a")}
    dead = tale(max_attempts=1).run(2, "a", outcome="failed").dead(2.1, "a", 1).run(9, "a", attempt=2)
    assert dead.wrong() == {("again", "a")}


def test_what_was_done_comes_again_if_its_ack_was_lost() -> None:
    for what in ("killed", "abandoned", "stopped"):
        lost = tale().run(2, "a").fault(2.1, what, "w1").run(8, "a", worker="w2", attempt=2)
        assert lost.breaches() == []
    assert tale().run(2, "a").server_down(2.5, 4).run(8, "a", worker="w2", attempt=2).breaches() == []
    assert tale().run(2, "a").fault(2.1, "disconnected", "7").run(3, "a", attempt=2).wrong() == {
        ("again", "a")
    }
    assert tale().run(2, "a").fault(5, "killed", "w1").run(8, "a", worker="w2", attempt=2).wrong() == {
        ("again", "a")
    }


def test_an_ack_waits_for_locked_rows() -> None:
    """The group waits for a second, and rests for five. Its worker dies before the ack."""
    locked = tale().run(2, "a").fault(2.1, "rows locked", "another group")
    assert locked.fault(8, "killed", "w1").run(12, "a", worker="w2", attempt=2).breaches() == []
    later = tale().run(2, "a").fault(2.1, "rows locked", "another group")
    assert later.fault(12, "killed", "w1").run(16, "a", worker="w2", attempt=2).wrong() == {("again", "a")}
    assert tale().run(2, "a").fault(2.1, "rows locked", "g").run(9, "a", attempt=2).wrong() == {
        ("again", "a")
    }


def test_a_batch_is_acked_when_all_of_it_was_handled() -> None:
    """A batch has two messages, and the second is slow. When the worker dies, the ack of the first is also lost."""
    batch = Tale().sent(1, "a", "b").started(2, "a").started(2, "b").fault(9, "killed", "w1")
    batch.finished(2.001, "a").run(15, "a", attempt=2, worker="w2").run(15, "b", attempt=2, worker="w2")
    assert batch.breaches() == []


def test_a_dead_letter_after_as_many_failures_as_there_may_be() -> None:
    good = tale(max_attempts=2).run(2, "a", outcome="failed").run(3, "a", outcome="failed", attempt=2)
    assert good.dead(3.1, "a", 2).breaches() == []


def test_a_dead_letter_without_a_reason() -> None:
    early = tale().run(2, "a", outcome="failed").dead(3, "a", 1)
    assert early.wrong() == {("dead letter", "a")}
    assert "no reason" in early.breaches()[0].text


def test_two_dead_letters_of_one_message() -> None:
    twice = tale().run(2, "a", outcome="rejected").dead(2.1, "a", 1).dead(2.2, "a", 1)
    assert twice.wrong() == {("dead letter", "a")}


def test_a_dead_letter_tells_of_failures_that_were_none() -> None:
    more = tale(max_attempts=2).run(2, "a", outcome="failed").dead(2.1, "a", 2)
    assert more.wrong() == {("dead letter", "a")}
    postponed = (
        tale(max_attempts=2).run(2, "a", outcome="postponed").run(3, "a", outcome="failed").dead(3.1, "a", 2)
    )
    assert postponed.wrong() == {("dead letter", "a")}


def test_a_message_that_was_done_is_not_dead_lettered() -> None:
    done = tale().run(2, "a").dead(9, "a", 3)
    assert done.wrong() == {("dead letter", "a")}
    assert any("after it was done" in breach.text for breach in done.breaches())


def poison(alone: bool) -> Tale:
    """A kills its worker three times. B runs in the same worker the first time, or each time."""
    found = Tale().sent(1, "a", "b").sent(1.1, "c", key="other").run(1.5, "c")
    for place, worker in enumerate(("w1", "w2", "w3")):
        at = 2 + 10 * place
        found.started(at, "a", worker=worker, attempt=1 + place)
        if not (alone and place):
            found.started(at + 0.01, "b", worker=worker, attempt=1 + place)
        found.fault(at + 0.1, "killed", worker)
    return found


def test_a_message_that_kills_its_workers_alone_is_dead_lettered() -> None:
    """The first death does not count, because B also ran. So the fourth death is the last."""
    good = poison(alone=True).run(12.5, "b", attempt=2, worker="w4").started(32, "a", attempt=4, worker="w4")
    assert good.fault(32.1, "killed", "w4").dead(35, "a", 3).breaches() == []


def test_a_death_among_several_is_nobodys_fault() -> None:
    """The worker died three times while it ran A and B. A queue that counts these deaths wrongly dead-letters B."""
    bad = poison(alone=False).dead(40, "b", 3).run(50, "a", attempt=4, worker="w4")
    assert bad.wrong() == {("dead letter", "b")}
    assert "0 at most" in bad.breaches()[0].text


def test_a_worker_that_lost_its_lease_may_take_others_beside_one_that_ran_alone() -> None:
    """A ran alone when its lease was stolen, and B started later. The loss still counts as a failure of A."""
    alone = Tale(max_attempts=1).sent(1, "a").sent(1, "b", key="other").run(2, "a", until=9)
    alone.stolen(3).run(4, "b").dead(5, "a", 1)
    assert alone.breaches() == []


def test_a_delivery_alone_may_die_before_it_starts() -> None:
    hidden = tale(max_attempts=1).fault(1.8, "killed", "w1").dead(9, "a", 1)
    assert hidden.breaches() == []
    busy = (
        Tale(max_attempts=1)
        .sent(1, "a")
        .sent(1, "b", key="other")
        .started(1.7, "b")
        .fault(1.8, "killed", "w1")
    )
    assert busy.run(8, "b", attempt=2, worker="w2").dead(9, "a", 1).wrong() == {("dead letter", "a")}
