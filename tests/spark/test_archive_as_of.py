"""An earlier state of an archive: by a version of its table of messages, or by a time."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from django_mqueue import OutgoingMessage, Subscription, publish, publish_many
from django_mqueue.models import Message
from django_mqueue.spark import Archive, compact, erase, replay, report, verify
from django_mqueue.spark.archives.requests import TABLES
from django_mqueue.spark.archives.storage import LocalStorage
from django_mqueue.spark.cli import program
from django_mqueue.spark.errors import ArchiveError, NoArchive, NoSuchTopic, OptionError
from django_mqueue.spark.replays.preview import Preview
from django_mqueue.spark.replays.replay_run import Replayed
from tests.support.fixtures import with_settings
from tests.support.subscribers import QUICK, in_log, poll_until

from .archive_runs import Runs, copied
from .commands import arguments_of
from .streams import eventually
from .verbs import exit_code

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.one_server]

DAY = timedelta(days=1)
_quick = with_settings(MQUEUE={**QUICK, "RETENTION": 3600})


class States(Runs):
    """An archive of three runs. Each run adds five messages, five deliveries and one dead letter."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.versions: list[int] = []
        self.times: list[datetime] = []

    def add(self) -> None:
        with Subscription("orders", "billing") as subscription:
            first = 5 * len(self.versions)
            publish_many(
                "orders", [OutgoingMessage({"n": n}, key=f"k{n % 5}") for n in range(first, first + 5)]
            )
            bad, *others = poll_until(subscription, 5)
            bad.reject("no such customer")
            for other in others:
                other.ack()
        self(history_after=0)
        self.note()

    def note(self) -> None:
        """Note the state of now. Wait until the clock has passed it, by at least a millisecond."""
        self.versions.append(Archive.open(self.place).snapshots["messages"].version)
        self.times.append(datetime.now(UTC))
        then = self.times[-1] + timedelta(milliseconds=2)
        eventually(lambda: datetime.now(UTC) > then, "the clock moves")

    def counts(self, as_of: int | datetime | None = None) -> tuple[int, ...]:
        """Return the number of messages, dead letters and deliveries at that time."""
        found = Archive.open(self.place, as_of=as_of)
        tables = ("messages", "dead_letters", "deliveries")
        return tuple(found.frame(self.spark, "orders", table).count() for table in tables)  # type: ignore[arg-type]


def build(spark: SparkSession, options: dict[str, str], place: Path) -> States:
    found = States(spark, options, place)
    for _ in range(3):
        found.add()
    return found


@pytest.fixture
def states(spark: SparkSession, options: dict[str, str], tmp_path: Path) -> States:
    """Return an archive whose messages are also in the log."""
    return build(spark, options, tmp_path / "archive")


