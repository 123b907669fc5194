"""Test the model with short stories: it accepts what is promised and rejects the rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .model import Model
from .things import Breach, Expected, Stored, Worker


def story(*, strict: bool = False, count: int = 2, max_attempts: int = 2) -> tuple[Model, Worker]:
    """Return a model with one group and messages 1 to ``count`` of one key, and a worker."""
    model = Model(max_attempts)
    model.subscribed("g", True)
    for offset in range(1, count + 1):
        model.published(offset, "k", f"id{offset}", True)
    return model, Worker("g", "w", strict, batch_size=2)


def test_a_message_is_delivered_acked_and_deleted() -> None:
    model, worker = story()
    first, second = (model.delivered(worker, offset, 1) for offset in (1, 2))
    model.answered(first, "ack", True)
    assert model.owed("g") == [2]
    model.found_in_log([2])
    model.answered(second, "ack", True)
    model.answered(second, "ack", True)
    model.found_in_log([])
    model.found_letters([])
    assert model.owed("g") == []


def test_attempts_count_what_was_nacked_or_left_and_not_what_was_postponed() -> None:
    model, worker = story(count=1, max_attempts=9)
    model.answered(model.delivered(worker, 1, 1), "postpone", True)
    model.answered(model.delivered(worker, 1, 1), "nack", True)
    left = model.delivered(worker, 1, 2)
    left.ran_out = True
    again = model.delivered(worker, 1, 3, alone=True)
    assert model.expects(left, "ack") is Expected.STALE
    assert model.expects(again, "ack") is Expected.TRUE
    model.answered(again, "postpone", True)
    model.answered(model.delivered(worker, 1, 3), "nack", True)
    with pytest.raises(Breach, match="it is attempt 4"):
        model.delivered(worker, 1, 3)


def test_the_last_nack_is_a_dead_letter_with_its_failures() -> None:
    model, worker = story(count=1)
    for attempt in (1, 2):
        model.answered(model.delivered(worker, 1, attempt), "nack", True)
    model.found_letters([(1, "g", 2)])
    assert model.owed("g") == []
    for wrong in ([], [(1, "g", 1)], [(1, "g", 2), (1, "g", 2)], [(1, "g", 2), (1, "h", 2)]):
        with pytest.raises(Breach):
            model.found_letters(wrong)


def test_only_what_killed_its_worker_alone_is_buried() -> None:
    model, worker = story(count=1, max_attempts=1)
    model.delivered(worker, 1, 1)
    model.leases_ran_out(worker)
    with pytest.raises(Breach, match="before its time"):
        model.found_letters([(1, "g", 1)])
    heir = Worker("g", "heir")
    alone = model.delivered(heir, 1, 2, alone=True)
    with pytest.raises(Breach, match="nobody gave up"):
        model.found_letters([(1, "g", 1)])
    model.leases_ran_out(heir)
    model.found_letters([(1, "g", 1)])
    assert model.expects(alone, "ack") is Expected.STALE


def test_who_lost_its_lease_may_still_answer_until_another_has_the_message() -> None:
    model, worker = story(count=1)
    handout = model.delivered(worker, 1, 1)
    model.leases_ran_out(worker)
    assert model.expects(handout, "ack") is Expected.EITHER
    heir = Worker("g", "heir")
    model.delivered(heir, 1, 2, alone=True)
    assert model.expects(handout, "ack") is Expected.STALE
    with pytest.raises(Breach, match="not StaleDelivery"):
        model.answered(handout, "ack", True)


def test_strict_takes_late_commits_when_they_come_and_the_rest_in_order() -> None:
    model, worker = story(strict=True, count=0)
    model.published(5, "k", "five", True)
    model.committed([Stored(4, "k", "four")])
    model.published(6, "k", "six", True)
    model.answered(model.delivered(worker, 5, 1), "nack", True)
    with pytest.raises(Breach, match="before 5"):
        model.delivered(worker, 6, 1)
    model.answered(model.delivered(worker, 4, 1), "ack", True)
    model.delivered(worker, 5, 2)


def test_strict_goes_on_behind_a_message_that_may_be_dead_without_a_second_letter() -> None:
    """Message 1 had a dead letter in the earlier registration of its group. It dies again in the new one."""
    model, worker = story(strict=True, max_attempts=1)
    model.answered(model.delivered(worker, 1, 1), "nack", True)
    model.unsubscribed("g", True)
    model.subscribed("g", True)
    model.delivered(worker, 1, 1).ran_out = True
    alone = model.delivered(worker, 1, 2, alone=True)
    with pytest.raises(Breach):
        model.delivered(worker, 2, 1)
    alone.ran_out = True
    model.delivered(worker, 2, 1)


def test_what_the_latest_does_not_want_is_no_debt_and_holds_back_nothing() -> None:
    model, worker = story()
    model.subscribed("late", True, latest=True)
    model.published(3, "k", "id3", True)
    assert model.owed("late") == [3]
    for offset in (1, 2):
        model.answered(model.delivered(worker, offset, 1), "ack", True)
    model.found_in_log([3])
    late = model.delivered(Worker("late", "w", strict=True), 3, 1)
    model.unsubscribed("late", True)
    assert model.expects(late, "ack") is Expected.STALE


Tell = Callable[[Model, Worker], object]
BROKEN: list[Tell] = []
BROKEN_STRICT: list[Tell] = []


@BROKEN.append
def rolled_back(model: Model, worker: Worker) -> None:
    model.undone([9])
    model.delivered(worker, 9, 1)


@BROKEN.append
def twice_at_once(model: Model, worker: Worker) -> None:
    model.delivered(worker, 1, 1)
    model.delivered(Worker("g", "other"), 1, 2, alone=True)


@BROKEN.append
def acked_before(model: Model, worker: Worker) -> None:
    model.answered(model.delivered(worker, 1, 1), "ack", True)
    model.delivered(worker, 1, 2)


@BROKEN.append
def after_its_end(model: Model, worker: Worker) -> None:
    model.gone(worker)
    model.delivered(worker, 1, 1)


@BROKEN.append
def before_its_delay(model: Model, worker: Worker) -> None:
    model.answered(model.delivered(worker, 1, 1), "nack", True, delay=True)
    model.delivered(worker, 1, 2)


@BROKEN.append
def first_attempt_is_the_second(model: Model, worker: Worker) -> None:
    model.delivered(worker, 1, 2)


@BROKEN.append
def refused_though_its_own(model: Model, worker: Worker) -> None:
    model.answered(model.delivered(worker, 1, 1), "ack", False)


@BROKEN.append
def another_verb_after_the_end(model: Model, worker: Worker) -> None:
    handout = model.delivered(worker, 1, 1)
    model.answered(handout, "ack", True)
    model.answered(handout, "nack", True)


@BROKEN.append
def not_registered(model: Model, worker: Worker) -> None:
    model.unsubscribed("g", True)
    model.delivered(worker, 1, 1)


@BROKEN.append
def more_than_a_batch(model: Model, worker: Worker) -> None:
    model.published(3, "k", "id3", True)
    for offset in (1, 2, 3):
        model.delivered(worker, offset, 1)


@BROKEN.append
def left_unanswered_and_beside_others(model: Model, worker: Worker) -> None:
    model.delivered(worker, 1, 1)
    model.gone(worker)
    heir = Worker("g", "heir")
    model.delivered(heir, 2, 1)
    model.delivered(heir, 1, 2)


@BROKEN.append
def beside_one_that_is_alone(model: Model, worker: Worker) -> None:
    model.delivered(worker, 1, 1)
    model.gone(worker)
    heir = Worker("g", "heir")
    model.delivered(heir, 1, 2, alone=True)
    model.delivered(heir, 2, 1)


@BROKEN.append
def again_after_it_was_extended(model: Model, worker: Worker) -> None:
    handout = model.delivered(worker, 1, 1)
    handout.ran_out = True
    model.answered(handout, "extend", True)
    model.delivered(worker, 1, 2, alone=True)


@BROKEN.append
def dead_and_done(model: Model, worker: Worker) -> None:
    model.answered(model.delivered(worker, 1, 1), "ack", True)
    model.found_letters([(1, "g", 1)])


@BROKEN.append
def deleted_too_early(model: Model, worker: Worker) -> None:
    model.found_in_log([2])


@BROKEN.append
def deleted_before_another_group_had_it(model: Model, worker: Worker) -> None:
    model.subscribed("h", True)
    model.answered(model.delivered(worker, 1, 1), "ack", True)
    model.found_in_log([2])


@BROKEN.append
def deleted_for_nobody(model: Model, worker: Worker) -> None:
    model.unsubscribed("g", True)
    model.found_in_log([])


@BROKEN.append
def there_and_never_published(model: Model, worker: Worker) -> None:
    model.found_in_log([1, 2, 3])


@BROKEN.append
def an_id_stored_twice(model: Model, worker: Worker) -> None:
    model.published(3, "k", "id1", True)


@BROKEN.append
def a_new_id_not_stored(model: Model, worker: Worker) -> None:
    model.published(3, "k", "id3", False)


@BROKEN.append
def registered_twice(model: Model, worker: Worker) -> None:
    model.subscribed("g", True)


@BROKEN_STRICT.append
def two_of_a_key_at_once(model: Model, worker: Worker) -> None:
    model.delivered(worker, 1, 1)
    model.delivered(worker, 2, 1)


@BROKEN_STRICT.append
def out_of_order(model: Model, worker: Worker) -> None:
    model.delivered(worker, 2, 1)


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_a_broken_promise_is_a_breach(tell: Tell) -> None:
    with pytest.raises(Breach):
        tell(*story())


@pytest.mark.parametrize("tell", BROKEN_STRICT, ids=lambda tell: tell.__name__)
def test_a_broken_order_is_a_breach(tell: Tell) -> None:
    with pytest.raises(Breach):
        tell(*story(strict=True))
