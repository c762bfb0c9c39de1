"""mem0 (`infer=False`) on pgvector: `mem0_search.py DSN SECONDS` fills it, searches, and prints one line of JSON."""

import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
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
    memory = Memory.from_config({"vector_store": {"provider": "pgvector", "config": postgres}})
    memory.embedding_model = Bag()

    def add(numbered: tuple[int, str]) -> None:
        number, statement = numbered
        memory.add(statement, user_id=actor(number), infer=False)

    first, *others = enumerate(statements(ENTRIES))
    add(first)  # makes the table, which two at once would both do
    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(add, others))
    measure_threads(lambda who, query: memory.search(query, filters={"user_id": who}, top_k=HITS), seconds)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
    os._exit(0)  # its background threads do not end by themselves
