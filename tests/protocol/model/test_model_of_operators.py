"""Test the model with pauses, resets, redrives and messages for one group."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .model import Model
from .test_model_itself import story
from .things import Breach, Expected, Stored, Worker

BACK = Stored(9, "k", "id1", "g", returned=True)


def dead_letter() -> tuple[Model, Worker]:
    """Return a model where the first of two messages was rejected."""
    model, worker = story()
    model.answered(model.delivered(worker, 1, 1), "reject", True)
    return model, worker


def test_a_letter_that_goes_back_is_a_message_for_its_group_alone() -> None:
    model, worker = dead_letter()
    model.subscribed("h", True)
    model.redriven([], [BACK], 1, None)
    model.committed([BACK])
    assert model.owed("g") == [2, 9]
    assert model.owed("h") == [1, 2]
    model.answered(model.delivered(worker, 9, 1), "ack", True)
    model.found_letters([])
    assert model.stored("k", "id1") == Stored(1, "k", "id1"), "what came back has an id of its own"


def test_a_paused_group_is_owed_what_it_was() -> None:
    model, worker = story()
    held = model.delivered(worker, 1, 1)
    model.paused_or_resumed({"g"}, 1, paused=True)
    model.paused_or_resumed({"g"}, 0, paused=True)
    model.answered(held, "ack", True)
    assert model.owed("g") == [2]
    model.paused_or_resumed({"g"}, 1, paused=False)
    model.delivered(worker, 2, 1)


def test_a_reset_begins_anew_and_voids_what_is_in_hand() -> None:
    model, worker = story()
    held = model.delivered(worker, 1, 1)
    model.answered(model.delivered(worker, 2, 1), "ack", True)
    model.reset("g", 2)
    assert model.expects(held, "ack") is Expected.STALE
    assert model.owed("g") == [2]
    model.delivered(worker, 2, 1)


def test_a_message_for_one_group_is_kept_for_that_group() -> None:
    model, worker = story(count=0)
    model.subscribed("h", True)
    model.published(1, "k", "x", True, "h")
    model.published(2, "k", "x", True)
    assert (model.owed("g"), model.owed("h")) == ([2], [1, 2])
    model.delivered(worker, 2, 1)
    with pytest.raises(Breach, match="h is not done with it"):
        model.found_in_log([2])


Tell = Callable[[Model, Worker], object]
BROKEN: list[Tell] = []


@BROKEN.append
def delivered_while_it_is_paused(model: Model, worker: Worker) -> None:
    model.paused_or_resumed({"g"}, 1, paused=True)
    model.delivered(worker, 2, 1)


@BROKEN.append
def paused_and_said_not_to_be(model: Model, worker: Worker) -> None:
    model.paused_or_resumed({"g"}, 0, paused=True)


@BROKEN.append
def delivered_to_another_group(model: Model, worker: Worker) -> None:
    model.subscribed("h", True)
    model.published(3, "k", "x", True, "h")
    model.delivered(worker, 3, 1)


@BROKEN.append
def stored_for_nobody(model: Model, worker: Worker) -> None:
    model.published(3, "k", "x", True, "nobody")


@BROKEN.append
def gone_and_not_back(model: Model, worker: Worker) -> None:
    model.redriven([], [], 1, None)


@BROKEN.append
def back_and_not_gone(model: Model, worker: Worker) -> None:
    model.redriven([(1, "g")], [BACK], 1, None)


@BROKEN.append
def back_twice(model: Model, worker: Worker) -> None:
    model.redriven([], [BACK, Stored(10, "k", "id1", "g", returned=True)], 1, None)


@BROKEN.append
def back_to_another_group(model: Model, worker: Worker) -> None:
    model.redriven([], [Stored(9, "k", "id1", "h", returned=True)], 1, None)


@BROKEN.append
def back_to_a_group_that_has_gone(model: Model, worker: Worker) -> None:
    model.unsubscribed("g", True)
    model.redriven([], [BACK], 1, None)


@BROKEN.append
def left_though_its_group_is_there(model: Model, worker: Worker) -> None:
    model.redriven([(1, "g")], [], 0, None)


@BROKEN.append
def purged_more_than_said(model: Model, worker: Worker) -> None:
    model.purged([], 0, 1)


@BROKEN.append
def back_as_a_second_attempt(model: Model, worker: Worker) -> None:
    model.redriven([], [BACK], 1, None)
    model.committed([BACK])
    model.delivered(worker, 9, 2)


@BROKEN.append
def a_second_attempt_after_a_reset(model: Model, worker: Worker) -> None:
    model.delivered(worker, 2, 1)
    model.reset("g", 0)
    model.delivered(worker, 2, 2)


@BROKEN.append
def answered_after_a_reset(model: Model, worker: Worker) -> None:
    held = model.delivered(worker, 2, 1)
    model.reset("g", 0)
    model.answered(held, "ack", True)


@pytest.mark.parametrize("tell", BROKEN, ids=lambda tell: tell.__name__)
def test_a_broken_promise_is_a_breach(tell: Tell) -> None:
    with pytest.raises(Breach):
        tell(*dead_letter())
