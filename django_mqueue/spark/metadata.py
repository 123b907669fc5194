"""A message's kind, encoding and headers, taken out of its metadata for many rows at once.

Metadata of many messages are the same text, so each text is looked at once. And nearly all are written as ``publish``
writes them, which a regular expression takes apart; JSON's parser is for the others.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

# The last member of all ends with the text. Headers end where they should if there is no brace within.
_KIND = r'\{"kind": ?"(?P<kind>[^"\\]*)", ?'
_ENCODING = r'"encoding": ?"(?P<encoding>[^"\\]*)"\}'
_PLAIN = rf"^{_KIND}(?s:.*){_ENCODING}$"
_WITH_HEADERS = rf'^{_KIND}"headers": ?(?P<headers>\{{[^{{}}]*\}}), ?{_ENCODING}$'


def taken_out(metadata: pa.Array, wanted: Sequence[str]) -> dict[str, pa.Array]:
    """The wanted ones of kind, encoding and headers: texts, null where there is none."""
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


def of_retries(metadata: pa.Array, original_ids: pa.Array, wanted: Sequence[str]) -> dict[str, pa.Array]:
    """Of what waited apart for a retry, where it was before, and when it came first; null for all else."""
    again = pc.is_valid(original_ids)
    told = [json.loads(text).get("retry", {}) for text in metadata.filter(again).to_pylist()]
    members = {"retry_of": "offset", "first_published_at": "published_at"}
    nothing = pa.nulls(len(metadata), pa.int64())
    if not told:
        return dict.fromkeys(wanted, nothing)
    return {
        name: pc.replace_with_mask(
            nothing, again, pa.array([row.get(members[name]) for row in told], pa.int64())
        )
        for name in wanted
    }


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
