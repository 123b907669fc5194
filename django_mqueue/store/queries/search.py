"""Find rows for the admin. No statement reads much more than it returns, however long the tables are.

The indexes are forced, because with a LIMIT both servers sometimes read a whole topic or the whole log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..connection import session
from ..connection.session import Row

_STATE_KEY = ("consumer_group", "topic", "partition_key", "message_offset")


def states(using: str, leading: Mapping[str, str], from_offset: int | None, limit: int) -> list[Row]:
    """Return primary keys of delivery state, in their order, for values of the key's ``leading`` columns.

    ``from_offset``: the lowest offset. It requires values for all columns before the offset.
    """
    given = [column for column in _STATE_KEY if column in leading]
    rest = _STATE_KEY[len(given) :]
    where, params = [f"{column} = %s" for column in given], [leading[column] for column in given]
    bounds: list[Any] = []
    if from_offset is not None:
        where, bounds = [*where, "message_offset >= %s"], [from_offset]
    return session.fetch(
        using,
        f"SELECT {', '.join(_STATE_KEY)} FROM queue_delivery_state FORCE INDEX (PRIMARY)"
        f" WHERE {' AND '.join(where)} ORDER BY {', '.join(rest)} LIMIT {limit:d}",
        [*params, *bounds],
    )
