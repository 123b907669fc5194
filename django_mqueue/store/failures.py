"""Why attempts failed: the ``errors`` of a delivery's state, the newest few, each of bounded length."""

from __future__ import annotations

from typing import Any

from .dialect import NOW_MS

ERRORS_KEPT = 10
ERROR_BYTES = 4096
WORKER_DIED = "the worker died, or lost its lease, while it handled this message alone"


def clip(error: str) -> str:
    """An error's text as it is kept: the end says most, so the middle goes."""
    raw = error.encode("utf-8", "replace")
    if len(raw) <= ERROR_BYTES:
        return raw.decode()
    half = ERROR_BYTES // 2 - 10
    return raw[:half].decode("utf-8", "ignore") + "\n[...]\n" + raw[-half:].decode("utf-8", "ignore")


def appended(error: str | None) -> tuple[str, list[Any]]:
    """Assignment that keeps one more error, and its parameters."""
    if error is None:
        return "", []
    text = clip(error)
    return f", s.errors = {grown()}", [text, text]


def grown() -> str:
    """``errors`` with one more text, the oldest beyond ``ERRORS_KEPT`` dropped; takes the text twice."""
    one_more = (
        f"JSON_ARRAY_APPEND(COALESCE(s.errors, JSON_ARRAY()), '$', JSON_OBJECT('at', {NOW_MS},"
        " 'attempt', s.retry_count + 1, 'by', s.delivered_to, 'error', %s))"
    )
    return f"IF(COALESCE(JSON_LENGTH(s.errors), 0) >= {ERRORS_KEPT}, JSON_REMOVE({one_more}, '$[0]'), {one_more})"
