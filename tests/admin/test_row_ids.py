"""Composite primary keys as one segment of a URL."""

from __future__ import annotations

import re
from base64 import b64encode

import pytest
from django.contrib.admin.utils import quote

from django_mqueue.admin.base.row_ids import decode, encode

from .rows import ODD_KEYS


@pytest.mark.parametrize("part", ODD_KEYS)
def test_any_key_comes_back_equal(part: str) -> None:
    """A key with any characters becomes one path segment that the admin's quoting does not change."""
    key = (part[:128], part[:128], part, 2**63 - 1)
    word = encode(key)
    assert decode(word, str, str, str, int) == key
    assert re.fullmatch(r"[A-Za-z0-9.-]+", word)
    assert quote(word) == word


def test_the_longest_key_fits_a_request_line() -> None:
    """A key of four-byte characters stays below the 4,094 bytes that gunicorn allows by default."""
    assert len(encode(("😀" * 128, "😀" * 128, "😀" * 255, 2**63 - 1))) < 3_000


def test_a_plain_key_is_its_own_word() -> None:
    assert encode(42) == "42"


@pytest.mark.parametrize(
    "word",
    [
        "",
        "42",
        "not base64 at all",
        "ünï",
        "a",
        b64encode(b"{}").decode(),
        b64encode(b'["a","b","c"]').decode(),
        b64encode(b'["a","b","c","4"]').decode(),
        b64encode(b'["a","b","c",true]').decode(),
        b64encode(b'["a","b",3,4]').decode(),
        b64encode(b'["a","b","c",4.5]').decode(),
        b64encode(b"[" * 3000).decode(),
        b64encode(b"\xff\xfe").decode(),
    ],
)
def test_what_is_no_key_stands_for_none(word: str) -> None:
    assert decode(word, str, str, str, int) is None
