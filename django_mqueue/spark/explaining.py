"""Explain an error in one line.

It may come from this process, from Spark's Java, or from an executor's Python process.
"""

from __future__ import annotations

import re

from django.db import DatabaseError, InterfaceError

from ..exceptions import MQueueError
from ..printing import for_terminal

_OURS = re.compile(r"^\s*(?:\S+: )?django_mqueue(?:\.\w+)+\.[A-Z]\w*: (.+)$", re.MULTILINE)
"""An error of this package, as the last line of a Python traceback within Spark's text."""

_PYTHON = re.compile(
    r"^\s*((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning)): (.+)$", re.MULTILINE
)
_JAVA = re.compile(r"^(?:: |Caused by: )((?:\w+\.)+[A-Z]\w*): (.+)$", re.MULTILINE)
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_LONGEST = 600


def explained(error: BaseException) -> str | None:
    """Return one line for the user that names the cause of an error that Spark or this package raised.

    None for any other error, which is a bug: then the caller shows the traceback.
    """
    if isinstance(error, MQueueError):
        return _line(str(error), cut=False)
    if isinstance(error, DatabaseError | InterfaceError):
        return _line(f"the database: {error.args[-1] if error.args else error}")
    if any(kind.__module__.split(".")[0] in ("pyspark", "py4j", "grpc") for kind in type(error).__mro__):
        text = _text(error)
        ours = _OURS.findall(text)
        return _line(ours[-1], cut=False) if ours else _line(_of_spark(error, text))
    if isinstance(error, OSError):
        return _line(f"{type(error).__name__}: {error}")
    return None


def _of_spark(error: BaseException, text: str) -> str:
    if _LOST in text:
        return "Spark: an executor was lost, with a part of the data that was read: run this again"
    if found := _PYTHON.findall(text.partition("Driver stacktrace")[0]):
        return f"Spark: {found[-1][0]}: {found[-1][1]}"
    if found := _JAVA.findall(text):
        return f"Spark: {found[-1][0].rpartition('.')[2]}: {found[-1][1]}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"Spark: {first or type(error).__name__}"


def _text(error: BaseException) -> str:
    """Return the text of the error. An error of Java fetches its text from Java, which may have ended."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}: Spark's Java process has ended"


def _line(text: str, *, cut: bool = True) -> str:
    """Return the text on one line. ``cut``: False for errors of this package, which end with the way out."""
    line = for_terminal(" ".join(text.split()))
    return line if len(line) <= _LONGEST or not cut else f"{line[:_LONGEST]} …"
