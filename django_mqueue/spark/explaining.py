"""Explain an error in one line.

It may come from this process, from Spark's Java, or from an executor's Python process.
"""

from __future__ import annotations

import re

from django.db import DatabaseError, InterfaceError

from ..drawing.printing import for_terminal
from ..exceptions import MQueueError

_OURS = re.compile(r"^\s*(?:\S+: )?django_mqueue(?:\.\w+)+\.([A-Z]\w*): (.+)$", re.MULTILINE)
"""An error of this package, as the last line of a Python traceback within Spark's text."""

_PYTHON = re.compile(
    r"^\s*((?:\w+\.)*[A-Z]\w*(?:Error|Exception|Exit|Interrupt|Warning)): (.+)$", re.MULTILINE
)
_JAVA = re.compile(r"^(?:: |Caused by: )((?:\w+\.)+[A-Z]\w*): (.+)$", re.MULTILINE)
_LOST = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
_LONGEST = 600


def explained(error: BaseException) -> str | None:
    """Return one line for the user about an error that Spark or this package raised.

    If a process of Spark raised the error, this is the line that names the cause. Returns None if the error is not the
    user's mistake: then the caller shows the traceback.
    """
    if isinstance(error, MQueueError):
        return _line(str(error))
    if isinstance(error, DatabaseError | InterfaceError):
        return _line(f"the database: {error.args[-1] if error.args else error}")
    if isinstance(error, OSError) and not _sparks(error):
        return _line(f"{type(error).__name__}: {error}")
    if _sparks(error):
        return _line(_of_spark(error))
    return None


def raised(error: BaseException) -> tuple[str, str] | None:
    """Return the name and the text of this package's error that a process of Spark raised; None for other errors."""
    found = _OURS.findall(_told(error))
    return found[-1] if found else None


def _sparks(error: BaseException) -> bool:
    """Return whether PySpark, or a package that it is built on, raised the error."""
    return any(kind.__module__.split(".")[0] in ("pyspark", "py4j", "grpc") for kind in type(error).__mro__)


def _of_spark(error: BaseException) -> str:
    if ours := raised(error):
        return ours[1]
    text = _told(error)
    if _LOST in text:
        return "Spark: an executor was lost, with a part of the data that was read: run this again"
    if found := _PYTHON.findall(text.partition("Driver stacktrace")[0]):
        return f"Spark: {found[-1][0]}: {found[-1][1]}"
    if found := _JAVA.findall(text):
        return f"Spark: {found[-1][0].rpartition('.')[2]}: {found[-1][1]}"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"Spark: {first or type(error).__name__}"


def _told(error: BaseException) -> str:
    """Return the text of the error. The text of an error from the JVM is fetched from the JVM, which may have ended."""
    try:
        return str(error)
    except Exception:
        return f"{type(error).__name__}: Spark's Java process has ended"


def _line(text: str) -> str:
    line = for_terminal(" ".join(text.split()))
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
