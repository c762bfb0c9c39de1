"""A support agent without a framework: it resumes its conversations, and knows what a pipeline has distilled of them.

    python plain_support.py CUSTOMER CONVERSATION MESSAGE

Needs MEMSTREAM_URL and MEMSTREAM_TOKEN. Which model it asks: see scripted.py.
"""

from __future__ import annotations

import sys
from contextlib import suppress

import httpx
from scripted import Endpoint, Message, model_endpoint

from memstream import AgentKitClient, AlreadyExists, MemoryStore, NotFound, Session, SessionStore

CHATS, FACTS = "plain-chats", "plain-facts"
INSTRUCTIONS = "You are the support agent of a travel shop."
ANSWER_TIMEOUT_S = 60.0


def main(endpoint: Endpoint, customer: str, conversation: str, message: str) -> str:
    with AgentKitClient() as client:
        chats, facts = stores(client)
        session = resumed(chats, conversation, customer)
        history = [item.data for item in session.list_items(order_by="create_time asc")]
        said = {"type": "message", "role": "user", "content": message}
        # What is known stands before the history and is never stored with it.
        answer = ask(endpoint, [*instructions(facts, customer, message), *map(chat_message, [*history, said])])
        session.append_items([said, {"type": "message", "role": "assistant", "content": answer}])
        return answer


def stores(client: AgentKitClient) -> tuple[SessionStore, MemoryStore]:
    """The two stores, and a pipeline that distils the one into the other; made by the first call."""
    with suppress(AlreadyExists):
        client.session_stores.create(CHATS)
    with suppress(AlreadyExists):
        client.memory_stores.create(FACTS)
    with suppress(AlreadyExists):
        client.pipelines.create(session_store=CHATS, memory_store=FACTS, trigger="CONTINUOUS")
    return client.session_stores.get(CHATS), client.memory_stores.get(FACTS)


def resumed(chats: SessionStore, conversation: str, customer: str) -> Session:
    """The conversation, begun if there is none. An id is found whoever's it is, so it is compared."""
    try:
        session = chats.get(conversation)
    except NotFound:
        return chats.add(actor_id=customer, session_id=conversation)
    if session.actor_id != customer:
        raise PermissionError("the conversation belongs to another customer")
    return session


def instructions(facts: MemoryStore, customer: str, message: str) -> list[Message]:
    known = [hit.memory.content or "" for hit in facts.search(actor_id=customer, query=message, limit=5)]
    lines = [INSTRUCTIONS, *(["<memory>", *known, "</memory>"] if known else [])]
    return [{"role": "system", "content": "\n".join(lines)}]


def chat_message(item: Message) -> Message:
    return {"role": item["role"], "content": item["content"]}


def ask(endpoint: Endpoint, messages: list[Message]) -> str:
    answer = httpx.post(
        f"{endpoint.base_url.rstrip('/')}/chat/completions",
        headers={"Authorization": f"Bearer {endpoint.api_key}"},
        json={"model": endpoint.model, "messages": messages},
        timeout=ANSWER_TIMEOUT_S,
    )
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with model_endpoint() as endpoint:
        print(main(endpoint, *sys.argv[1:]))
