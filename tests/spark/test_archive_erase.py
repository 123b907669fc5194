"""Erasure: the rows of a customer leave the archive, its files, and everything that reads it. All other rows stay."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from django.test import override_settings

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.models import Message
from django_mqueue.spark import Archive, compact, erase, replay, report, verify
from django_mqueue.spark.archives import rewriting
from django_mqueue.spark.archives.rewriting import Erased
from django_mqueue.spark.archives.tables import Snapshot
from django_mqueue.spark.archives.verifying import Verified
from django_mqueue.spark.cli import program
from django_mqueue.spark.errors import ArchiveError, NoArchive, NoSuchTopic, OptionError
from django_mqueue.spark.replays.replay_run import Replayed
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, collect, in_log, poll_until

from .archive_runs import Runs, copied
from .archives import age
from .verbs import exit_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.one_server]

SECRET = "a secret of ada's, which is long enough to be found"
TABLES = ("dead_letters", "deliveries", "messages")
_quick = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


def archived(spark: SparkSession, options: dict[str, str], place: Path) -> Runs:
    """Archive ``orders`` in two runs. ``ada`` has four messages, of which one is a dead letter; ``bob`` has eight."""
    found = Runs(spark, options, place)
    with Subscription("orders", "billing") as subscription:
        fill(0)
        first, *others = poll_until(subscription, 6)
        first.reject(f"cannot read {SECRET}")
        for other in others:
            other.ack()
        found(history_after=0)
        fill(6)
        for delivery in poll_until(subscription, 6):
            delivery.ack()
    found(history_after=0)
    return found


@pytest.fixture
def run(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Runs:
    """Return a copy of this archive. The log may not have its messages."""
    place = tmp_path / "archive"
    return copied(lambda at: archived(spark, options, at), "two-customers", place, tmp_path_factory)


@pytest.fixture
def live(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> Runs:
    """Return this archive, whose messages are also in the log."""
    return archived(spark, options, tmp_path / "archive")


def fill(first: int) -> None:
    """Publish six messages. The first and the fourth are of ``ada``."""
    publish_many(
        "orders",
        [
            OutgoingMessage(
                {"n": n, "text": SECRET if n % 3 == 0 else "nothing"},
                key="ada" if n % 3 == 0 else "bob",
                id=f"o-{n}",
                headers={"customer": "ada" if n % 3 == 0 else "bob"},
            )
            for n in range(first, first + 6)
        ],
    )


def ids(run: Runs) -> list[str]:
    return sorted(row["id"] for row in run.held())


def state(run: Runs) -> Any:
    """Return the versions and files of the three tables, and all files of the folder."""
    found = Archive.open(run.place)
    tables = [(found.snapshots[table].version, found.entries("orders", table)) for table in TABLES]  # type: ignore[index, arg-type]
    return tables, sorted(path for path in run.place.rglob("*") if path.is_file())


def verified(run: Runs, **more: Any) -> Verified:
    (found,) = verify(run.spark, str(run.place), **more)
    assert found.problems == []
    return found


def files_with(run: Runs, text: str) -> list[str]:
    """Return the files of the folder that hold these bytes, compressed or not."""
    import pyarrow.parquet as pq

    found = []
    for path in sorted(run.place.rglob("*")):
        if path.is_file():
            held = path.read_bytes()
            if path.suffix == ".parquet" and "_delta_log" not in path.parts:
                held += repr(pq.ParquetFile(path).read().to_pylist()).encode()
            if text.encode() in held or text.encode() in held.replace(b"\\'", b"'"):
                found.append(path.relative_to(run.place).as_posix())
    return found


BY_KEY = {"key": "ada"}
BY_CONDITION = {"where": "get_json_object(CAST(payload AS STRING), '$.text') LIKE 'a secret%'"}
BY_VALUE = {"where": "get_json_object(value, '$.text') LIKE 'a secret%'"}
BY_HEADER = {"where": "get_json_object(headers, '$.customer') = 'ada'"}


BY_RETRY = {"where": "key = 'ada' AND retry_of IS NULL AND first_published_at IS NULL"}
"""Dead letters do not have the last two columns."""


@pytest.mark.parametrize(
    "which",
    [BY_KEY, BY_CONDITION, BY_VALUE, BY_HEADER, BY_RETRY],
    ids=["key", "payload", "value", "header", "retry"],
)
def test_rows_leave_all_tables_and_files(run: Runs, which: dict[str, str]) -> None:
    assert {path.partition("/")[0] for path in files_with(run, SECRET)} == set(TABLES)
    whole = verified(run)
    ada = [row["offset"] for row in run.held() if row["key"] == "ada"]
    done = erase(run.spark, str(run.place), "orders", **which)  # type: ignore[arg-type]
    assert done == Erased("orders", {"messages": 4, "dead_letters": 1, "deliveries": 4}, done.files)
    assert 3 <= done.files <= whole.files
    assert ids(run) == [f"o-{n}" for n in (1, 10, 11, 2, 4, 5, 7, 8)]
    assert run.held(table="dead_letters") == []
    assert not {row["offset"] for row in run.held(table="deliveries")} & set(ada)
    assert len(run.held(table="deliveries")) == 8

    found = verified(run)
    assert (found.rows, found.erased, found.deleted) == (16, 9, 0)
    assert len(found.unused) == done.files, "others may be reading them still"
    assert set(files_with(run, SECRET)) <= set(found.unused)
    assert verified(run, clean=True).deleted == 0, "they are kept for a day"
    found = verified(run, clean=True, keep_hours=0)
    assert found.deleted == len(found.unused) == done.files
    assert files_with(run, SECRET) == []
    found = verified(run)
    assert (found.rows, found.erased, found.unused) == (16, 9, [])
    assert len(ids(run)) == 8


def test_a_file_that_was_replaced_weeks_ago_is_deleted_after_a_checkpoint_of_delta(live: Runs) -> None:
    """Each table keeps the dates of replaced files for ten years. An archive run sets this in older archives."""
    from deltalake import DeltaTable

    for snapshot in Archive.open(live.place).snapshots.values():
        snapshot.set_properties({"delta.deletedFileRetentionDuration": "interval 7 days"})
    live()
    erase(live.spark, str(live.place), "orders", key="ada")
    assert files_with(live, SECRET) != []
    for table in TABLES:
        for log in (live.place / table / "_delta_log").glob("*.json"):
            log.write_text(re.sub(r'("deletionTimestamp":)(\d+)', earlier, log.read_text()))
        DeltaTable(str(live.place / table)).create_checkpoint()
    erase(live.spark, str(live.place), "orders", key="nobody")
    assert files_with(live, SECRET) == []


def earlier(found: re.Match[str]) -> str:
    return f"{found[1]}{int(found[2]) - 20 * 86_400_000}"


def test_a_condition_by_offset_takes_the_dead_letter_of_that_message(run: Runs) -> None:
    """A dead letter has an offset of its own, which is another message's nowhere."""
    (letter,) = run.held(table="dead_letters")
    message = int(letter["id"].partition(":")[0])
    place = str(run.place)
    only_letter = erase(run.spark, place, "orders", where=f"offset = {letter['offset']}")
    assert only_letter.rows == {"messages": 0, "dead_letters": 0, "deliveries": 0}
    assert only_letter.files == 0
    found = erase(run.spark, place, "orders", where=f"offset = {message}")
    assert found.rows == {"messages": 1, "dead_letters": 1, "deliveries": 1}
    assert found.files == 3
    assert verified(run).erased == 3


