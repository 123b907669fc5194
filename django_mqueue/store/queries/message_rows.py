"""Rows of ``queue_messages`` as messages."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ...messages import Message
from ...policy import names
from ...policy.durations import moment
from ...policy.requests import visible


def to_datetime(ms: Any) -> datetime:
    """Convert epoch milliseconds to a UTC datetime; to ``datetime.max`` if they are outside its range."""
    try:
        return moment(int(ms))
    except OverflowError:
        return datetime.max.replace(tzinfo=UTC)


def own_id(row: Mapping[str, Any], metadata: Mapping[str, Any]) -> str:
    """Return the id under which the message was published. Redriven messages and parked retries have another."""
    id = row.get("original_id")
    return str(metadata.get("retry", {}).get("id", row["id"]) if id is None else id)


def common_fields(row: Mapping[str, Any], metadata: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    """Return the fields that all classes of messages have, except the topic."""
    return {
        "offset": int(row["offset"]),
        "id": own_id(row, metadata),
        "key": names.key_of(row["partition"]),
        "payload": payload,
        "kind": metadata["kind"],
        "headers": visible(metadata["headers"]),
        "priority": names.priority_of(row["partition"]),
    }


def message_fields(row: Mapping[str, Any], metadata: Mapping[str, Any], payload: Any) -> dict[str, Any]:
    """Return the fields of a ``Message`` that its row determines, except the topic."""
    published_at = metadata.get("retry", {}).get("published_at", row["published_at"])
    return {
        **common_fields(row, metadata, payload),
        "published_at": to_datetime(published_at),
        "failed_at": None if row["failed_at"] is None else to_datetime(row["failed_at"]),
        "original_topic": row["original_topic"],
        "failed_group": row["failed_group"],
    }


def to_message(
    row: Mapping[str, Any],
    metadata: Mapping[str, Any],
    payload: Any,
    *,
    topic: str,
    group: str,
    attempt: int,
    is_request: bool = False,
) -> Message:
    """Return the message of a row of the log or of a dead letter. ``metadata``, ``payload``: decoded."""
    return Message(
        **message_fields(row, metadata, payload),
        topic=topic,
        group=group,
        attempt=attempt,
        last_error=row["last_error"] or "",
        failure_count=row["failure_count"],
        is_request=is_request,
    )
