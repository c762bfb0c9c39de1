"""mem0 (`infer=False`) on pgvector: `mem0_search.py DSN SECONDS` fills it, searches, and prints one line of JSON.

What is filled in is what `add` makes of it, written at once: alone, each takes two writes to the disk.
"""

import os
import sys
import tempfile
from collections import defaultdict
from typing import Any

from tests.bench.peers.corpus import CLIENTS, DIMENSIONS, ENTRIES, HITS, actor, measure_threads, statements, vector

os.environ |= {"MEM0_TELEMETRY": "False", "MEM0_DIR": tempfile.mkdtemp(prefix="mem0-"), "OPENAI_API_KEY": "none"}

from mem0 import Memory


class Bag:
    """Stands where mem0 has its embedder."""

    def embed(self, text: str, memory_action: str | None = None) -> list[float]:
        return vector(text)

    def embed_batch(self, texts: list[str], memory_action: str | None = None) -> list[list[float]]:
        return [vector(text) for text in texts]


def main(dsn: str, seconds: float) -> None:
    postgres: dict[str, Any] = {
        "connection_string": dsn,
        "collection_name": "bench",
        "embedding_model_dims": DIMENSIONS,
        "minconn": CLIENTS,
        "maxconn": CLIENTS,
    }
    store = {"provider": "pgvector", "config": postgres}
    memory = Memory.from_config({"vector_store": store, "history_db_path": ":memory:"})
    memory.embedding_model = Bag()
    rows: defaultdict[str, list[Any]] = defaultdict(list)

    def gather(**row: list[Any]) -> None:
        for name, values in row.items():
            rows[name] += values

    insert, memory.vector_store.insert = memory.vector_store.insert, gather
    for number, statement in enumerate(statements(ENTRIES)):
        memory.add(statement, user_id=actor(number), infer=False)
    insert(**rows)
    measure_threads(lambda who, query: memory.search(query, filters={"user_id": who}, top_k=HITS), seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
    os._exit(0)  # its background threads do not end by themselves