def test_files_without_such_a_row_stay_as_they_are(run: Runs) -> None:
    """Both keys have messages at both ends of the first file, and none has the key that is erased."""
    before = state(run)
    assert erase(run.spark, str(run.place), "orders", key="nobody").files == 0
    assert state(run) == before


def test_files_are_deleted_at_once_if_nobody_reads_them(run: Runs) -> None:
    erase(run.spark, str(run.place), "orders", key="ada", keep_hours=0)
    assert files_with(run, SECRET) == []
    assert verified(run).unused == []


def test_what_is_erased_already_changes_nothing(run: Runs) -> None:
    erase(run.spark, str(run.place), "orders", key="ada", keep_hours=0)
    before = Archive.open(run.place)
    done = erase(run.spark, str(run.place), "orders", key="ada")
    assert (done.files, set(done.rows.values())) == (0, {0})
    done = erase(run.spark, str(run.place), "orders", key="nobody's")
    assert (done.files, set(done.rows.values())) == (0, {0})
    after = Archive.open(run.place)
    assert all(before.entries("orders", table) == after.entries("orders", table) for table in TABLES)  # type: ignore[arg-type]
    assert verified(run).erased == 9


@pytest.mark.parametrize("key", ["it's", 'a "b"', "back\\slash", "\\' OR true OR '", "ключ", "%", "${x}"])
def test_a_key_is_taken_literally(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, key: str
) -> None:
    run = Runs(spark, options, tmp_path / "archive")
    publish("orders", 1, key=key)
    publish("orders", 2, key="another")
    publish("orders", 3)
    run()
    assert erase(spark, str(run.place), "orders", key=key).rows["messages"] == 1
    assert sorted(row["payload"] for row in run.held()) == [b"2", b"3"]


