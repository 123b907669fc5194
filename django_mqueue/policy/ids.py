"""Random identifiers, which processes create without coordination."""

from __future__ import annotations

import secrets
import time


def uuid7() -> str:
    """Return a UUIDv7 (RFC 9562). Its time only keeps the index in order. No decision depends on it."""
    random_bits = secrets.randbits(74)
    value = (time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF) << 80
    value |= 0x7 << 76 | (random_bits >> 62) << 64 | 0b10 << 62 | random_bits & ((1 << 62) - 1)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def new_token() -> int:
    """Return a delivery token: 62 random bits, so that no token is used twice. It is never 0."""
    return secrets.randbits(62) or 1


def new_incarnation() -> str:
    """Return the incarnation of a subscriber, for one start: 32 hexadecimal digits."""
    return secrets.token_hex(16)
