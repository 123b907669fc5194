"""Extract kind, encoding and headers from the metadata of many messages at once.

Each distinct text is parsed once. A regular expression parses the texts that ``publish`` wrote, JSON's parser others.
"""

from __future__ import annotations

import json
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

# The encoding is the last member and ends the text. Headers without braces inside end at the next brace.
_KIND = r'\{"kind": ?"(?P<kind>[^"\\]*)", ?'
_ENCODING = r'"encoding": ?"(?P<encoding>[^"\\]*)"\}'
_PLAIN = rf"^{_KIND}(?s:.*){_ENCODING}$"
_WITH_HEADERS = rf'^{_KIND}"headers": ?(?P<headers>\{{[^{{}}]*\}}), ?{_ENCODING}$'


def taken_out(metadata: pa.Array, wanted: Collection[str]) -> dict[str, pa.Array]:
    """Return the wanted columns of kind, encoding and headers, as texts; null where a message has none."""
    texts = metadata.dictionary_encode()
    found = pc.extract_regex(texts.dictionary, _WITH_HEADERS if "headers" in wanted else _PLAIN)
    columns = {name: pc.struct_field(found, name) for name in wanted}
    if found.null_count:
        odd = pc.is_null(found)
        parsed = [_parsed(text) for text in texts.dictionary.filter(odd).to_pylist()]
        for name in wanted:
            values = pa.array([row[name] for row in parsed], pa.string())
            columns[name] = pc.replace_with_mask(columns[name], odd, values)
    return {name: column.take(texts.indices) for name, column in columns.items()}


def of_retries(metadata: pa.Array, original_ids: pa.Array, wanted: Collection[str]) -> dict[str, pa.Array]:
    """Return the columns that say where a parked retry was before; null for all other messages.

    ``retry_of`` is the offset of the earlier row, ``first_published_at`` its time of publication.
    """
    has_original = pc.is_valid(original_ids)
    retries = [json.loads(text).get("retry", {}) for text in metadata.filter(has_original).to_pylist()]
    columns = dict.fromkeys(wanted, pa.nulls(len(metadata), pa.int64()))
    for name in wanted if retries else ():
        member = {"retry_of": "offset", "first_published_at": "published_at"}[name]
        values = pa.array([retry.get(member) for retry in retries], pa.int64())
        columns[name] = pc.replace_with_mask(columns[name], has_original, values)
    return columns


def _parsed(text: str) -> dict[str, str | None]:
    value = json.loads(text)
    found = value if isinstance(value, dict) else {}
    headers = found.get("headers")
    return {
        "kind": _text(found.get("kind")),
        "encoding": _text(found.get("encoding")),
        "headers": None if headers is None else json.dumps(headers, ensure_ascii=False),
    }


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
