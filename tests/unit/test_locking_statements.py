"""Every statement that locks names the index by which it finds its rows.

Left to itself a server now and then takes another one, by the luck of its statistics: it then also locks, or waits for,
rows beside those that are meant. A lease was once not taken because somebody held the row of a topic of a similar name.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import django_mqueue

STORE = Path(django_mqueue.__file__).parent / "store"
LOCKS = re.compile(r"FOR UPDATE|LOCK IN SHARE MODE|UPDATE queue_|DELETE (\w+ )?FROM")
NAMED = re.compile(
    r"FORCE INDEX|_INDEX\}|\{_ROW\}|\{_BOX\}|\{lock\}|\{_TOPIC_ROW\}|ORDER BY consumer_group, topic"
)
"""Or is made of a part that names it; ``ORDER BY`` of the primary key is how a DELETE with a LIMIT says it."""


@pytest.mark.parametrize("path", sorted(STORE.glob("*.py")), ids=lambda path: path.stem)
def test_statements_that_lock_name_their_index(path: Path) -> None:
    source = path.read_text()
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            text = ast.get_source_segment(source, node) or ""
            if (
                node.func.attr in ("execute", "fetch", "update")
                and LOCKS.search(text)
                and not NAMED.search(text)
            ):
                found.append(text)
    assert not found, "\n".join(found)
