"""Kill a process at every boundary of every statement that a verb issues, and check that no promise is broken.

The walks are in ``walks_….py``: publish, claims, settlements, leases, watermarks, deletion, registration, settling,
joining and leaving. A zygote is a process that has imported everything and has no connection open. For each death it
forks a child. The child prepares a topic of its own, and then operates.

The child wraps the driver's connection (``wire.py``). Every statement, COMMIT, ROLLBACK, savepoint and change of
autocommit counts, from any part of the code. Each has one boundary before it and one after its response. A statement
that commits has a third boundary: it is sent, and its response is never read. The test has no list of statements, so a
new statement is walked as soon as the code sends it.

A first run counts the boundaries. Then one child for each boundary kills itself there with SIGKILL. A last child
completes the operation and exits without closing its connections.

After each death the test waits until the server has ended the transactions of the dead process. The tables must then
show one of the walk's stages, and no state between two stages. Over the walk, each stage must be seen, and none may be
seen again after a later one.

Then a subscriber with the same name takes over at once. In every second case, the leases expire instead (the test
moves their times into the past), and a subscriber with another name takes over. Deletion runs before, between and
after.

Each of two groups must get exactly what its stage implies, with the right attempt numbers. An acknowledged message is
never delivered again. A message that was given up is one dead letter with the right number of failures. At the end,
the log, the state, the positions and the leases of the topic are empty (``recovery.py``).

A run with ``--sample`` takes the first and the last boundary, each COMMIT whose response is never read, and a sixth of
the other boundaries.
"""

from __future__ import annotations

import pytest

from django_mqueue import publish
from tests.support.sampling import sample

from .catalogue import WALKS
from .deaths import Zygote
from .recovery import recover
from .walks import Stage, Walk

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.always]

SAMPLE = 6


@pytest.mark.parametrize("walk", [pytest.param(walk, id=name) for name, walk in WALKS.items() if walk.stages])
def test_death_at_every_boundary_breaks_no_promise(walk: Walk, mother: Zygote, seed: str | None) -> None:
    publish(f"{walk.name}-before", 0)  # The watermark of a log's very first offset needs one statement less.
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
    """Return the index of the stage that the death left. The state never lies between two stages."""
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
