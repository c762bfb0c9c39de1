"""Names of sessions and items. An item's id is its session's uid and its position, encoded together."""

import re
from uuid import UUID

from libs.chassis.errors import InvalidParameter

SESSION_ID = re.compile(r"[A-Za-z0-9._~:@+-]{1,255}", re.ASCII)
ITEM_ID = re.compile(r"[0-9a-f]{48}", re.ASCII)


def check_session_id(session_id: str) -> str:
    if SESSION_ID.fullmatch(session_id) is None or session_id in (".", ".."):
        raise InvalidParameter(
            "A session id must be 1 to 255 characters of A-Z a-z 0-9 . _ ~ : @ + -, not '.' or '..'."
        )
    return session_id


def item_id(session_uid: UUID, position: int) -> str:
    return f"{session_uid.hex}{position:016x}"


def decode_item_id(text: str) -> tuple[UUID, int] | None:
    """The session's uid and the position; None for what is no item's id."""
    if ITEM_ID.fullmatch(text) is None:
        return None
    position = int(text[32:], 16)
    return (UUID(text[:32]), position) if position < 2**63 else None
