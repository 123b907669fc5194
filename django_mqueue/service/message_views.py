"""Convert table rows to ``Inspected`` messages. Rows that ``publish`` did not write are accepted as well."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from .. import conf
from ..policy import encoding, outcomes
from ..policy.message_query import DEAD, DONE, SCHEDULED
from ..policy.names import SCHEDULED_SUFFIX
from ..results import Cut, FailedAttempt, Inspected, Unreadable
from ..store.dead_letters import FAILURES
from ..store.queries import message_pages
from ..store.queries.message_rows import common_fields, to_datetime

Row = dict[str, Any]

LOG = "log"
"""The location of a row that is neither scheduled nor a dead letter."""


def decode_row(row: Row, location: str) -> None:
    """Decode the metadata of a row in place. Set its status if ``location`` determines it."""
    row.setdefault("status", None if location == LOG else location)
    row["metadata"] = metadata(row["metadata"])
    row["retry"] = row["metadata"].get("retry", {})


def decode(row: Row, body: bytes | None, *, topic: str, location: str) -> Inspected:
    """Decode a row in place, and return its message for no group. The arguments are as for ``to_inspected``."""
    decode_row(row, location)
    return to_inspected(row, body, topic=topic, group=None, location=location)


def to_inspected(row: Row, body: bytes | None, *, topic: str, group: str | None, location: str) -> Inspected:
    """Return the message of a row.

    ``row``: a row that ``decode_row`` has decoded. ``body``: its payload, or None. ``group``: the group whose view is
    returned. For a dead letter, it is always the group that gave up the message.
    """
    group_view, offset = {}, int(row["offset"])
    if location == DEAD:
        group_view, group = _dead_letter_fields(row), row["failed_group"]
        offset = original_offset(row["id"]) or offset
    elif row.get("acked") is not None:
        group_view = _delivery_fields(row)
        if row["acked"]:
            errors = _dicts(json.loads(row["errors"] or "[]"))
            group_view["outcome"] = outcomes.outcome(
                row,
                errors,
                has_dead_letter=row["dead_letter"] is not None,
                was_redriven=bool(row["was_redriven"]),
            )
    elif row["status"] == DEAD:
        group_view["dead_letter"] = row["dead_letter"]
    elif row["status"] == DONE:
        group_view["outcome"] = outcomes.BEFORE_START if row.get("is_early") else outcomes.NOT_RECORDED
    elif row["retry"]:
        group_view = _retry_fields(row["retry"])
    metadata = row["metadata"]
    size = int(row.get("size", 0))
    fields = common_fields(row, metadata, payload(body, metadata["encoding"], size)) | {"offset": offset}
    return Inspected(
        **fields,
        topic=topic,
        published_at=to_datetime(row["published_at"]),
        available_at=to_datetime(row["available_at"]),
        target=row["target"] or None,
        group=group,
        status=row["status"],
        size=size,
        original_topic=row["original_topic"],
        **group_view,
    )


def metadata(text: str) -> dict[str, Any]:
    """Decode the metadata of a row, and replace parts of a wrong type, which ``publish`` did not write."""
    found = json.loads(text)
    content = {"kind": "", "headers": {}, "encoding": "", **(found if isinstance(found, dict) else {})}
    for part in ("headers", "retry", FAILURES):
        if not isinstance(content.get(part, {}), dict):
            content[part] = {}
    content["kind"] = str(content["kind"])
    return content


def payload(body: bytes | None, encoded_as: str, size: int) -> Any:
    """Return the decoded payload. Return a ``Cut`` if ``body`` is shorter than ``size`` bytes, or ``Unreadable``."""
    if body is None:
        return None
    if len(body) < size:
        return Cut(body, is_json=encoded_as != encoding.BYTES)
    try:
        return encoding.decode(body, encoded_as)
    except (ValueError, RecursionError):
        return Unreadable(body)


def read(using: str, offsets: Sequence[int], payload_limit: int) -> dict[int, tuple[Row, bytes]]:
    """Return (row with its ``size``, up to ``payload_limit`` bytes of its payload) for each offset that has a row."""
    rows = message_pages.rows(using, offsets) if offsets else {}
    bodies = message_pages.payloads(using, list(rows), payload_limit) if rows else {}
    return {offset: ({**rows[offset], "size": size}, body) for offset, (body, size) in bodies.items()}


def location_of(row: Row, stored_in: str) -> tuple[str, str]:
    """Return the location of a row of the topic ``stored_in``, and the topic that its message was published to."""
    if row["failed_group"] is not None:
        return DEAD, row["original_topic"] or conf.original_topic(stored_in)
    if stored_in.endswith(SCHEDULED_SUFFIX):
        return SCHEDULED, stored_in.removesuffix(SCHEDULED_SUFFIX)
    return LOG, stored_in


def original_offset(row_id: str) -> int | None:
    """Return the original message's offset, with which the id of a dead letter's row begins; None for other ids."""
    offset = row_id.partition(":")[0]
    return int(offset) if offset.isascii() and offset.isdecimal() and len(offset) < 19 else None


def _delivery_fields(row: Row) -> dict[str, Any]:
    return {
        "attempts": int(row["retry_count"]) + int(row["handed"]),
        "failures": int(row["failure_count"]),
        "errors": _errors(json.loads(row["errors"] or "[]")),
        "delivered_to": row["delivered_to"],
        "delivered_at": to_datetime(row["delivered_at"]) if row["delivered_to"] else None,
        "invisible_until": None if row["acked"] else to_datetime(row["invisible_until"]),
        "done_at": _time(row["acked_at"]),
        "dead_letter": None if row["dead_letter"] is None else int(row["dead_letter"]),
    }


def _dead_letter_fields(row: Row) -> dict[str, Any]:
    """Return the fields of ``Inspected`` that describe a dead letter."""
    failed_at, failures = _time(row["failed_at"]), int(row["message_failures"] or 0)
    failures_of_row = row["metadata"].get(FAILURES, {})
    errors = _errors(failures_of_row.get("errors", []))
    if not errors and failed_at:
        errors = (FailedAttempt(failed_at, failures, "", row["last_error"] or ""),)
    return {
        "attempts": max(_whole(failures_of_row.get("attempts")), failures),
        "failures": failures,
        "errors": errors,
        "done_at": failed_at,
        "dead_letter": int(row["offset"]),
    }


def _retry_fields(retry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a parked retry, or of a message that returned to the log after one."""
    return {
        "attempts": _whole(retry.get("count")),
        "failures": _whole(retry.get("failures")),
        "errors": _errors(retry.get("errors", [])),
    }


def failed_attempts(text: str) -> tuple[FailedAttempt, ...]:
    """Return the failed attempts in the stored errors of a delivery state, oldest first, without removals by hand."""
    found = _errors(json.loads(text or "[]"))
    return tuple(one for one in found if one.error != outcomes.REMOVED_BY_HAND)


def _dicts(errors: Any) -> list[dict[str, Any]]:
    return [one for one in errors if isinstance(one, dict)] if isinstance(errors, list) else []


def _errors(errors: Any) -> tuple[FailedAttempt, ...]:
    return tuple(
        FailedAttempt(
            to_datetime(_whole(one.get("at"))), _whole(one.get("attempt")), str(one.get("by", "")),
            str(one.get("error", "")),
        )
        for one in _dicts(errors)
    )  # fmt: skip


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _time(ms: Any) -> datetime | None:
    return None if ms is None else to_datetime(ms)
