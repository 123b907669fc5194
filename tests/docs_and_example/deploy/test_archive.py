"""The archive's unit and manifest: the same run, and the unit's command archives all topics."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path

import pytest

from django_mqueue import publish_many
from django_mqueue.spark.cli.arguments import add_connection, add_launching
from django_mqueue.spark.cli.verbs import VERBS
from tests.support.waiting import SPARK_PATIENCE

from .files import Container, Unit, manifests


def parsed(words: Sequence[str]) -> Namespace:
    """Parse the arguments after ``manage.py`` as the command does. Fail if an option is unknown."""
    command, name, *arguments = words
    assert command == "mqueue_spark"
    (verb,) = (verb for verb in VERBS if verb.name == name)
    parser = ArgumentParser()
    verb.arguments(parser)
    add_connection(parser)
    add_launching(parser)
    return parser.parse_args(arguments)


@pytest.mark.once
def test_the_unit_and_the_manifest_archive_all_topics() -> None:
    unit = parsed(Unit("mqueue-archive.service").words("ExecStart")[2:])
    container = Container(manifests("archive.yaml")["CronJob"])
    pod = parsed([*container.spec["command"], *container.spec["args"]][2:])
    assert unit.pattern == pod.pattern == ".*"
    assert Path(unit.to) == Path(Unit("mqueue-archive.service").service["ReadWritePaths"])


@pytest.mark.once
def test_a_run_that_is_stopped_has_time_for_its_step() -> None:
    service = Unit("mqueue-archive.service").service
    pod = Container(manifests("archive.yaml")["CronJob"]).pod
    assert (service["KillMode"], service["KillSignal"], service["Type"]) == ("mixed", "SIGTERM", "oneshot")
    assert int(service["TimeoutStopSec"]) == pod["terminationGracePeriodSeconds"] == 600
    assert "Restart" not in service, "the timer starts the next run"
    assert pod["restartPolicy"] == "Never"


@pytest.mark.spark
@pytest.mark.timeout(1500)
@pytest.mark.django_db(transaction=True)
def test_the_units_command_archives(tmp_path: Path) -> None:
    """Run ``ExecStart`` twice, with the environment of the unit and a small Java."""
    from django_mqueue.spark import Archive
    from tests.spark.commands import SMALL

    place = str(tmp_path / "archive")
    for rows in (3, 5):
        publish_many("orders", range(rows))
        worker = Unit("mqueue-archive.service").start(*SMALL, to=place)
        try:
            assert worker.wait(SPARK_PATIENCE) == 0, worker.output()
            assert f"orders: {rows} messages" in worker.output()
        finally:
            worker.close()
    assert Archive.open(place).topics() == ["orders"]
