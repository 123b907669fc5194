"""Errors of failed attempts: the ``errors`` of a delivery state. Only the newest are kept, each of limited length."""

from __future__ import annotations

from typing import Any

from .connection.dialect import NOW_MS

ERRORS_KEPT = 10
ERROR_BYTES = 4096
WORKER_DIED = "the worker died, or lost its lease, while it handled this message alone"

_FAILED_ATTEMPT = (
    f"JSON_OBJECT('at', {NOW_MS}, 'since', s.delivered_at, 'attempt', s.retry_count + 1, 'by', s.delivered_to,"
    " 'error', %s)"
)


def clip(error: str) -> str:
    """Return an error's text, shortened to ``ERROR_BYTES``. The middle is cut: a traceback's end names the error."""
    raw = error.encode("utf-8", "replace")
    if len(raw) <= ERROR_BYTES:
        return raw.decode()
    half = ERROR_BYTES // 2 - 10
    return raw[:half].decode("utf-8", "ignore") + "\n[...]\n" + raw[-half:].decode("utf-8", "ignore")


def appended(error: str | None) -> tuple[str, list[Any]]:
    """Return an assignment that appends an error, with its parameters; an empty one without an error."""
    if error is None:
        return "", []
    text = clip(error)
    return f", s.errors = {appended_errors()}", [text, text]


def appended_errors(entry: str = _FAILED_ATTEMPT) -> str:
    """Return an expression that adds an entry to the errors and keeps the newest ``ERRORS_KEPT``.

    ``entry``: an expression for the entry. With the default, pass the error's text twice.
    """
    one_more = f"JSON_ARRAY_APPEND(COALESCE(s.errors, JSON_ARRAY()), '$', {entry})"
    return f"IF(COALESCE(JSON_LENGTH(s.errors), 0) >= {ERRORS_KEPT}, JSON_REMOVE({one_more}, '$[0]'), {one_more})"
