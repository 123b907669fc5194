"""Decoding returns the encoded value, for each value that JSON can represent."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from django_mqueue.policy.encoding import BYTES, JSON, decode, encode

TEXTS = st.text(alphabet=st.characters(codec="utf-8"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
)


@given(VALUES)
def test_json_comes_back_equal(value: Any) -> None:
    encoded = encode(value, "", None, 1 << 20)
    assert json.loads(encoded.metadata)["encoding"] == JSON
    back = decode(encoded.body, JSON)
    assert back == value
    assert type(back) is type(value)


@given(st.binary())
def test_bytes_come_back_equal(value: bytes) -> None:
    encoded = encode(value, "kind", {"a": 1}, 1 << 20)
    assert encoded.body == value
    assert json.loads(encoded.metadata) == {"kind": "kind", "headers": {"a": 1}, "encoding": BYTES}
    assert decode(encoded.body, BYTES) == value


@given(st.integers(1, 200), st.integers(0, 250))
def test_the_limit_is_on_the_encoded_bytes(limit: int, size: int) -> None:
    """A payload of exactly the limit is accepted."""
    payload = "é" * size
    encoded_size = 2 * size + 2
    if encoded_size <= limit:
        assert len(encode(payload, "", None, limit).body) == encoded_size
    else:
        with pytest.raises(ValueError, match=rf"payload is {encoded_size} bytes .*\({limit}\)"):
            encode(payload, "", None, limit)


def test_what_is_no_json_is_refused() -> None:
    for value in (math.nan, math.inf, -math.inf, "\ud800"):
        with pytest.raises(ValueError, match="payload cannot be encoded"):
            encode(value, "", None, 100)
