"""What a memory store is, among the kinds of stores."""

import re

from libs.chassis.stores import StoreKind
from libs.contracts.events import MemoryStoreDeleted
from libs.contracts.routes import MEMORY_STORES

MEMORY_STORE = StoreKind(
    table="memory_stores",
    resource=MEMORY_STORES,
    noun="memory store",
    pattern=re.compile(r"[a-z](?:[a-z0-9-]{1,54}[a-z0-9])"),
    rule="3 to 56 characters of a-z, 0-9 and '-', beginning with a letter and ending with a letter or digit",
    deleted=lambda workspace_id, store_uid: MemoryStoreDeleted(workspace_id=workspace_id, store_uid=store_uid),
)
