"""Random stories of the queue against the model of its promises.

The suite runs the same stories each time. To run others, and more of them:

    MQUEUE_MODEL_EXAMPLES=5000 MQUEUE_MODEL_SEED=random python -m pytest -m slow tests/protocol/model --timeout 0

``MQUEUE_MODEL_SEED`` is a number, to repeat a run, or ``random``; without it the stories are the suite's. A failure
prints the shortest story that fails, each operation as it was and what came of it; finding the shortest takes minutes.
``MQUEUE_MODEL_STORIES`` names a file that gets each failing story as soon as it was met.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import override_settings
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from django_mqueue.service import feed, registration

from .machine import Machine
from .time_passing import SETTINGS

pytestmark = pytest.mark.django_db(transaction=True)

EXAMPLES = int(os.environ.get("MQUEUE_MODEL_EXAMPLES", "0"))
SEED = os.environ.get("MQUEUE_MODEL_SEED", "")


@pytest.fixture(autouse=True)
def hours_are_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing happens by itself, and nobody waits for a held transaction to settle."""
    monkeypatch.setattr(feed, "SETTLE_AT_START", 0.0)
    monkeypatch.setattr(registration, "SETTLE_FOR", 0.0)
    connection_created.connect(_wait_briefly)
    connections["default"].close()
    with override_settings(MQUEUE=SETTINGS):
        yield
    connection_created.disconnect(_wait_briefly)


def _wait_briefly(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Nothing here may wait for a lock at all: what does so fails soon."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")


def run(examples: int, steps: int) -> None:
    machine: type[Machine] = type("Story", (Machine,), {})
    if SEED:
        seed = random.randrange(2**32) if SEED == "random" else int(SEED)
        print(f"MQUEUE_MODEL_SEED={seed}")
        machine._hypothesis_internal_use_seed = seed
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES or examples,
            stateful_step_count=steps,
            derandomize=not SEED,
            database=None,
            deadline=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        ),
    )


def test_short_stories_keep_the_promises() -> None:
    run(examples=15, steps=30)


@pytest.mark.once
@pytest.mark.timeout(0)
def test_long_stories_keep_the_promises() -> None:
    run(examples=75, steps=60)
