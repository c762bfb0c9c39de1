"""What the distiller is told of when it looks for entries that overlap or are too long."""

from libs.contracts.limits import REPLY_BYTES, STATEMENT_CHARS
from libs.contracts.requests import EntriesRead, ReadEntries, StoredEntry
from services.memory.domain import is_name
from services.memory.store.rewriting import PAGE, Rewritable

# Room for the JSON around the entries of a reply.
MOST_BYTES = REPLY_BYTES - 4096


class EntryReader:
    def __init__(self, rewritable: Rewritable) -> None:
        self._rewritable = rewritable

    async def read(self, request: ReadEntries) -> EntriesRead:
        """The next entries that fit in a reply; one that fits in none is left alone."""
        if not is_name(request.actor_id):
            return EntriesRead()
        # Before the entries: an erasure between the two makes the batch refused, never the entries wrong.
        epochs = await self._rewritable.epochs(request.store_uid, request.session_store_uid, request.actor_id)
        if epochs is None:
            return EntriesRead(gone=True)
        memory_epoch, source_epoch = epochs
        page = await self._rewritable.page(request)
        entries: list[StoredEntry] = []
        after, is_full, used = request.after, False, 0
        for uid, entry in page:
            sent = entry if len(entry.statement) <= STATEMENT_CHARS else entry.model_copy(update={"terms": []})
            size = len(sent.model_dump_json().encode())
            is_full = bool(entries) and used + size > min(request.max_bytes, MOST_BYTES)
            if is_full:
                break
            after = uid
            if size <= MOST_BYTES:
                entries.append(sent)
                used += size
        more = is_full or len(page) == PAGE
        return EntriesRead(
            entries=entries, after=after if more else None, memory_epoch=memory_epoch, source_epoch=source_epoch
        )
