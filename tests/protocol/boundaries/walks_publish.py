"""Walks of publishers: the log holds everything that a transaction publishes, or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import transaction

from django_mqueue import NotRegistered, OutgoingMessage, publish, publish_many

from .looks import payloads
from .walks import DONE, FIRST, SECOND, Scene, Stage, walk

NOTHING = Stage((), {})
ONE = Stage((0,), {0: 1})
THREE = Stage((0, 1, 2), {0: 1, 1: 1, 2: 1})


@walk(payloads, NOTHING, ONE)
def publish_one(scene: Scene) -> Iterator[None]:
    yield
    publish(scene.topic, 0, key="k")


def publish_with_id(topic: str) -> object:
    return publish(topic, 0, key="k", id="only")


@walk(payloads, NOTHING, ONE, again=publish_with_id)
def publish_one_with_id(scene: Scene) -> Iterator[None]:
    yield
    publish_with_id(scene.topic)


@walk(payloads, NOTHING, THREE)
def publish_three(scene: Scene) -> Iterator[None]:
    yield
    publish_many(scene.topic, range(3))


def publish_three_ids(topic: str) -> object:
    return publish_many(topic, [OutgoingMessage(n, key=f"k{n}", id="same") for n in range(3)])


@walk(payloads, ONE, THREE, again=publish_three_ids)
def publish_three_with_ids_of_which_one_is_there(scene: Scene) -> Iterator[None]:
    publish(scene.topic, 0, key="k0", id="same")
    yield
    publish_three_ids(scene.topic)


MANY = 501
"""One message more than a statement takes."""


@walk(
    lambda topic: len(payloads(topic)),
    Stage(0, {}),
    Stage(MANY, dict.fromkeys(range(MANY), 1)),
)
def publish_more_than_one_statement_takes(scene: Scene) -> Iterator[None]:
    yield
    publish_many(scene.topic, range(MANY))


@walk(payloads, NOTHING, Stage((0, 2), {0: 1, 2: 1}))
def publish_in_a_transaction_with_savepoints(scene: Scene) -> Iterator[None]:
    yield
    with transaction.atomic():
        publish(scene.topic, 0, key="k")
        point = transaction.savepoint()
        publish(scene.topic, 1, key="k")
        transaction.savepoint_rollback(point)
        with transaction.atomic():
            publish_many(scene.topic, [2])


@walk(payloads, NOTHING)
def publish_in_a_transaction_that_is_rolled_back(scene: Scene) -> Iterator[None]:
    yield
    with transaction.atomic():
        publish(scene.topic, 0, key="k")
        publish_many(scene.topic, [1, 2])
        transaction.set_rollback(True)


@walk(payloads, NOTHING, Stage((0,), {0: 1}, {0: DONE}))
def publish_for_one_group(scene: Scene) -> Iterator[None]:
    yield
    publish(scene.topic, 0, key="k", group=FIRST)


def publish_for_each(topic: str) -> object:
    targets = (FIRST, SECOND, None)
    messages = [OutgoingMessage(n, key="k", id="same", group=group) for n, group in enumerate(targets)]
    return publish_many(topic, messages)


@walk(
    payloads, NOTHING, Stage((0, 1, 2), {0: 1, 1: DONE, 2: 1}, {0: DONE, 1: 1, 2: 1}), again=publish_for_each
)
def publish_for_one_group_each_and_for_both(scene: Scene) -> Iterator[None]:
    """The same id is allowed once for each group, and once for both."""
    yield
    publish_for_each(scene.topic)


@walk(payloads, NOTHING, ONE)
def publish_for_a_group_that_is_not_registered(scene: Scene) -> Iterator[None]:
    """The publish is refused, and the transaction continues without it."""
    yield
    with transaction.atomic():
        publish(scene.topic, 0, key="k")
        with pytest.raises(NotRegistered):
            publish(scene.topic, 1, key="k", group="nobody")
