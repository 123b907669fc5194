"""The verb ``report`` rejects invalid arguments before it reads anything. No Spark here."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from django_mqueue.spark import report
from django_mqueue.spark.errors import OptionError
from django_mqueue.spark.reports.counting import kind_of
from django_mqueue.spark.reports.requests import report_request

from .verbs import exit_code

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
main = partial(exit_code, "report")


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ((), "--topic --pattern is required"),
        (("--topic", "a", "--pattern", "b"), "not allowed with"),
        (("--topic", " a"), "' a' cannot be a topic"),
        (("--topic", "a" * 129), "cannot be a topic"),
        (("--pattern", "("), "is not a Python regular expression"),
        (("--topic", "a", "--no-live"), "nothing to read"),
        (("--topic", "a", "--since", "2026-03-02", "--until", "2026-03-01"), "must be before until"),
        (("--topic", "a", "--since", "yesterday"), "must be an ISO 8601 time"),
        (("--topic", "a", "--by", "week"), "invalid choice"),
        (("--topic", "a", "--top", "0"), "from 1 to 1000"),
        (("--topic", "a", "--top", "many"), "invalid int"),
        (("--topic", "a", "--json", "/no/such/folder/report.json"), "cannot be written"),
        (("--topic", "a", "--html", "/"), "is a folder"),
        (("--topic", "a", "--html", "-"), "--html: only --json can write to the standard output"),
        (("--topic", "a", "--csv", "-"), "--csv: only --json can write to the standard output"),
        (("--topic", "a", "--csv", __file__), "is not a folder"),
        (("--topic", "a", "--csv", f"{__file__}/sub/tables"), "test_report_command.py is not a folder"),
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


@pytest.mark.parametrize("option", ["--json", "--html"])
def test_a_link_is_refused_before_the_counting(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    link = tmp_path / "latest"
    link.symlink_to(tmp_path / "report")
    assert main("--topic", "a", option, str(link)) == 2
    assert f"{option}: {link} is a symbolic link; name a file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({}, "exactly one of topics and pattern"),
        ({"topics": "a", "pattern": "b"}, "exactly one of topics and pattern"),
        ({"topics": []}, "topics is empty"),
        ({"topics": "a", "since": datetime(2026, 3, 1)}, "since must be an aware datetime, not the naive"),
        ({"topics": "a", "until": "2026-03-01"}, "until must be an aware datetime"),
        ({"topics": "a", "by": "minute"}, "by must be hour or day"),
        ({"topics": "a", "top": True}, "top must be a whole number"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_spark_is_needed(given: dict[str, Any], named: str) -> None:
    with pytest.raises(OptionError, match=named):
        report(None, **given)


def test_moments_are_those_of_their_zone() -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    asked = report_request(
        "a", None, Path("x"), True, NOON, there + timedelta(milliseconds=1), "hour", 5, None
    )
    assert (asked.since, asked.until) == (1_772_366_400_000, 1_772_366_400_001)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ValueError: 7", ("ValueError", True)),
        ("shop.Gone: x\n  trace", ("shop.Gone", True)),
        ("no order 12 in 0xff", ("no order # in #", False)),
        (None, ("(no text)", False)),
        ("\x1b[31mred\x1b[0m", ("red", False)),
    ],
)
def test_errors_are_told_by_class_or_by_their_first_line(text: str | None, kind: tuple[str, bool]) -> None:
    assert kind_of(text)[:2] == kind
