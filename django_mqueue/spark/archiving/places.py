"""What may be given as an archive's place: a path, or a URI without keys, for it is shown and written down."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote

from ..errors import OptionError

PREFIX = "hadoop+"
"""Before a URI: it is Hadoop that is to go there, also where pyarrow could."""

_BUCKETS = ("s3", "s3a", "s3n", "gs", "gcs")
"""Schemes of which no port is known."""

_SECRET = re.compile(r"key|secret|passw|pwd|token|credentials?$|^sig$|^sas$|signature", re.IGNORECASE)
"""In the names of what stands in a query."""


def check_place(to: str | os.PathLike[str]) -> str:
    """The place as text. Raises ``OptionError`` for none, and for one that holds keys, which it does not repeat."""
    place = os.fspath(to)
    if not place:
        raise OptionError("the archive's place is empty: give a folder, or a URI such as s3://bucket/folder")
    scheme, separator, rest = place.partition("://")
    if not separator:
        return place
    if _has_keys(scheme.lower().removeprefix(PREFIX), rest):
        after = rest.rpartition("@")[2].partition("?")[0]
        raise _keys(f"{scheme}://…@{after}" if "@" in rest else f"{scheme}://…")
    for part in re.split("[&;]", rest.partition("?")[2]):
        name, _, value = map(unquote, part.partition("="))
        if _SECRET.search(name) or ":" in value.rpartition("@")[0]:
            raise _keys(f"{scheme}://…?{name}=…")
    return place


def _has_keys(scheme: str, rest: str) -> bool:
    """Whether an account's name and key stand before the ``@``: keys may hold a slash, or what else ends a host."""
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    user, at, _ = unquote(authority).rpartition("@")
    if at:
        return ":" in user
    port = re.sub(r"\[.*\]", "", authority).partition(":")[2]
    return bool(port) and (not port.isdecimal() or (scheme in _BUCKETS and "@" in rest))


def _keys(shown: str) -> OptionError:
    return OptionError(
        f"{shown}: keys do not belong into the archive's place, which is shown and written down: give them by the"
        " environment"
    )
