"""Text that Postgres can store and JSON can carry, and the limits on it."""

from typing import Annotated

from pydantic import AfterValidator

from libs.chassis.errors import InvalidParameter
from libs.contracts.limits import Limits


def storable(text: str) -> str:
    """Refuses NUL and lone surrogates: a database's text can hold neither, and cutting them would change the words."""
    if "\x00" in text:
        raise ValueError("must not contain a NUL character")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must not contain half of a surrogate pair") from None
    return text


def is_storable(text: str) -> bool:
    try:
        return bool(storable(text)) or not text
    except ValueError:
        return False


Text = Annotated[str, AfterValidator(storable)]


def check_bytes(name: str, text: str | None, limit: int) -> None:
    if text is not None and len(text) * 4 > limit and len(text.encode()) > limit:
        raise InvalidParameter(f"{name} may have at most {limit} bytes.")


def check_metadata(metadata: dict[str, str] | None, limits: Limits) -> None:
    if not metadata:
        return
    if len(metadata) > limits.metadata_pairs:
        raise InvalidParameter(f"metadata may have at most {limits.metadata_pairs} pairs, not {len(metadata)}.")
    for key, value in metadata.items():
        if len(key) > limits.metadata_key_chars:
            raise InvalidParameter(f"a metadata key may have at most {limits.metadata_key_chars} characters.")
        check_bytes("a metadata value", value, limits.metadata_value_bytes)


def check_actor(actor_id: str | None, limits: Limits) -> str:
    """The actor id as it was sent: 1 to 256 printable characters, not all blank."""
    if actor_id is None or not actor_id.strip():
        raise InvalidParameter("actor_id is required and must not be blank.")
    if len(actor_id) > limits.actor_chars or not actor_id.isprintable():
        raise InvalidParameter(f"actor_id must be 1 to {limits.actor_chars} printable characters.")
    return actor_id
