"""Archive 300,000 messages while runs and compactions are killed many times, at random and at the worst moments.

Publishing and garbage collection continue at the same time. The archive must hold each message once.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from django_mqueue import publish_many
from django_mqueue.models import Message
from tests.support.fixtures import with_settings
from tests.support.processes import wait_until
from tests.support.subscribers import collect
from tests.support.waiting import SPARK_PATIENCE

from .archive_crashing import (
    TOPIC,
    door,
    is_ahead_of_its_group,
    is_between_its_tables,
    kill_at_pause,
    numbers,
    unused,
    verb,
    version,
    written,
)
from .crashing import JAVA, TASKS, Processes, collecting, crash, finish, publishing

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(3000)]

ROWS, BATCH = 300_000, "4000"
Way = Callable[[Processes, Path], object]


nothing_is_kept = with_settings(MQUEUE={"RETENTION": 0, "GC_INTERVAL": 0.01})


def everything(run: Processes, place: Path) -> None:
    run.kill()


def the_jvm(run: Processes, place: Path) -> None:
    run.kill(JAVA)
    assert run.worker.wait(SPARK_PATIENCE) != 0


def its_own_process(run: Processes, place: Path) -> None:
    run.worker.kill()
    wait_until(lambda: not run.pids(), "nothing is left of it")


def tasks(run: Processes, place: Path) -> None:
    """Kill all tasks, six times.

    Spark retries a task three times: the run survives one or two kills, and fails in the end.
    """
    for _ in range(6):
        run.kill(TASKS)
        threading.Event().wait(0.4)


def before_the_commits(run: Processes, place: Path) -> None:
    known = unused(place)
    kill_at_pause(run, lambda: bool(unused(place) - known), "a new file belongs to no table")


def before_the_messages(run: Processes, place: Path) -> None:
    kill_at_pause(run, partial(is_between_its_tables, place), "deliveries are committed, and messages not")


def before_the_move(run: Processes, place: Path) -> None:
    ahead = partial(is_ahead_of_its_group, place)
    kill_at_pause(run, ahead, "messages are committed, and the group is behind")


WAYS: list[Way] = [
    everything, before_the_commits, tasks, before_the_move, before_the_messages, the_jvm, before_the_commits, tasks,
    before_the_messages, its_own_process, before_the_move, everything,
]  # fmt: skip

PAUSES: dict[Way, str] = {
    before_the_commits: "deliveries",
    before_the_messages: "messages",
    before_the_move: "group",
}
"""The steps of its first batch before which a run waits forever."""


def is_compacting(place: Path, known: set[str]) -> bool:
    return bool(written(place) - known)


def compact_and_be_killed(options: dict[str, str], place: Path) -> None:
    known, counted = written(place), numbers(place)
    crash(
        lambda: verb("compact", options, place),
        lambda run: run.kill_when(partial(is_compacting, place, known), "a file of a compaction is there"),
    )
    assert numbers(place) == counted


def test_two_compactions_at_once_one_of_which_is_killed_when_it_has_committed(
    options: dict[str, str], tmp_path: Path
) -> None:
    """The other compaction is paused before it commits. No kill may need manual repair."""
    publish_many(TOPIC, range(3000))
    place = tmp_path / "archive"
    finish(lambda: verb("archive", options, place, "--batch-rows", "1000"))
    known, before = written(place), version(place)

    def is_done() -> bool:
        return version(place) > before

    with verb("compact", options, place, pause_before="messages") as slow:
        slow.until(lambda: is_compacting(place, known), "it writes a file")
        slow.send(signal.SIGSTOP)
        assert not is_done()
        crash(
            lambda: verb("compact", options, place),
            lambda run: run.kill_when(is_done, "it has committed"),
        )
        assert numbers(place) == list(range(3000))
        door(place).touch()
        slow.send(signal.SIGCONT)
        assert slow.worker.wait(SPARK_PATIENCE) == 1
        assert "table messages was not changed" in slow.worker.output()
    assert version(place) == before + 1
    assert numbers(place) == list(range(3000))
    clean(options, place)
    finish(lambda: verb("compact", options, place))
    clean(options, place)
    assert numbers(place) == list(range(3000))


def clean(options: dict[str, str], place: Path) -> None:
    """Delete all unused files."""
    for path in place.rglob("*.*"):
        os.utime(path, (0, 0))  # Old files: no process uses them.
    finish(lambda: verb("verify", options, place, "--clean", "--keep-hours", "0"))
    assert unused(place) == set()


def test_each_message_counts_once(options: dict[str, str], tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    chance = random.Random(seed)
    print(f"seed {seed}")
    place = tmp_path / "archive"

    def run(way: Way) -> AbstractContextManager[Processes]:
        return verb("archive", options, place, "--batch-rows", BATCH, pause_before=PAUSES.get(way, ""))

    with publishing(TOPIC, ROWS), collecting(TOPIC):
        for way in WAYS:
            goal = version(place) + chance.randint(1, 2)

            def at_work(run: Processes, way: Way = way, goal: int = goal) -> None:
                if way not in PAUSES:
                    run.until(lambda: version(place) >= goal, f"batch {goal} is there")
                    threading.Event().wait(chance.random())
                way(run, place)

            crash(partial(run, way), at_work)
            print(
                f"{way.__name__}: {version(place)} batches, {Message.objects.filter(topic=TOPIC).count()} in the log"
            )
            counted = numbers(place)
            assert len(set(counted)) == len(counted), "twice"
        compact_and_be_killed(options, place)
    with collecting(TOPIC):
        finish(lambda: verb("archive", options, place, "--batch-rows", BATCH))
    assert numbers(place) == list(range(ROWS))
    collect(TOPIC)
    assert not Message.objects.filter(topic=TOPIC).exists()
    assert unused(place), "nothing was left by the kills"
    finish(lambda: verb("compact", options, place))
    clean(options, place)
    assert 1 <= len(written(place)) <= 2, "a file for each day"
    assert numbers(place) == list(range(ROWS))


def test_of_two_runs_at_once_one_does_it(options: dict[str, str], tmp_path: Path) -> None:
    publish_many(TOPIC, range(50_000))
    place = tmp_path / "archive"
    rows = ("--batch-rows", "1000")
    with verb("archive", options, place, *rows) as one, verb("archive", options, place, *rows) as other:
        ends = sorted([one.worker.wait(SPARK_PATIENCE), other.worker.wait(SPARK_PATIENCE)])
        said = one.worker.output() + other.worker.output()
    assert ends == [0, 1] or "nothing new" in said, said
    assert "Traceback" not in said
    assert numbers(place) == list(range(50_000))


def test_a_run_that_stood_still_for_long_does_no_harm_to_the_one_that_took_its_place(
    options: dict[str, str], tmp_path: Path
) -> None:
    """The paused run's heartbeat has expired. Then it continues in the middle of a batch."""
    publish_many(TOPIC, range(50_000))
    place = tmp_path / "archive"
    rows = ("--batch-rows", "1000")
    with collecting(TOPIC), verb("archive", options, place, *rows, pause_before="messages 2") as slow:
        slow.until(lambda: version(place) >= 2, "two batches are there")
        slow.until(lambda: bool(unused(place)), "a batch is being written")
        slow.send(
            signal.SIGSTOP
        )  # The next verb starts half a minute later, as far as the heartbeats of its group show.
        with verb("archive", options, place, *rows) as heir:
            assert heir.worker.wait(SPARK_PATIENCE) == 0
        publish_many(TOPIC, range(50_000, 60_000))
        door(place).touch()
        slow.send(signal.SIGCONT)
        code = slow.worker.wait(SPARK_PATIENCE)
        print(code, slow.worker.output()[-1000:])
        assert "Traceback" not in slow.worker.output()
        finish(lambda: verb("archive", options, place))
    assert numbers(place) == list(range(60_000))
    collect(TOPIC)
    assert not Message.objects.filter(topic=TOPIC).exists()
