"""Turn rows of a DataFrame into messages. The id of a message ensures that it is stored only once.

A row with a value in the column ``id`` has this id. The id of any other row is made of the write, of the row's content,
and of the number of equal rows before it. So a task that runs again makes the same ids, in any order of its rows. There
are three kinds of writes:

- A ``save`` without a ``writeId``: Spark repeats only single tasks, mostly with the same rows. The ids contain the
  partition.
- A ``save`` with a ``writeId``: the user may repeat the write, and its rows may then be in other partitions. So the ids
  contain no partition. Equal rows in several tasks would have the same id, so the driver raises an error for them
  (``check_distinct``). Content that may differ when it is computed again causes an error or a warning (``unstable``).
- A batch of a stream: Spark may repeat the batch. Equal rows in several tasks must not stop a stream, so ids contain
  the partition. Rows without ids are refused if adaptive execution is on, because it may change the partitions.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from ...policy import names
from ...policy.encoding import Encoded, JsonText, encode
from ...policy.requests import visible
from ...store.log import NewRow
from ..errors import OptionError, RowError
from .unstable import VolatileContent, unstable_in
from .write_options import ADAPTIVE_STREAMS, WriteOptions

COLUMNS = ("topic", "key", "id", "kind", "headers", "payload", "target")
DIGEST = 8


@dataclass(frozen=True)
class Task:
    """The task whose rows become messages.

    ``partition``: the number of the task in the write, or None if ids do not contain it. ``adaptive``: whether the rows
    may be in other tasks when the write runs again. ``began``: when the write began, in seconds since 1970.
    """

    write: str
    partition: int | None
    adaptive: bool = False
    began: float = field(default_factory=time.time)


class Rows:
    """Turns a task's rows into messages. ``volatile``: see ``VolatileContent``."""

    def __init__(self, task: Task, options: WriteOptions) -> None:
        self._options = options
        self._adaptive = task.adaptive
        self._seed = f"{task.write}\0{'' if task.partition is None else task.partition}\0".encode()
        self._seen: Counter[bytes] = Counter()
        self._number = 0
        self.volatile = VolatileContent(task.began)
        self._topics: set[str] = set()

    def messages(self, columns: Mapping[str, Sequence[Any]], count: int) -> Iterator[tuple[str, NewRow]]:
        """Yield (topic, message) for each row of a batch, given by columns. Raises ``RowError`` and ``OptionError``."""
        nulls: Sequence[Any] = [None] * count
        if self._adaptive and any(id is None for id in columns.get("id", nulls)):
            raise OptionError(
                "there are rows without an id. If this batch runs again, adaptive execution may cut it into other"
                " tasks, which makes other ids: the rows could be stored twice. Give rows ids of their own (a column"
                f" 'id'), or set {ADAPTIVE_STREAMS} to false, as django_mqueue.spark.session does"
            )
        for values in zip(*(columns.get(name, nulls) for name in COLUMNS), strict=True):
            self._number += 1
            try:
                yield self._message(*values)
            except (TypeError, ValueError) as error:
                raise RowError(f"row {self._number} of this task cannot be a message: {error}") from error

    def digests(self) -> bytes:
        """Return the first 8 bytes of the digest of each distinct row without an id."""
        return b"".join(found[:DIGEST] for found in self._seen)

    def _message(
        self, topic: Any, key: Any, id: Any, kind: Any, headers: Any, payload: Any, target: Any
    ) -> tuple[str, NewRow]:
        """Return (topic, message) of a row, given by ``COLUMNS``."""
        topic = self._topic(topic)
        target = self._options.target if target is None else target
        if target:
            names.check_name("target", target, names.GROUP_MAX)
        if key is not None:
            names.check_name("key", key, names.KEY_MAX)
        if payload is None:
            raise ValueError("payload is null")
        content = self._encoded(payload, kind or "", headers)
        if id is None:
            if self._options.write_id is not None and not self._options.stable:
                _check_stable(key=key, kind=kind, headers=headers, payload=payload)
                self.volatile.add(key=key, kind=kind, headers=headers, payload=payload)
            id = self._id(topic, key, content, target)
        else:
            names.check_name("id", id, names.ID_MAX)
        partition = names.spread_partition(id, self._options.spread) if key is None else key
        return topic, NewRow(partition, id, content, target)

    def _topic(self, topic: str | None) -> str:
        topic = topic if topic is not None else self._options.topic
        if topic is None:
            raise ValueError("topic is null, and there is no option 'topic'")
        if topic not in self._topics:
            self._topics.add(names.check_publish_topic(topic, self._options.suffixes.all))
        return topic

    def _encoded(self, payload: Any, kind: str, headers: Any) -> Encoded:
        if isinstance(headers, str):
            headers = json.loads(headers)
        elif headers is not None:
            headers = dict(headers)
        if isinstance(headers, dict):
            headers = visible(headers)  # A copy of a request is not a request.
        what = JsonText(payload) if isinstance(payload, str) else bytes(payload)
        return encode(what, kind, headers, self._options.max_payload_bytes)

    def _id(self, topic: str, key: str | None, content: Encoded, target: str) -> str:
        group = f"g{target}\0" if target else ""
        text = f"{topic}\0{'' if key is None else f'k{key}'}\0{group}{content.metadata}\0"
        digest = blake2b(self._seed + text.encode() + content.body, digest_size=16)
        found = digest.digest()
        repeated = self._seen[found]
        self._seen[found] += 1
        return f"spark-{found.hex()}-{repeated}" if repeated else f"spark-{found.hex()}"


def _check_stable(**columns: Any) -> None:
    """Raise ``ValueError`` if a column contains a number whose last digits may differ in a repeated write."""
    for name, value in columns.items():
        if (number := unstable_in(value)) is not None:
            raise ValueError(
                f"column {name!r} has the number {number}, and the id is made of the content. The last digits of such"
                " a number may differ when the write runs again (floats that are added in another order, rand()):"
                " the row would be stored twice. Give rows ids of their own (a column 'id'), or round the number"
                " (CAST(... AS DECIMAL(18, 2))). If the digits are always the same, set 'stableContent' to true"
            )
