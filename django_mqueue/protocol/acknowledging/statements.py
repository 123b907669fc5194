"""Distinguish SQL statements that write from statements that only read.

``sqlparse`` cannot: it treats MySQL's executable comments as comments, and ``#`` as the start of a name.
"""

from __future__ import annotations

import re

_WRITES = {
    "ALTER", "CREATE", "DELETE", "DROP", "INSERT", "LOAD", "MERGE", "RENAME", "REPLACE", "TRUNCATE", "UPDATE",
}  # fmt: skip

_QUOTED = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`"
_MYSQL_COMMENT = r"/\*(?!M?!).*?(?:\*/|\Z)|--(?=\s|\Z)[^\n]*|\#[^\n]*|/\*M?!\d*|\*/(?!\*)"
"""The server executes the text between ``/*!`` or ``/*M!`` and ``*/``, so only these marks are skipped."""
_QUOTED_BY_STANDARD = r"'(?:[^']|'')*'|\"[^\"]*\"|`[^`]*`|\$(?P<tag>\w*)\$.*?\$(?P=tag)\$"
_COMMENT = r"/\*.*?(?:\*/|\Z)|--[^\n]*"


def _tokens(comment: str, quoted: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?P<comment>{comment})|(?P<quoted>{quoted})|(?P<word>\w+)|(?P<sign>[^\s\w])", re.DOTALL
    )


_MYSQL = _tokens(_MYSQL_COMMENT, _QUOTED)
_STANDARD = _tokens(_COMMENT, _QUOTED_BY_STANDARD)


def writes(sql: str, *, mysql: bool) -> bool:
    """Return True if a statement in ``sql`` begins with a verb of ``_WRITES``. After WITH, its parts are also checked.

    Strings, quoted names and comments are skipped. ``mysql``: use the rules of MySQL and MariaDB. A function or
    procedure that writes is not recognized.
    """
    single = ";" not in sql
    begins, cte, verb = True, False, False
    """``begins``: at the first word of a statement. ``cte``: after WITH. ``verb``: right after one of ``_WRITES``."""
    for token in (_MYSQL if mysql else _STANDARD).finditer(sql):
        kind, text = token.lastgroup, token[0]
        if kind == "comment":
            continue
        if verb and kind != "sign":  # REPLACE(…) is a function, and a column's name may be a verb.
            return True
        verb = False
        if text == ";":
            begins, cte = True, False
        elif text == "(":
            begins = begins or cte
        elif text == ")":
            begins = cte
        elif begins:
            word = text.upper() if kind == "word" else ""
            if word in _WRITES and not cte:
                return True
            cte, verb = cte or word == "WITH", word in _WRITES
            begins = False
            if single and not cte:
                return False
    return False
