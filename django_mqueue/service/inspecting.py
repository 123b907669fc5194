"""Messages as they stand: found by a walk, read, compared with what was asked, told."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from .. import conf
from ..exceptions import NotRegistered
from ..policy import encoding, names
from ..policy.durations import moment
from ..policy.history import (
    DEAD,
    DONE,
    IN_FLIGHT,
    PENDING,
    SLACK_MS,
    WAITING,
    FailedAttempt,
    Inspected,
    Page,
    Wanted,
    cursor_of,
    position_of,
)
from ..store import history, offsets, session
from ..store.dead import FAILURES
from ..store.offsets import Registration
from .by_partition import Chunk, Found
from .history import Source, source_of

CHUNK = 500
"""Messages looked at by one statement."""
BYTES_AT_ONCE = 4 * 1_048_576
PAGE_BYTES = 32 * 1_048_576
"""Payloads of one page: it ends there, and the next one goes on."""

Row = dict[str, Any]


def page(
    using: str, wanted: Wanted, *, limit: int, start: str | None, newest_first: bool, scan_limit: int
) -> Page:
    """Up to ``limit`` messages, for which about ``scan_limit`` rows are looked at."""
    with session.explained(using):
        look = Look(using, wanted, newest_first=newest_first)
        position = position_of(look.source.name, start)
        chunk = min(CHUNK, scan_limit, max(limit, 10) if wanted.takes_all else CHUNK)
        messages: list[Inspected] = []
        scanned = weight = 0
        for step in look.source.walk(position, chunk):
            position = step.position
            over = False
            for found, row, message in look.read(step):
                messages.append(message)
                weight += int(row["size"])
                if len(messages) == limit or weight >= PAGE_BYTES:
                    position, over = found.position, True
                    break
            scanned += len(step.found) + step.looked
            if look.past_its_time:
                return Page(messages, None, scanned)
            if over or scanned >= scan_limit:
                assert position is not None
                return Page(messages, cursor_of(look.source.name, position), scanned)
        return Page(messages, None, scanned)


class Look:
    """One question, and what it takes to answer it."""

    def __init__(self, using: str, wanted: Wanted, *, newest_first: bool) -> None:
        self.using, self.wanted, self.newest_first = using, wanted, newest_first
        self.registration = registration(using, wanted)
        start = self.registration.start if self.registration else 0
        self.source: Source = source_of(using, wanted, start, newest_first=newest_first)
        self.past_its_time = False
        """The walk has come to where nothing can be of the time that is asked for."""

    def read(self, step: Chunk, *, payloads: bool = True) -> Iterator[tuple[Found, Row, Inspected]]:
        """Those of a step that are wanted. Payloads are read a few megabytes at a time, if any filter needs them or
        ``payloads`` are to be told."""
        rows = self._rows([found.offset for found in step.found])
        chosen = [(found, rows[found.offset]) for found in step.found if found.offset in rows]
        if self.source.by_time and chosen:
            self._look_at_the_clock(int(chosen[-1][1]["published_at"]))
        chosen = [(found, row) for found, row in chosen if self._fits(found, row)]
        if not payloads and self.wanted.test is None:
            yield from ((found, row, self._told(row, None)) for found, row in chosen)
            return
        for some in _light(chosen):
            bodies = history.payloads(self.using, [found.offset for found, _ in some])
            for found, row in some:
                if found.offset in bodies:
                    message = self._told(row, bodies[found.offset])
                    if self.wanted.test is None or self.wanted.test(message):
                        yield found, row, message

    def _look_at_the_clock(self, last: int) -> None:
        wanted = self.wanted
        if self.newest_first:
            self.past_its_time = wanted.after is not None and last < wanted.after - SLACK_MS
        else:
            self.past_its_time = wanted.before is not None and last >= wanted.before + SLACK_MS

    def _rows(self, offsets_: list[int]) -> dict[int, Row]:
        """What the tables hold of them, with ``status`` and ``metadata`` decoded."""
        if not offsets_:
            return {}
        group = self.wanted.group
        if group is None or self.source.place != "log":
            rows = history.rows(self.using, offsets_)
        else:
            dead = conf.dead_letter_topic(self.wanted.topic)
            rows = history.rows_of_group(self.using, group, dead, offsets_)
            self._note_status(rows)
        for row in rows.values():
            row.setdefault("status", self.source.place if self.source.place != "log" else None)
            row["metadata"] = _metadata(row["metadata"])
            row["retry"] = row["metadata"].get("retry", {})
        return rows

    def _note_status(self, rows: Mapping[int, Row]) -> None:
        wanted, group = self.wanted, self.wanted.group
        assert group is not None
        assert self.registration is not None
        fresh = sorted({row["partition"] for row in rows.values() if row["acked"] is None})
        places = (
            offsets.positions(self.using, group, wanted.topic, fresh, self.registration.start)
            if fresh
            else {}
        )
        for row in rows.values():
            if row["acked"] is None:
                done = row["offset"] <= places[row["partition"]].acked
                row["status"] = DONE if done else PENDING
            elif row["acked"]:
                row["status"] = DONE if row["letter"] is None else DEAD
            else:
                row["status"] = IN_FLIGHT if row["in_flight"] else WAITING

    def _fits(self, found: Found, row: Row) -> bool:
        wanted = self.wanted
        if self.source.place == DEAD:
            if row["failed_group"] is None or wanted.group not in (None, row["failed_group"]):
                return False
        elif wanted.group is not None and row["target"] not in ("", wanted.group):
            return False
        return (
            (wanted.status is None or row["status"] == wanted.status)
            and (wanted.id is None or wanted.id == _id(row))
            and (wanted.kinds is None or row["metadata"]["kind"] in wanted.kinds)
            and wanted.fits_time(int(row["published_at"]))
        )

    def _told(self, row: Row, body: bytes | None) -> Inspected:
        metadata = row["metadata"]
        about = _about_group(row) if row.get("acked") is not None else {}
        group, offset = self.wanted.group, int(row["offset"])
        if self.source.place == DEAD:
            about, group, offset = _about_letter(row), row["failed_group"], _original_offset(row)
        elif row.get("acked") is None and row["retry"]:
            about = _about_retry(row["retry"])
        return Inspected(
            offset=offset,
            id=_id(row),
            topic=self.wanted.topic,
            key=names.key_of(row["partition"]),
            kind=metadata["kind"],
            payload=None if body is None else _decoded(body, metadata["encoding"]),
            published_at=moment(int(row["published_at"])),
            available_at=moment(int(row["available_at"])),
            headers=metadata["headers"],
            target=row["target"] or None,
            group=group,
            status=row["status"],
            **about,
        )


def registration(using: str, wanted: Wanted) -> Registration | None:
    """Of the group that is asked for. Raises ``NotRegistered``; but dead letters outlive registrations."""
    if wanted.group is None:
        return None
    found = offsets.registration(using, wanted.group, wanted.topic)
    if found is None and wanted.status != DEAD:
        raise NotRegistered(wanted.topic, wanted.group)
    return found


def _light(chosen: Sequence[tuple[Found, Row]]) -> Iterator[list[tuple[Found, Row]]]:
    """So many at a time that their payloads are a few megabytes."""
    some: list[tuple[Found, Row]] = []
    weight = 0
    for found, row in chosen:
        if some and weight + int(row["size"]) > BYTES_AT_ONCE:
            yield some
            some, weight = [], 0
        some.append((found, row))
        weight += int(row["size"])
    if some:
        yield some


def _metadata(text: str) -> dict[str, Any]:
    """Whatever a row holds that did not come from ``publish``: what no handler could be given can be looked at."""
    found = json.loads(text)
    return {"kind": "", "headers": {}, "encoding": "", **(found if isinstance(found, dict) else {})}


def _decoded(body: bytes, how: str) -> Any:
    try:
        return encoding.decode(body, how)
    except ValueError:
        return body


def _id(row: Row) -> str:
    """The message's own: what came back, and what waits for a retry among the scheduled, is stored under another."""
    id: str = row["original_id"] if row["original_id"] is not None else row["retry"].get("id", row["id"])
    return id


