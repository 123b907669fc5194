"""Check the location of an archive or export, a path or a URI. Files show it, so it must not contain access keys."""

from __future__ import annotations

import os
import re
from datetime import datetime
from urllib.parse import unquote

from ..errors import OptionError

SCHEMES = {
    "s3": "s3", "s3a": "s3", "gs": "gs", "gcs": "gs", "az": "az", "azure": "az", "abfs": "abfs", "abfss": "abfss",
}  # fmt: skip
"""Schemes of object stores, and their names in ``object_store``."""


def check_location(to: str | os.PathLike[str]) -> str:
    """Return the location as an absolute path, or as a URI for ``object_store``. Raises ``OptionError``.

    The error for a URI with access keys does not repeat them.
    """
    location = os.fspath(to)
    if not location:
        raise OptionError("the location is empty: give a folder, or a URI such as s3://bucket/folder")
    if re.match("file:/(?!/)", location):  # Hadoop writes URIs of files like this.
        location = location.removeprefix("file:")
    scheme, separator, rest = location.partition("://")
    if not separator or scheme == "file":
        if separator and not rest.startswith("/"):
            raise OptionError(
                f"{location}: a URI of a file has three slashes: give file:///folder, or a path"
            )
        folder = os.path.abspath(rest if separator else location)
        if re.search(r"\\|%[0-9A-Fa-f]{2}", folder):
            raise OptionError(
                f"{folder}: the location must not contain a backslash, or a % before two hexadecimal digits, because"
                " tools read them in different ways. Give another folder"
            )
        return folder
    if scheme not in SCHEMES:
        raise OptionError(
            f"{scheme}:// is not supported: give a path that all machines share, or a URI that begins with"
            f" {', '.join(f'{name}://' for name in SCHEMES)}"
        )
    # A secret key may contain a slash. So look for the colon of ID:SECRET only before the first slash.
    # ``object_store`` ignores the text after a ? or #.
    if ":" in unquote(re.split("[/?#]", rest, maxsplit=1)[0]) or "?" in rest or "#" in rest:
        shown = f"…@{re.split('[?#]', rest.rpartition('@')[2])[0]}" if "@" in rest else "…"
        raise OptionError(
            f"{scheme}://{shown}: the location must not contain keys, a ? or a #, because output and files"
            " show it. Set the keys in the environment"
        )
    return f"{SCHEMES[scheme]}://{rest.rstrip('/')}"


def check_as_of(as_of: int | datetime | None, archive: object, *, live: bool) -> None:
    """Raise ``OptionError`` unless ``as_of`` is None, a version, or an aware datetime, and an archive is given.

    ``live``: whether the log is also read. The log continues only the newest state of an archive.
    """
    if as_of is None:
        return
    if isinstance(as_of, bool) or not isinstance(as_of, int | datetime):
        raise OptionError(f"as_of is {as_of!r}, but must be a version, or a datetime with a time zone")
    if archive is None or live:
        raise OptionError(
            f"as_of is {as_of}, but only an archive has earlier states: give an archive, and leave out the live log"
        )
    if isinstance(as_of, datetime) and as_of.tzinfo is None:
        raise OptionError(f"as_of is {as_of}, without a time zone: give an aware datetime, or a version")