@pytest.fixture
def stored(
    spark: SparkSession, options: dict[str, str], tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> States:
    """Return a copy of such an archive. The log may not have its messages."""
    place = tmp_path / "archive"
    return copied(lambda at: build(spark, options, at), "states", place, tmp_path_factory)


def test_each_state_is_whole(states: States) -> None:
    """Also after the tables were changed in other ways: the earlier states stay the same."""
    wanted = [(5, 1, 5), (10, 2, 10), (15, 3, 15)]

    def check() -> None:
        assert [states.counts(version) for version in states.versions] == wanted
        assert [states.counts(time) for time in states.times] == wanted

    check()
    compact(states.spark, str(states.place))
    assert states.counts() == wanted[-1]
    check()
    erase(states.spark, str(states.place), "orders", key="k1")
    assert states.counts()[0] == 12
    check()
    assert states.counts(datetime.now(UTC) + DAY) == states.counts()
    last = in_log("orders")[4]
    first = Archive.open(states.place, as_of=states.versions[0])
    assert (first.upto("orders"), first.upto("orders", "deliveries")) == (last, last)
    assert first.snapshots["messages"].version == states.versions[0]
    found = first.last("orders")
    assert found is not None
    assert found.offset == last


def test_a_time_between_two_commits_of_one_batch_is_the_state_before(stored: States) -> None:
    """The messages are committed last. Without them, dead letters and deliveries of the batch do not count yet."""
    times = {table: committed(stored, table) for table in TABLES}
    version, time = max(times["deliveries"].items())
    assert version > 0
    found = Archive.open(stored.place, as_of=time)
    assert found.upto("orders") == Archive.open(stored.place, as_of=stored.versions[1]).upto("orders")
    assert stored.counts(time)[0] == 10


def committed(states: States, table: str) -> dict[int, datetime]:
    """Return the times in the table's log, by version."""
    found = {}
    for path in (states.place / table / "_delta_log").glob("*.json"):
        (info,) = [
            json.loads(line)["commitInfo"] for line in path.read_text().splitlines() if "commitInfo" in line
        ]
        found[int(path.stem)] = datetime.fromtimestamp(info["timestamp"] / 1000, UTC)
    return found


def test_times_are_those_of_the_commits_also_in_a_copy(stored: States) -> None:
    """A copy may have newer files, and a clock may be changed between two runs."""
    for path in stored.place.rglob("*.json"):
        os.utime(path, (0, 0))
    assert [stored.counts(time)[0] for time in stored.times] == [5, 10, 15]


NOT_THERE: list[tuple[Any, type[Exception], str]] = [
    (datetime(2026, 1, 1), OptionError, "as_of is 2026-01-01 00:00:00, without a time zone"),
    (99, ArchiveError, "table messages.* 99"),
    (-1, ArchiveError, "table messages.* -1"),
    (datetime(2020, 1, 1, tzinfo=UTC), ArchiveError, "2020-01-01.* or the table did not exist then"),
    (True, OptionError, "as_of is True, but must be a version, or a datetime with a time zone"),
    ("3", OptionError, "as_of is '3', but must be"),
    (1.5, OptionError, "as_of is 1.5, but must be"),
]


def test_a_state_that_is_not_there_is_an_error(stored: States) -> None:
    before = sorted(stored.place.rglob("*"))
    for as_of, error, text in NOT_THERE:
        with pytest.raises(error, match=text):
            Archive.open(stored.place, as_of=as_of)
    assert sorted(stored.place.rglob("*")) == before


def test_a_topic_that_came_later_is_not_in_it(states: States, spark: SparkSession) -> None:
    publish("parcels", 1)
    states("parcels")
    assert Archive.open(states.place).topics() == ["orders", "parcels"]
    earlier = Archive.open(states.place, as_of=states.versions[-1])
    assert earlier.topics() == ["orders"]
    with pytest.raises(NoSuchTopic, match="has no topic 'parcels'; it has orders"):
        earlier.frame(spark, "parcels")
    with pytest.raises(NoSuchTopic, match="'parcels'"):
        report(spark, "parcels", archive=str(states.place), live=False, as_of=states.versions[-1])


def test_no_archive_has_no_earlier_state(tmp_path: Path) -> None:
    with pytest.raises(NoArchive, match="there is no archive at"):
        Archive.open(tmp_path, as_of=3)
    LocalStorage(str(tmp_path)).write("photo.jpg", b"")
    with pytest.raises(NoArchive, match=r"it holds photo\.jpg"):
        Archive.open(tmp_path, as_of=datetime.now(UTC))


def test_reports_of_earlier_states(stored: States, spark: SparkSession, options: dict[str, str]) -> None:
    place = str(stored.place)
    wanted: list[int | datetime] = [stored.versions[0], stored.times[1], stored.versions[2]]
    for number, state in enumerate(wanted, 1):
        found = report(spark, "orders", archive=place, live=False, as_of=state)
        assert found.topics[0].published == 5 * number
        (billing,) = [each for each in found.groups if each.group == "billing"]
        assert (billing.finished, billing.dead) == (4 * number, number)
    for wrong in ({"archive": place}, {"live": True}, {"archive": place, "live": True}):
        with pytest.raises(OptionError, match="give an archive, and leave out the live log"):
            report(spark, "orders", options=options, as_of=stored.versions[0], **wrong)
    with pytest.raises(OptionError, match="without a time zone"):
        report(spark, "orders", archive=place, live=False, as_of=datetime(2026, 1, 1))


def test_replays_of_earlier_states(stored: States, spark: SparkSession, options: dict[str, str]) -> None:
    """Each state has replays of its own. The same name with another state is refused."""
    ways: dict[str, Any] = {"source": str(stored.place), "to": "again", "options": options}
    preview = replay(spark, "orders", "first", as_of=stored.versions[0], **ways)
    assert isinstance(preview, Preview)
    assert preview.total == 5
    ways["dry_run"] = False
    found = replay(spark, "orders", "first", as_of=stored.versions[0], **ways)
    assert isinstance(found, Replayed)
    assert (found.stored, found.finished) == (5, True)
    assert sorted(json.loads(bytes(row.payload))["n"] for row in Message.objects.filter(topic="again")) == [
        0,
        1,
        2,
        3,
        4,
    ]
    again = replay(spark, "orders", "first", as_of=stored.versions[0], **ways)
    assert isinstance(again, Replayed)
    assert again.before
    for other in (stored.versions[1], None):
        with pytest.raises(Exception, match=r"'first' .*started with other conditions"):
            replay(spark, "orders", "first", as_of=other, **ways)
    by_time = replay(spark, "orders", "second", as_of=stored.times[1], **ways)
    assert isinstance(by_time, Replayed)
    assert by_time.stored == 10
    for wrong in ({"live": True}, {"source": None}):
        with pytest.raises((OptionError, ValueError), match="leave out the live log"):
            replay(spark, "orders", "third", as_of=stored.versions[0], **{**ways, **wrong})
    assert Message.objects.filter(topic="again").count() == 15


def test_a_state_whose_files_were_deleted_is_an_error(stored: States, spark: SparkSession) -> None:
    compact(spark, str(stored.place))
    verify(spark, str(stored.place), clean=True, keep_hours=0)
    assert stored.counts() == (15, 3, 15)
    with pytest.raises(Exception, match=r"(?i)parquet"):
        stored.counts(stored.versions[0])


def test_the_commands(
    stored: States,
    options: dict[str, str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(program.Run, "start", lambda ours: stored.spark)
    place, version, time = str(stored.place), str(stored.versions[0]), stored.times[1].isoformat()
    source = ("report", "--topic", "orders", "--from-archive", place)
    assert exit_code(*source, "--no-live", "--as-of", version, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["topics"][0]["published"] == 5
    assert exit_code(*source, "--no-live", "--as-of", time, "--json", "-") == 0
    assert json.loads(capsys.readouterr().out)["topics"][0]["published"] == 10

    ways = ("replay", "--topic", "orders", "--from", place, "--to", "again", "--name", "spring", "--json")
    connection = arguments_of(options)
    assert exit_code(*ways, *connection, "--as-of", version) == 0
    assert json.loads(capsys.readouterr().out)["total"] == 5
    assert exit_code(*ways, *connection, "--as-of", time, "--yes") == 0
    assert json.loads(capsys.readouterr().out)["stored"] == 10
    assert Message.objects.filter(topic="again").count() == 10

    for arguments, code, text in (
        ((*source, "--as-of", version, *connection), 2, "leave out the live log"),
        ((*source, "--no-live", "--as-of", "yesterday"), 2, "must be an ISO 8601 time such as"),
        ((*source, "--no-live", "--as-of", "99"), 1, "99"),
        ((*ways, *connection, "--as-of", version, "--live"), 2, "leave out the live log"),
        ((*ways, *connection, "--as-of", "-3"), 2, "--as-of"),
    ):
        assert exit_code(*arguments) == code, arguments
        out, err = capsys.readouterr()
        assert text in err
        assert (out, "Traceback" in err) == ("", False)
