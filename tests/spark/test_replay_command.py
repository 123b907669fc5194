"""The verbs ``replay`` and ``backfill``: the dry run, the run with ``--yes``, and their errors."""

from __future__ import annotations

import io
import json
import threading
from argparse import ArgumentParser
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from django_mqueue import Subscription, publish, publish_many
from django_mqueue.messages import OutgoingMessage
from django_mqueue.models import Message
from django_mqueue.spark import archive
from django_mqueue.spark.cli.output import Output
from django_mqueue.spark.cli.verb import BadArguments, Job, Verb
from django_mqueue.spark.cli.verbs.replays import BACKFILL, REPLAY
from tests.support.subscribers import in_log, poll_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def place(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> str:
    found = str(tmp_path / "archive")
    publish_many("orders", [OutgoingMessage(n, key="ada", kind="placed") for n in range(12)])
    archive(spark, "orders", found, options=options)
    return found


def run(
    spark: SparkSession, options: dict[str, str], verb: Verb, *words: str, stopped: bool = False
) -> tuple[str, str]:
    """Return stdout and stderr of a successful run."""
    parser, out, err, stopping = ArgumentParser(), io.StringIO(), io.StringIO(), threading.Event()
    verb.arguments(parser)
    if stopped:
        stopping.set()
    assert verb.run(Job(parser.parse_args(words), options, lambda: spark, Output(out, err), stopping)) == 0
    return out.getvalue(), err.getvalue()


def test_replay_tells_and_then_does_it(spark: SparkSession, options: dict[str, str], place: str) -> None:
    words = [
        "--topic",
        "orders",
        "--from",
        place,
        "--to",
        "again",
        "--name",
        "spring",
        "--where",
        "value > 8",
    ]
    told, _ = run(spark, options, REPLAY, *words)
    assert "3 messages of topic 'orders' would be stored in 'again', for no group yet" in told
    assert "           3  placed" in told
    assert "key 'ada', kind 'placed'" in told
    assert "nothing was changed" in told
    assert in_log("again") == []
    told, _ = run(spark, options, REPLAY, *words, "--json")
    found = json.loads(told)
    assert (found["total"], found["kinds"], found["keys"]) == (3, {"placed": 3}, {"ada": 3})
    told, _ = run(spark, options, REPLAY, *words, "--yes")
    assert told == "3 messages stored in topic 'again', 3 in all\n"
    told, _ = run(spark, options, REPLAY, *words, "--yes")
    assert told == "replay 'spring' was already finished: 3 messages in topic 'again'\n"
    assert len(in_log("again")) == 3


def test_a_replay_that_is_stopped_tells_who_holds_back_deletion(
    spark: SparkSession, options: dict[str, str], place: str
) -> None:
    words = ["--topic", "orders", "--to", "again", "--rate", "1", "--yes"]
    _, said = run(spark, options, REPLAY, *words, "--name", "spring", stopped=True)
    assert "run it again as 'spring' to continue" in said
    assert "group 'replay-spring-into-again' holds back deletion from topic 'orders' until then" in said
    _, said = run(spark, options, REPLAY, *words, "--name", "old", "--from", place, stopped=True)
    assert "run it again as 'old' to continue" in said
    assert "holds back" not in said


def test_backfill_tells_and_then_does_it(spark: SparkSession, options: dict[str, str], place: str) -> None:
    words = ["--topic", "orders", "--group", "reports", "--from", place]
    told, _ = run(spark, options, BACKFILL, *words)
    assert "12 messages of topic 'orders' would be stored in 'orders', for reports" in told
    told, _ = run(spark, options, BACKFILL, *words, "--yes", "--json")
    assert json.loads(told)["finished"]
    told, _ = run(spark, options, BACKFILL, *words, "--yes")
    assert told == "group 'reports' already received the past messages of topic 'orders'\n"
    with Subscription("orders", "reports") as worker:
        assert [delivery.payload for delivery in poll_until(worker, 12)] == list(range(12))


def test_nothing_that_was_published_commands_the_terminal(
    spark: SparkSession, options: dict[str, str]
) -> None:
    """An operator reads this output on a terminal before deciding about ``--yes``."""
    kind = "\x1b]0;mine\x07\x1b[2J\r\nnothing was changed, and nothing is to be feared\x9b31m"
    sent = publish("orders", {"to": "\x9b31m\x7f\u202e"}, key="ada\u2066", id="o\u202e1", kind=kind)
    Message.objects.filter(offset=sent.offset).update(payload='"\x9b31m\x7f\u202e\x85"'.encode())
    words = ["--topic", "orders", "--name", "spring", "--to", "again"]
    told, _ = run(spark, options, REPLAY, *words)
    assert all(character.isprintable() for line in told.split("\n") for character in line)
    assert [line[:19] for line in told.splitlines()].count("nothing was changed") == 1
    assert "ada\\u2066" in told
    assert "o\\u202e1" in told
    told, _ = run(spark, options, REPLAY, *words, "--json")
    assert all(character.isprintable() for line in told.split("\n") for character in line)
    found = json.loads(told)
    assert (found["kinds"], found["keys"]) == ({kind: 1}, {"ada\u2066": 1})
    assert found["sample"][0]["payload"] == '"\x9b31m\x7f\u202e\x85"'


def test_what_cannot_be_is_a_bad_argument(
    spark: SparkSession, options: dict[str, str], place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--topic", "orders", "--from", place, "--name", "x"]
    with pytest.raises(BadArguments, match="must be later than since"):
        run(spark, options, REPLAY, *words, "--since", "2026-01-02", "--until", "2026-01-01")
    for more in (["--since", "yesterday"], ["--rate", "0"], ["--rate", "many"]):
        with pytest.raises(SystemExit):
            run(spark, options, REPLAY, *words, *more)
    assert "must be an ISO 8601 time such as" in capsys.readouterr().err
