"""Verbs about the server: doctor, blockers."""

from __future__ import annotations

from argparse import ArgumentParser
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from ..doctor import blockers as blocking
from ..doctor.accounts import ACCOUNTS
from ..doctor.blockers import Blockers
from ..doctor.examination import examine
from ..doctor.findings import ERROR, SEVERITIES, WARNING, Finding
from ..printing import on_a_line
from ..store.server.sessions import Session
from .output import Output, as_text
from .verbs import Options, Verb, parse_duration

TOPICS_SHOWN = 5
STATEMENT_MAX = 100
PERHAPS = "perhaps"
PUBLISHED = {True: "yes", False: "no", None: PERHAPS}


def _add_doctor(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--account",
        choices=ACCOUNTS,
        default="worker",
        help="check the privileges of this kind of account",
    )
    parser.add_argument(
        "--fail-on-warning", action="store_true", help="exit status 1 also if there is only a warning"
    )


def doctor(options: Options, output: Output) -> None:
    examination = examine(options["database"], options["account"])
    output.table("facts", [{"name": name, "value": value} for name, value in examination.facts.items()])
    output.entries("findings", [_row(one) for one in examination.findings], _finding)
    counts = Counter(one.severity for one in examination.findings)
    output.say("\n" + ", ".join(f"{name}s: {counts[name]}" for name in (ERROR, WARNING)))
    for severity in (ERROR, WARNING) if options["fail_on_warning"] else (ERROR,):
        if counts[severity]:
            output.problem(f"the doctor found {severity}s: {counts[severity]}")


def _row(one: Finding) -> dict[str, Any]:
    return {**asdict(one), "check": f"django_mqueue.{one.check}" if one.check else None}


def _finding(row: Mapping[str, Any]) -> str:
    check = f" ({row['check']})" if row["check"] else ""
    width = max(map(len, SEVERITIES))
    indent = " " * (width + 2)
    return (
        f"{row['severity'].upper():<{width}}  {row['about']}: {row['what']}{check}"
        f"\n{indent}Why: {row['why']}\n{indent}Repair: {row['repair']}"
    )


def _add_blockers(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--older-than", type=parse_duration, default=timedelta(0), metavar="TIME",
        help="only transactions that have been open for this time (default: any; for example 30s or 5m)",
    )  # fmt: skip


def blockers(options: Options, output: Output) -> None:
    found = blocking.find(options["database"], older_than=options["older_than"])
    empty = "none that this account may see" if found.missing else "none"
    output.table(
        "waits", _waits(found), title="Statements that wait for locks on the queue's tables", empty=empty
    )
    transactions = _transactions(found)
    output.table(
        "transactions", [{**row, "topics": _cut(row["topics"])} for row in transactions],
        title="Open transactions that published or locked rows", empty=empty,
    )  # fmt: skip
    output.add_to_json(transactions=transactions)
    if any(row["published"] == PERHAPS for row in transactions):
        output.say(
            f"{PERHAPS}: the server does not show whether a transaction published, and in which tables its rows are."
        )
    output.entries("blocking", [_connection(one) for one in found.blocking], _kill)
    if found.blocking:
        output.say("Paste a KILL line into manage.py dbshell, or into another client of the database.")
    output.entries("missing", [_row(one) for one in found.missing], _finding)


def _waits(found: Blockers) -> list[dict[str, Any]]:
    return [
        {
            "id": one.waiting.id, "program": program_of(one.waiting), "waits": one.waits_for, "for": one.place,
            "statement": one.waiting.statement[:STATEMENT_MAX],
            "blocked_by": one.blocking.id if one.blocking else None,
            "its_program": program_of(one.blocking) if one.blocking else "not visible",
        }
        for one in found.waits
    ]  # fmt: skip


def _transactions(found: Blockers) -> list[dict[str, Any]]:
    return [
        {
            "id": one.session.id, "program": program_of(one.session), "open": one.open_for,
            "doing": doing(one.session), "rows_changed": one.changed, "rows_locked": one.locked,
            "published": PUBLISHED[one.published],
            "topics": one.topics,
        }
        for one in found.transactions
    ]  # fmt: skip


def _cut(topics: Sequence[str]) -> list[str]:
    return [*topics[:TOPICS_SHOWN], *(["…"] if len(topics) > TOPICS_SHOWN else [])]


def _connection(one: Session) -> dict[str, Any]:
    return {
        "id": one.id, "user": one.user, "host": one.host, "program": one.program, "pid": one.pid,
        "doing": doing(one), "kill": f"KILL {one.id};", "effect": blocking.effect_of_kill(one),
    }  # fmt: skip


def _kill(row: Mapping[str, Any]) -> str:
    pid = f", process {row['pid']}" if row["pid"] else ""
    name = row["program"] or "a program without a name"
    return f"{row['kill']}  ends {name}, {row['user']} from {row['host']}{pid}: {row['doing']}.\n    {row['effect']}"


def program_of(one: Session) -> str:
    """Return the program's name; if it has none, the user, the host, and the process if the server shows it."""
    pid = f" (process {one.pid})" if one.pid else ""
    return one.program or f"{one.user or 'not visible'}@{one.host}{pid}"


def doing(one: Session) -> str:
    time = as_text(timedelta(seconds=one.seconds))
    if one.command == "Sleep":
        return f"idle for {time}"
    if not one.command:
        return "not visible to this account"
    return f"runs for {time}: {on_a_line(one.statement[:STATEMENT_MAX])}"


VERBS = [
    Verb("doctor", "check the server, the settings and the tables", doctor, _add_doctor),
    Verb("blockers", "show connections that block the queue", blockers, _add_blockers),
]