@pytest.mark.parametrize(
    ("which", "error", "text"),
    [
        ({}, OptionError, "give either key, or where"),
        ({"key": "ada", "where": "true"}, OptionError, "give either key, or where"),
        (
            {"where": "kee = 'ada'"},
            OptionError,
            r"where is \"kee = 'ada'\", which is not a condition over the columns topic, .* value: \[.*kee.*[^\n]$",
        ),
        ({"where": "key ="}, OptionError, "which is not a condition over the columns"),
        ({"where": "offset + 1"}, OptionError, "which is not a condition over the columns"),
        ({"where": "count(*) > 1"}, OptionError, "which is not a condition over the columns"),
        ({"key": "ada", "keep_hours": -1}, OptionError, "keep_hours is -1"),
        ({"key": "ada", "keep_hours": float("nan")}, OptionError, "keep_hours is nan"),
        ({"key": "ada", "topic": "order"}, NoSuchTopic, "has no topic 'order'; it has orders"),
        ({"key": "ada", "to": "/nowhere"}, NoArchive, "there is no archive at /nowhere"),
    ],
    ids=str,
)
def test_errors_change_nothing(run: Runs, which: dict[str, Any], error: type[Exception], text: str) -> None:
    before = state(run)
    with pytest.raises(error, match=text):
        erase(run.spark, which.pop("to", str(run.place)), which.pop("topic", "orders"), **which)
    assert state(run) == before


def test_a_condition_that_fails_for_a_row_changes_nothing(run: Runs) -> None:
    before = state(run)
    with pytest.raises(OptionError, match=r"which fails for one of the messages: \[CAST_INVALID_INPUT\]"):
        erase(run.spark, str(run.place), "orders", where="CAST(key AS INT) = 1")
    assert state(run) == before


def during_the_next_commit(monkeypatch: pytest.MonkeyPatch, do: Callable[[], object]) -> None:
    """Call ``do`` when an archive run has written its files and is about to commit them."""
    real, others = Snapshot.commit, [do]

    def commit(snapshot: Snapshot, *arguments: Any, **more: Any) -> Snapshot:
        if others:
            others.pop()()
        return real(snapshot, *arguments, **more)

    monkeypatch.setattr(Snapshot, "commit", commit)


