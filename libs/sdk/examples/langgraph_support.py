"""A support agent on LangGraph that resumes conversations and remembers its customers.

    python langgraph_support.py

It needs the extra `langgraph`, langchain, a running Memstream (MEMSTREAM_URL, MEMSTREAM_TOKEN), and nothing else: the
model is a few rules. With OPENAI_API_KEY, OPENAI_BASE_URL and MODEL in the environment it is a real one,
which needs `pip install langchain-openai`.
"""

import os
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from langchain.agents import create_agent
from langchain.chat_models import init_chat_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, ChatResult

from memstream import AgentKitClient, AlreadyExists
from memstream.langgraph import checkpointer, memory_tools, read_history, thread_config

CHATS, FACTS = "support-chats-langgraph", "support-facts-langgraph"
INSTRUCTIONS = "You are a support agent. Look up what you know about the customer before you answer a question."


class Rules(BaseChatModel):
    """Offline: takes note of what it is told, and answers a question with what it recalls."""

    @property
    def _llm_type(self) -> str:
        return "rules"

    def bind_tools(self, tools: Sequence[Any], **named: Any) -> "Rules":
        return self

    def _generate(self, messages: list[BaseMessage], *given: Any, **named: Any) -> ChatResult:
        last = messages[-1]
        if last.type == "tool":
            answer = AIMessage(f"This is what I know of you:\n{last.content}")
        elif "?" in last.text:
            call = {"name": "recall", "args": {"query": last.text}, "id": uuid.uuid4().hex}
            answer = AIMessage("", tool_calls=[call])
        else:
            answer = AIMessage("I have taken note of that.")
        return ChatResult(generations=[ChatGeneration(message=answer)])


def model() -> BaseChatModel:
    if "OPENAI_API_KEY" not in os.environ:
        return Rules()
    if not os.environ.get("MODEL"):
        sys.exit("which model? set MODEL, or unset OPENAI_API_KEY to go offline")
    found: BaseChatModel = init_chat_model(
        os.environ["MODEL"], model_provider="openai", base_url=os.environ.get("OPENAI_BASE_URL")
    )
    return found


def prepare(client: AgentKitClient) -> None:
    """The stores, and the pipeline that distils conversations into memories as they go on."""
    with suppress(AlreadyExists):
        client.session_stores.create(CHATS)
    with suppress(AlreadyExists):
        client.memory_stores.create(FACTS)
    with suppress(AlreadyExists):
        client.pipelines.create(session_store=CHATS, memory_store=FACTS, trigger="CONTINUOUS", quiet_period_s=0)


def say(thread: str, customer: str, words: str) -> None:
    """One turn, in an agent of its own: nothing is kept in this process between turns."""
    agent = create_agent(
        model(),
        memory_tools(customer, FACTS),
        system_prompt=INSTRUCTIONS,
        checkpointer=checkpointer(CHATS, transcript=True),
    )
    answer = agent.invoke({"messages": [HumanMessage(words)]}, thread_config(thread, customer))["messages"][-1]
    print(f"{customer}: {words}\nagent: {answer.text}\n")


def main() -> None:
    customer = f"ana-{uuid.uuid4().hex[:6]}"
    first, second = f"{customer}-monday", f"{customer}-friday"
    with AgentKitClient() as client, checkpointer(CHATS, transcript=True):
        prepare(client)
        say(first, customer, "I'm allergic to peanuts.")
        say(first, customer, "I live in Lyon.")
        print(f"({len(read_history(first, customer, CHATS)['messages'])} messages in the first conversation)\n")

        session = client.session_stores.get(CHATS).get(first)
        wait_for = session.up_to(session.last_position)  # only so that the next lines may follow at once
        client.memory_stores.get(FACTS).search(actor_id=customer, query="allergies", wait_for=wait_for)

        say(second, customer, "Which allergies do I have?")


if __name__ == "__main__":
    main()
