"""Walks of dead letters: redrive, edit and purge."""

from __future__ import annotations

from collections.abc import Iterator

from django_mqueue import Subscription, purge, redrive
from django_mqueue.browse import bulk_redrive, dead_letters
from django_mqueue.policy.dead_letter_filter import DeadLetterQuery

from .looks import Seen, letters, payloads, states
from .walks import DONE, FIRST, Dead, Scene, Stage, walk


def seen(topic: str) -> Seen:
    return letters(topic), payloads(topic)


TWO_LETTERS_SEEN = (((0, FIRST, 1), (1, FIRST, 1)), (0, 1))
TWO_LETTERS = Stage(TWO_LETTERS_SEEN, {0: Dead(1), 1: Dead(1)}, {0: 1, 1: 1})


def given_up(scene: Scene) -> None:
    for delivery in scene.claimed(0, 1):
        delivery.reject("never")


@walk(seen, TWO_LETTERS, Stage(((), (0, 1, 10, 11)), {0: DONE, 1: DONE, 10: 1, 11: 1}, {0: 1, 1: 1}))
def redrive_of_two(scene: Scene) -> Iterator[None]:
    """Each message is a dead letter or redriven, never both and never neither. The edit marks redriven messages."""
    given_up(scene)
    yield
    redrive(scene.topic, edit=lambda letter: letter.payload + 10)


@walk(
    seen,
    TWO_LETTERS,
    Stage((((1, FIRST, 1),), (0, 1)), {0: DONE, 1: Dead(1)}, {0: 1, 1: 1}),
)
def purge_of_one(scene: Scene) -> Iterator[None]:
    given_up(scene)
    yield
    purge(scene.topic, limit=1)


READER = "undertaker"


def read_by_another(topic: str) -> Seen:
    """Also return for how many dead letters the group that reads them keeps state."""
    return letters(topic), payloads(topic), len(states(f"{topic}_dlq", group=READER))


@walk(
    read_by_another,
    Stage((*TWO_LETTERS_SEEN, 2), TWO_LETTERS.first, TWO_LETTERS.second),
    Stage((((1, FIRST, 1),), (0, 1, 10), 1), {0: DONE, 1: Dead(1), 10: 1}, {0: 1, 1: 1}),
)
def redrive_of_one_that_was_read(scene: Scene) -> Iterator[None]:
    """The state that readers of the dead letter have is deleted in the same transaction."""
    given_up(scene)
    with Subscription(f"{scene.topic}_dlq", READER) as reader:
        reader.ack(reader.poll())
    yield
    redrive(scene.topic, group=FIRST, limit=1, edit=lambda letter: letter.payload + 10)


@walk(
    seen,
    TWO_LETTERS,
    Stage((((1, FIRST, 1),), (0, 1, 10)), {0: DONE, 1: Dead(1), 10: 1}, {0: 1, 1: 1}),
)
def edit_of_one(scene: Scene) -> Iterator[None]:
    """The message is an unchanged dead letter, or it is redriven with the new payload."""
    given_up(scene)
    choice = DeadLetterQuery(scene.topic, f"{scene.topic}_dlq")
    letter = dead_letters.one("default", dead_letters.page("default", choice).summaries[-1].offset)
    assert letter is not None
    yield
    bulk_redrive.edit("default", letter, 10)


@walk(
    seen,
    TWO_LETTERS,
    Stage(((), (0, 1)), {0: DONE, 1: DONE}, {0: 1, 1: 1}),
)
def purge_in_a_step(scene: Scene) -> Iterator[None]:
    """Purge in a step, as an operator's page does. The next step continues with what a dead step left."""
    given_up(scene)
    yield
    chosen = DeadLetterQuery(scene.topic, f"{scene.topic}_dlq")
    bulk_redrive.step("default", chosen, 0, 1 << 62, redrives=False)
