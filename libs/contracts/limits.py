"""Every size and count that the public surface promises, in one frozen model, so that a deployment may change one."""

from pydantic import BaseModel, ConfigDict


class Limits(BaseModel):
    """Bytes are of UTF-8. Over a limit is 400, except a body or an item over its bytes: 413."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    body_bytes: int = 16 * 1024 * 1024
    item_bytes: int = 4 * 1024 * 1024
    items_per_append: int = 1000
    json_depth: int = 500
    content_bytes: int = 1024 * 1024
    description_bytes: int = 4096
    path_bytes: int = 1024
    actor_chars: int = 256
    query_bytes: int = 100_000
    instructions_bytes: int = 16 * 1024
    metadata_pairs: int = 64
    metadata_key_chars: int = 256
    metadata_value_bytes: int = 1024
    page_default: int = 10
    page_max: int = 100
    page_bytes: int = 8 * 1024 * 1024  # of what a page's rows hold; a larger row is a page by itself
    permissions_page_default: int = 100
    permissions_page_max: int = 1000
    requests_per_workspace: int = 256  # at once, in one replica, until their answers begin; over it is 429
    head_bytes: int = 64 * 1024  # of a request's line and headers; over it is 431
    head_deadline_s: float = 10.0
    body_deadline_s: float = 30.0  # over it is 408
    answer_deadline_s: float = 30.0  # how long a client may take nothing of an answer that waits for it


STATEMENT_CHARS = 1000
DESCRIPTION_CHARS = 300
CHANGES_PER_BATCH = 100  # of more lines than one
# The changes or rewrites of a batch, as JSON. What an event holds beside them, ranges of 20 sessions and an envelope of
# ids, is under 64 KiB: so each stays below 768 KiB, and well below the broker's limit of 1 MiB.
CHANGES_BYTES = 704 * 1024
REPLY_BYTES = 512 * 1024
REWRITABLE_BYTES = 256 * 1024  # of an entry's content; consolidation leaves longer ones alone
