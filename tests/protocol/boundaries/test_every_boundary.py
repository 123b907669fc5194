"""A process dies at every boundary of every statement that a verb issues, and no promise is broken.

For each walk of the catalogue (``walks_….py``: publish, claims, answers, leases, watermarks, deletion, registration,
settling, joining and leaving) a zygote, a process with everything imported and no connection open, forks a child
that prepares a topic of its own and then operates. The driver's connection is wrapped in that child (``wire.py``), so
that every statement, COMMIT, ROLLBACK, savepoint and change of autocommit counts, whoever issues it: one boundary
before it, one after its answer, and for what commits a third, sent and its answer never read. A first run counts the
boundaries; then one child for each of them ends itself there with SIGKILL, and a last one gets through and is gone
without a farewell. Nobody lists statements: a new one is walked because it is sent. After each death, once the
server has ended the dead one's transactions, the tables must show one of the walk's stages, nothing between two of
them, and over the walk no stage may be left out or come back. Then a subscriber of the same name takes over at once,
or, each other time, a stranger after the leases have run out (their times are moved into the past); deletion runs
before, between and after. Each of two groups must get exactly what its stage implies, with the right attempt
numbers; what was acked never comes again; a given-up message is one dead letter with the right number of failures;
and at the end the log, the state, the positions and the leases of the topic are empty (``recovery.py``).

A run with ``--sample`` takes the first and the last boundary, each COMMIT whose answer is never read, and a sixth of
the others.
"""

from __future__ import annotations

import pytest

from django_mqueue import publish
from tests.support.sampling import sample

from .catalogue import WALKS
from .deaths import Zygote
from .recovery import recover
from .walks import Stage, Walk

pytestmark = pytest.mark.django_db(transaction=True)

SAMPLE = 6


@pytest.mark.parametrize("walk", [pytest.param(walk, id=name) for name, walk in WALKS.items() if walk.stages])
def test_death_at_every_boundary_breaks_no_promise(walk: Walk, mother: Zygote, seed: str | None) -> None:
    publish(f"{walk.name}-before", 0)  # A log's very first offset spares its watermark a statement.
    whole = mother.walk(walk.name, f"{walk.name}-whole", None)
    count = whole.boundaries
    boundaries = sample(seed, walk.name, range(count + 1), SAMPLE, always={0, count, *whole.commits})
    seen: list[int] = []
    for turn, die_at in enumerate(boundaries):
        topic = f"{walk.name}-{die_at}"
        death = mother.walk(walk.name, topic, die_at)
        assert death.completed == (die_at == count), f"{death} of {count} boundaries"
        try:
            seen.append(place_of(walk, topic))
            assert seen == sorted(seen), "what was there before is gone"
            check(walk, topic, seen[-1], same_name=bool(turn % 2))
        except AssertionError as error:
            error.add_note(f"{walk.name}, boundary {die_at} of {count}: died {death}")
            raise
    assert seen[0] == 0
    assert set(seen) == set(range(len(walk.stages))), f"stages seen: {seen}"
    assert seen[-1] == len(walk.stages) - 1
    print(f"{walk.name}: {len(boundaries)} of {count + 1} boundaries")


def place_of(walk: Walk, topic: str) -> int:
    """At which of its stages the death left the operation: never between two."""
    found = walk.look(topic)
    sights = [stage.sees for stage in walk.stages]
    assert found in sights, f"half done: {found!r} is none of {sights!r}"
    return sights.index(found)


def check(walk: Walk, topic: str, place: int, *, same_name: bool) -> None:
    stage: Stage = walk.stages[place]
    if walk.again is not None:
        walk.again(topic)
        stage = walk.stages[-1]
        assert walk.look(topic) == stage.sees, "done once more"
    recover(topic, stage, same_name=same_name)
