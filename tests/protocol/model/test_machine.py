"""Random stories of the queue, compared with the model of its promises.

With ``--sample SEED`` or ``--seed SEED``, the seed selects the stories. A sample has fewer long ones. Without a seed,
every run plays the same stories. To play the long ones of a sample again, add ``MQUEUE_MODEL_EXAMPLES=15`` to its
seed. To play many others:

    MQUEUE_MODEL_EXAMPLES=5000 python -m pytest --seed anything tests/protocol/model/test_machine.py --timeout 0

A failure prints the shortest story that fails, with each operation and its result. To find it takes minutes.
``MQUEUE_MODEL_STORIES`` names a file that gets each failing story at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from django.test import override_settings
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from django_mqueue.protocol import tailer
from django_mqueue.service import registration
from tests.support.sampling import number_of

from .machine import Machine
from .time_passing import SETTINGS

pytestmark = pytest.mark.django_db(transaction=True)

EXAMPLES = int(os.environ.get("MQUEUE_MODEL_EXAMPLES", "0"))


@pytest.fixture(autouse=True)
def hours_are_told(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Disable all periodic work, and do not wait for a held transaction to settle."""
    monkeypatch.setattr(tailer, "SETTLE_AT_START", 0.0)
    monkeypatch.setattr(registration, "SETTLE_FOR", 0.0)
    connection_created.connect(_wait_briefly)
    connections["default"].close()
    with override_settings(MQUEUE=SETTINGS):
        yield
    connection_created.disconnect(_wait_briefly)


def _wait_briefly(connection: BaseDatabaseWrapper, **kwargs: object) -> None:
    """Let a statement that waits for a lock fail soon. No statement of these tests may wait."""
    with connection.cursor() as cursor:
        cursor.execute("SET SESSION innodb_lock_wait_timeout = 1")


def run(seed: str | None, examples: int, steps: int) -> None:
    machine: type[Machine] = type("Story", (Machine,), {})
    if seed is not None:
        machine._hypothesis_internal_use_seed = number_of(seed)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES or examples,
            stateful_step_count=steps,
            derandomize=seed is None,
            database=None,
            print_blob=False,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        ),
    )


@pytest.mark.always
def test_short_stories_keep_the_promises(seed_of_run: str | None) -> None:
    run(seed_of_run, examples=15, steps=30)


@pytest.mark.once
@pytest.mark.timeout(0)
def test_long_stories_keep_the_promises(seed: str | None, seed_of_run: str | None) -> None:
    run(seed_of_run, examples=75 if seed is None else 15, steps=60)