def _original_offset(row: Row) -> int:
    """A letter's id is made of the original's offset and the group."""
    offset = row["id"].partition(":")[0]
    return int(offset) if offset.isdecimal() else int(row["offset"])


def _about_group(row: Row) -> dict[str, Any]:
    return {
        "attempts": int(row["retry_count"]) + int(row["handed"]),
        "failures": int(row["failure_count"]),
        "errors": _errors(json.loads(row["errors"]) if row["errors"] else []),
        "delivered_to": row["delivered_to"],
        "delivered_at": moment(int(row["delivered_at"])) if row["delivered_to"] else None,
        "invisible_until": None if row["acked"] else moment(int(row["invisible_until"])),
        "done_at": _moment(row["acked_at"]),
        "dead_letter": None if row["letter"] is None else int(row["letter"]),
    }


def _about_letter(row: Row) -> dict[str, Any]:
    failed_at, failures = _moment(row["failed_at"]), int(row["message_failures"] or 0)
    brought = row["metadata"].get(FAILURES, {})
    errors = _errors(brought.get("errors", []))
    if not errors and failed_at:
        errors = (FailedAttempt(failed_at, failures, "", row["last_error"] or ""),)
    return {
        "attempts": max(int(brought.get("attempts", 0)), failures),
        "failures": failures,
        "errors": errors,
        "done_at": failed_at,
        "dead_letter": int(row["offset"]),
    }


def _about_retry(retry: Mapping[str, Any]) -> dict[str, Any]:
    """A message that waits for its retry apart from the log, or has come back from there."""
    return {
        "attempts": int(retry.get("count", 0)),
        "failures": int(retry.get("failures", 0)),
        "errors": _errors(retry.get("errors", [])),
    }


def _errors(errors: Any) -> tuple[FailedAttempt, ...]:
    return tuple(FailedAttempt(moment(int(e["at"])), int(e["attempt"]), e["by"], e["error"]) for e in errors)


def _moment(ms: Any) -> datetime | None:
    return None if ms is None else moment(int(ms))
