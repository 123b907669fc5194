"""Identifiers that need no coordination."""

from __future__ import annotations

import secrets
import time
import uuid


def uuid7() -> str:
    """A UUID of version 7 (RFC 9562, section 5.7): 48 bits of this machine's time, the rest random.

    The time only helps the index's locality; nothing is decided by it.
    """
    random_bits = secrets.randbits(74)
    value = (time.time_ns() // 1_000_000 & 0xFFFF_FFFF_FFFF) << 80
    value |= 0x7 << 76 | (random_bits >> 62) << 64 | 0b10 << 62 | random_bits & ((1 << 62) - 1)
    return str(uuid.UUID(int=value))


def new_token() -> int:
    """A delivery token: 62 random bits, never 0, so that none is ever used twice."""
    return secrets.randbits(62) or 1


def new_incarnation() -> str:
    """One life of a subscriber: 32 hexadecimal digits."""
    return secrets.token_hex(16)
