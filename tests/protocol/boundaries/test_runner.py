"""Kill a whole ``runconsumer`` at each boundary of everything that it sends, from joining to leaving.

The dying process reports the messages that its handlers received. The tables show where it left each message. Both
must fit. An attempt that a handler made is counted and never made again. No other attempt is counted, except for a
message that the other thread was about to start. Then other workers take over, as in the other walks.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from django_mqueue.models import DeliveryState
from tests.support.sampling import first_of
from tests.support.subscribers import in_log

from .deaths import Death, Zygote
from .looks import letters, payloads
from .recovery import recover
from .walks import DONE, FIRST, Dead, Fate, Stage
from .walks_runner import (
    FAILS_ALWAYS,
    FEW,
    MAX_ATTEMPTS,
    NUMBERS,
    THREADS,
    effects,
    run_atomic_handlers_until_drained,
    run_until_drained,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.always]

MANY = 1000
"""More boundaries than a run has."""
SAMPLE = 6
"""A run with ``--sample`` walks one in ``SAMPLE`` boundaries."""


@pytest.mark.timeout(600)
def test_a_runner_that_dies_anywhere_breaks_no_promise(mother: Zygote, seed: str | None) -> None:
    walk_through(mother, run_until_drained.__name__, NUMBERS, seed, step=1)


@pytest.mark.timeout(600)
def test_a_runner_of_atomic_handlers_that_dies_anywhere_breaks_no_promise(
    mother: Zygote, seed: str | None
) -> None:
    """No effect exists without its ack, and no ack without its effect.

    The test takes each sixth boundary. ``atomic_handlers_of_a_worker`` walks each boundary of a single message.
    """

    def effects_fit(topic: str, stage: Stage) -> None:
        acked = [number for number, fate in (stage.first or {}).items() if fate == DONE]
        assert sorted(effects(topic)) == acked

    walk_through(mother, run_atomic_handlers_until_drained.__name__, FEW, seed, step=6, fits=effects_fit)


def walk_through(
    mother: Zygote,
    name: str,
    numbers: range,
    seed: str | None,
    *,
    step: int,
    fits: Callable[[str, Stage], None] = lambda topic, stage: None,
) -> None:
    """Walk until three runs in a row complete, because two runs never issue exactly the same statements."""
    completed = 0
    step = step if seed is None else step * SAMPLE
    for die_at in range(first_of(seed, name, step), MANY, step):
        topic = f"{name}-{die_at}"
        death = mother.walk(name, topic, die_at)
        try:
            stage = left_by(topic, numbers)
            assert_attempts_are_real(stage, death)
            fits(topic, stage)
            recover(topic, stage, same_name=bool(die_at % 2))
        except AssertionError as error:
            error.add_note(f"boundary {die_at}: died {death}; its handlers were given {death.heard}")
            raise
        completed = completed + 1 if death.completed else 0
        if completed:
            assert set((stage.first or {}).values()) == {DONE, Dead(MAX_ATTEMPTS)}
        if completed == 3:
            break
    assert completed == 3
    print(f"{name}: {death.boundaries} boundaries")


def left_by(topic: str, numbers: range) -> Stage:
    """Return the outcome that each message must have, derived from the tables."""
    assert payloads(topic) == tuple(numbers), "nothing may go before the second group is done"
    offsets = dict(zip(numbers, in_log(topic), strict=True))
    states = {s.message_offset: s for s in DeliveryState.objects.filter(topic=topic, consumer_group=FIRST)}
    dead = {payload: failures for payload, _, failures in letters(topic)}
    fates: dict[int, Fate] = {}
    for number in numbers:
        state = states.get(offsets[number])
        if state is None:
            fates[number] = 1
        elif state.acked:
            fates[number] = Dead(dead.pop(number)) if number in dead else DONE
        else:
            fates[number] = state.retry_count + state.handed + 1
    assert not dead, f"a letter of what is not given up: {dead}"
    return Stage((), fates)


def assert_attempts_are_real(stage: Stage, death: Death) -> None:
    """Compare the counted attempts with the messages that handlers really received."""
    about_to_start = 0
    for number, fate in (stage.first or {}).items():
        made = [attempt for payload, attempt in death.heard if payload == number]
        assert made == list(range(1, len(made) + 1)), f"{number}: attempts {made}"
        if isinstance(fate, Dead):
            assert (number, fate.failures, len(made)) == (FAILS_ALWAYS, MAX_ATTEMPTS, MAX_ATTEMPTS)
        elif fate == DONE:
            assert made
            assert number != FAILS_ALWAYS
        else:
            uncounted = fate - 1 - len(made)
            assert uncounted in (0, 1), f"{number}: attempt {fate} comes next, handlers made {made}"
            about_to_start += uncounted
    assert about_to_start <= THREADS
    if death.completed:
        assert about_to_start == 0
