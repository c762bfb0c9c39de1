"""Which items are readable messages, and what they say. Everything else is opaque.

Readable: `{"type": "message", "role": "user" | "assistant", "content": …}` whose content is a text or a list with text
parts. `type` may be absent, as the OpenAI Agents SDK leaves it out of a user's message.
"""

import json
import re
from typing import Any

import msgspec

ROLES = ("user", "assistant")
TEXT_PARTS = ("text", "input_text", "output_text")
HALF_SURROGATE = re.compile("[\ud800-\udfff]")
CUT = " […cut…] "


class _Peek(msgspec.Struct):
    type: str = "message"
    role: str = ""
    content: msgspec.Raw = msgspec.Raw()


_PEEK = msgspec.json.Decoder(_Peek)


def role_of(data: bytes) -> str | None:
    """The speaker of a readable message, else None; looks no deeper than it must."""
    if data[:1] != b"{":
        return None
    try:
        peek = _PEEK.decode(data)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError):
        return _role_of_odd(data)
    is_message = peek.type == "message" and bytes(peek.content)[:1] in (b'"', b"[")
    return peek.role if is_message and peek.role in ROLES else None


def _role_of_odd(data: bytes) -> str | None:
    value = _loaded(data.decode())
    if value is None or value.get("type", "message") != "message":
        return None
    role = value.get("role")
    return role if role in ROLES and isinstance(value.get("content"), str | list) else None


def text_of(data: str) -> str:
    """What a readable message says, fit for any database and any wire; empty when it says nothing."""
    value = _loaded(data)
    content = None if value is None else value.get("content")
    if isinstance(content, str):
        text = content
    elif isinstance(content, list):
        text = "\n".join(part["text"] for part in content if _is_text(part))
    else:
        text = ""
    return HALF_SURROGATE.sub("\ufffd", text.replace("\x00", ""))


def cut_to(text: str, json_bytes: int) -> str:
    """The text, or its two ends around a visible mark, in at most that many bytes of JSON."""
    size = json_size(text)
    if size <= json_bytes:
        return text
    keep = len(text) * json_bytes // size
    while keep > 0:
        shortened = text[: keep - keep // 2] + CUT + text[len(text) - keep // 2 :]
        if json_size(shortened) <= json_bytes:
            return shortened
        keep = keep * 9 // 10
    return CUT


def json_size(text: str) -> int:
    return len(msgspec.json.encode(text))


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in TEXT_PARTS and isinstance(part.get("text"), str)


def _loaded(data: str) -> dict[str, Any] | None:
    try:
        value = json.loads(data, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