def test_an_archive_run_beside_an_erasure_adds_its_rows(live: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(12)
    during_the_next_commit(
        monkeypatch, lambda: erase(live.spark, str(live.place), "orders", key="ada", keep_hours=0)
    )
    live(history_after=0)
    assert verified(live).erased == 9, "the rows that were archived before the erasure"
    old = [f"o-{n}" for n in (1, 2, 4, 5, 7, 8, 10, 11)]
    assert ids(live) == sorted(old + [f"o-{n}" for n in range(12, 18)])
    assert live()[0].batches == 0
    rows = erase(live.spark, str(live.place), "orders", key="ada", keep_hours=0).rows
    assert rows["messages"] == 2
    assert verified(live).erased == 9 + sum(rows.values())
    assert files_with(live, SECRET) == []


def test_an_archive_run_whose_files_were_cleaned_away_adds_nothing(
    live: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch took two hours. Files that are not committed are kept for one hour."""
    fill(12)

    def clean() -> None:
        age(live.place)
        assert verified(live, clean=True, keep_hours=0).deleted > 0

    during_the_next_commit(monkeypatch, clean)
    with pytest.raises(ArchiveError, match=r"a cleanup deleted .* while this run needed it"):
        live(history_after=0)
    verified(live)
    assert len(ids(live)) == 12
    live(history_after=0)
    assert len(ids(live)) == 18
    verified(live)


def test_of_an_erasure_and_a_compaction_at_once_one_is_refused(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, others = rewriting._rewrite, [True]

    def rewrite(*arguments: Any) -> Any:
        if others:
            others.pop()
            assert compact(run.spark, str(run.place))[0].files > 0
        return real(*arguments)

    monkeypatch.setattr(rewriting, "_rewrite", rewrite)
    with pytest.raises(ArchiveError, match=r"was not changed: .*run this again"):
        erase(run.spark, str(run.place), "orders", key="ada")
    assert len(ids(run)) == 12
    assert erase(run.spark, str(run.place), "orders", key="ada", keep_hours=0).rows["messages"] == 4
    assert verified(run).erased == 9
    assert files_with(run, SECRET) == []


def test_an_erasure_that_was_killed_is_finished_by_the_next_one(
    run: Runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has committed the table of dead letters only."""
    real = rewriting._rewrite

    def rewrite(spark: Any, archive: Any, table: str, *more: Any) -> Any:
        if table != "dead_letters":
            raise KeyboardInterrupt
        return real(spark, archive, table, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(rewriting, "_rewrite", rewrite)
        with pytest.raises(KeyboardInterrupt):
            erase(run.spark, str(run.place), "orders", key="ada")
    assert verified(run).erased == 1
    done = erase(run.spark, str(run.place), "orders", key="ada", keep_hours=0)
    assert done.rows == {"messages": 4, "dead_letters": 0, "deliveries": 4}
    assert verified(run).erased == 9
    assert files_with(run, SECRET) == []


def test_a_damaged_file_is_not_written_again(run: Runs) -> None:
    entry = Archive.open(run.place).entries("orders")[-1]
    path = run.place / entry.path
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1
    path.write_bytes(data)
    with pytest.raises((ArchiveError, Exception), match=r"(?s)parquet"):
        erase(run.spark, str(run.place), "orders", where="offset > 0")
    assert Archive.open(run.place).entries("orders")[-1] == entry


def test_a_topic_can_be_erased_completely_and_goes_on(live: Runs) -> None:
    erase(live.spark, str(live.place), "orders", where="true", keep_hours=0)
    assert (ids(live), Archive.open(live.place).topics()) == ([], [])
    assert [each.problems for each in verify(live.spark, str(live.place), topics="orders")] == [[]]
    assert not list(live.place.glob("*/orders-*/**/*.parquet"))
    publish("orders", "new", id="new")
    assert live()[0].rows["messages"] == 1
    assert ids(live) == ["new"]


def test_reports_and_replays_after_an_erasure(
    run: Runs, spark: SparkSession, options: dict[str, str]
) -> None:
    with override_settings(MQUEUE={"RETENTION": 0}):
        collect("orders")
    assert in_log("orders") == []
    ways: dict[str, Any] = {"source": str(run.place), "to": "again", "options": options, "dry_run": False}

    before = report(spark, "orders", archive=str(run.place), live=False)
    assert before.topics[0].published == 12
    erase(spark, str(run.place), "orders", key="ada", keep_hours=0)
    after = report(spark, "orders", archive=str(run.place), live=False)
    assert (after.topics[0].published, after.topics[0].keys) == (8, 1)
    assert after.errors == []

    found = replay(spark, "orders", "spring", **ways)
    assert isinstance(found, Replayed)
    assert (found.stored, found.total, found.finished) == (8, 8, True)
    assert {row.partition_key for row in Message.objects.filter(topic="again")} == {"bob"}
    assert replay(spark, "orders", "spring", **ways).before  # type: ignore[union-attr]


def test_a_replay_that_was_begun_before_the_erasure_finishes(
    run: Runs, spark: SparkSession, options: dict[str, str]
) -> None:
    ways: dict[str, Any] = {"source": str(run.place), "to": "again", "options": options, "dry_run": False}
    stopping = threading.Event()

    def watch(stored: int) -> None:
        if stored:
            stopping.set()

    first = replay(spark, "orders", "spring", rate=0.2, stopping=stopping, watch=watch, **ways)
    assert isinstance(first, Replayed)
    assert not first.finished
    assert 0 < first.total < 12
    erase(spark, str(run.place), "orders", key="ada", keep_hours=0)
    found = replay(spark, "orders", "spring", **ways)
    assert isinstance(found, Replayed)
    assert found.finished
    rows = Message.objects.filter(topic="again")
    assert len(rows) == found.total
    assert {json.loads(bytes(row.payload))["n"] for row in rows} >= {1, 2, 4, 5, 7, 8, 10, 11}


def test_an_earlier_state_can_be_read_until_the_files_are_deleted(run: Runs, spark: SparkSession) -> None:
    place = str(run.place)
    version = Archive.open(place).snapshots["messages"].version
    erase(spark, place, "orders", key="ada")
    assert Archive.open(place, as_of=version).frame(spark, "orders").count() == 12
    assert report(spark, "orders", archive=place, live=False, as_of=version).topics[0].published == 12
    assert Archive.open(place).frame(spark, "orders").count() == 8
    verified(run, clean=True, keep_hours=0)
    earlier = Archive.open(place, as_of=version)
    with pytest.raises(Exception, match=r"(?s)(?i)parquet|PATH_NOT_FOUND"):
        earlier.frame(spark, "orders").count()


def test_a_state_whose_files_were_deleted_is_told_as_that(
    run: Runs, spark: SparkSession, options: dict[str, str]
) -> None:
    place = str(run.place)
    version = Archive.open(place).snapshots["messages"].version
    erase(spark, place, "orders", key="ada", keep_hours=0)
    with pytest.raises(ArchiveError, match="deleted"):
        report(spark, "orders", archive=place, live=False, as_of=version)
    with pytest.raises(ArchiveError, match="deleted"):
        replay(spark, "orders", "spring", source=place, as_of=version, options=options)


main = partial(exit_code, "erase")


def test_the_command_reports_what_it_has_erased(
    run: Runs, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program.Run, "start", lambda ours: run.spark)
    arguments = ("--to", str(run.place), "--topic", "orders")
    assert main(*arguments, "--key", "ada") == 0
    out = capsys.readouterr().out
    assert re.search(r"orders: 4 messages, 1 dead letters, 4 deliveries erased; \d+ files rewritten", out)
    assert "the old files stay for 24 hours: after that, verify --clean deletes them" in out
    assert main(*arguments, "--where", "key = 'bob'", "--keep-hours", "0", "--json") == 0
    out = capsys.readouterr().out
    assert json.loads(out)["rows"] == {"messages": 8, "dead_letters": 0, "deliveries": 8}
    assert files_with(run, "nothing") == []
    assert main(*arguments, "--key", "ada") == 0
    assert "orders: 0 messages" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("--topic", "orders", "--key", "a"), 2, "--to"),
        (("--to", "x", "--key", "a"), 2, "--topic"),
        (("--to", "x", "--topic", "orders"), 2, "one of the arguments --key --where is required"),
        (("--to", "x", "--topic", "orders", "--key", "a", "--where", "true"), 2, "not allowed with"),
        (("--to", "/nowhere", "--topic", "orders", "--key", "a"), 1, "there is no archive at /nowhere"),
    ],
    ids=str,
)
def test_wrong_arguments_of_the_command(
    arguments: tuple[str, ...], code: int, text: str, spark: SparkSession,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(program.Run, "start", lambda ours: spark)
    assert main(*arguments) == code
    out, err = capsys.readouterr()
    assert text in err
    assert (out, "Traceback" in err) == ("", False)
