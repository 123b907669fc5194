"""The verb ``export`` rejects invalid arguments before Spark starts. Only marked tests need Spark."""

from __future__ import annotations

import json
import threading
from argparse import ArgumentParser
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import publish_many
from django_mqueue.models import Message
from django_mqueue.spark.cli.output import Output
from django_mqueue.spark.cli.verb import Job, Stopped
from django_mqueue.spark.cli.verbs.export import VERB

from .verbs import exit_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


main = partial(exit_code, "export")


_SPARK = pytest.mark.spark
"""PySpark checks the columns."""

ORDERS = ("--topic", "orders", "--to", "there")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--to", "there"), "--topic --pattern is required"),
        (("--topic", "orders"), "--to"),
        (("--topic", "a", "--pattern", "b", "--to", "there"), "not allowed with"),
        (("--topic", " a", "--to", "there"), "must not begin or end with blanks: ' a'"),
        (
            ("--topic", "a,b", "--topic", "c", "--to", "there"),
            "'a,b' has a comma in its name: export it alone",
        ),
        (("--topic", "a", "--topic", "", "--to", "there"), "'' cannot be a topic"),
        (("--pattern", "(", "--to", "there"), "must be a Python regular expression"),
        pytest.param(
            (*ORDERS, "--columns", "offset,total"),
            "has no column 'total'; it has topic, partition",
            marks=_SPARK,
        ),
        ((*ORDERS, "--columns", "offset,offset"), "none twice"),
        pytest.param((*ORDERS, "--columns", ""), "has no column ''", marks=_SPARK),
        ((*ORDERS, "--table", "letters"), "invalid choice"),
        ((*ORDERS, "--compression", "zip"), "invalid choice"),
        ((*ORDERS, "--since", "yesterday"), "must be an ISO 8601 time such as"),
        ((*ORDERS, "--since", "2026-03-02", "--until", "2026-03-01"), "would end before it begins"),
        (("--topic", "orders", "--to", ""), "location is empty"),
        (("--topic", "orders", "--to", "s3://id:key@bucket/there"), "must not contain keys"),
    ],
    ids=str,
)
def test_bad_arguments_are_one_line_and_exit_code_2(
    arguments: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(*arguments) == 2
    out, err = capsys.readouterr()
    assert named in err
    assert out == ""
    assert "Traceback" not in err


def test_without_pyspark_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("django_mqueue.spark.launching.find_spec", lambda name: None)
    assert main(*ORDERS) == 1
    assert "pyspark is not installed: install this package" in (err := capsys.readouterr().err)
    assert "Traceback" not in err


def job(spark: Any, options: dict[str, str], *words: str, stopping: threading.Event | None = None) -> Job:
    parser = ArgumentParser()
    VERB.arguments(parser)
    return Job(parser.parse_args(words), options, lambda: spark, Output(), stopping or threading.Event())


@pytest.mark.spark
def test_what_it_says(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Select by times, which are in UTC. Print JSON."""
    publish_many("orders", range(10))
    last = Message.objects.order_by("offset").last()
    assert last is not None
    Message.objects.exclude(pk=last.pk).update(published_at=1_772_323_200_000)  # 2026-03-01
    Message.objects.filter(pk=last.pk).update(published_at=1_772_409_600_000)  # a day later
    for number, (words, rows) in enumerate(
        [([], 10), (["--since", "2026-03-02"], 1), (["--until", "2026-03-02"], 9)]
    ):
        place = str(tmp_path / str(number))
        assert VERB.run(job(spark, options, "--topic", "orders", "--to", place, *words)) == 0
        assert f"{rows} rows in 1 file of 0.0 MiB in {place}\n" == capsys.readouterr().out
    place = str(tmp_path / "last")
    assert VERB.run(job(spark, options, "--pattern", "ord.*", "--to", place, "--json")) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["files"]) == (10, 1)


@pytest.mark.spark
def test_the_first_signal_ends_it_and_nothing_is_left(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal ends the export between two rounds of tasks. A finished export keeps its files."""
    monkeypatch.setattr("django_mqueue.spark.exports.export_run.TASKS_PER_CORE", 1)
    stopping = threading.Event()
    stopping.set()
    for topic in ("a", "b", "c"):
        publish_many(topic, range(10))
    with pytest.raises(Stopped, match="the files written so far are deleted"):
        VERB.run(
            job(spark, options, "--pattern", "[abc]", "--to", str(tmp_path / "three"), stopping=stopping)
        )
    assert not list((tmp_path / "three").iterdir())
    assert VERB.answers
