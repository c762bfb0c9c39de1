"""Identifiers: time-ordered UUIDs made in Python, so that the SQL needs nothing newer than Postgres 16."""

import hashlib
import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """A version 7 UUID (RFC 9562, 5.7): 48 bits of Unix milliseconds, the rest random."""
    return _version_7((time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10)))


def part_of(uid: UUID, name: str) -> UUID:
    """The UUID of a part of something: of the same time, and the same whenever it is made again."""
    digest = hashlib.sha256(uid.bytes + name.encode("utf-8", "surrogatepass")).digest()
    return _version_7(uid.int >> 80 << 80 | int.from_bytes(digest[:10]))


def _version_7(value: int) -> UUID:
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)
