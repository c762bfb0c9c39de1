"""A support agent of the OpenAI Agents SDK that resumes its conversations and remembers its customers.

    python openai_agents_support.py CUSTOMER CONVERSATION MESSAGE

Needs MEMSTREAM_URL and MEMSTREAM_TOKEN, and the extra `openai`. Which model it asks: see scripted.py.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner
from openai import AsyncOpenAI
from scripted import Endpoint, model_endpoint

from memstream import AlreadyExists, AsyncAgentKitClient
from memstream.openai import memory_tools, session_store

CHATS, FACTS = "travel-chats", "travel-facts"
INSTRUCTIONS = (
    "You are the support agent of a travel shop. Recall what is known of the customer before you answer, and remember"
    " what will matter next time."
)


async def main(endpoint: Endpoint, customer: str, conversation: str, message: str) -> str:
    async with (
        AsyncAgentKitClient() as client,
        AsyncOpenAI(base_url=endpoint.base_url, api_key=endpoint.api_key) as openai,
    ):
        for create, name in ((client.session_stores.create, CHATS), (client.memory_stores.create, FACTS)):
            with suppress(AlreadyExists):
                await create(name)
        support: Agent[Any] = Agent(
            name="support",
            instructions=INSTRUCTIONS,
            model=OpenAIChatCompletionsModel(model=endpoint.model, openai_client=openai),
        )
        # The customer comes from your authenticated request: no model and no message can choose whose memory it is.
        agent = support.clone(tools=[*support.tools, *memory_tools(customer, store=FACTS)])
        session = session_store(conversation, actor=customer, store=CHATS, client=client)
        result = await Runner.run(agent, message, session=session, run_config=RunConfig(tracing_disabled=True))
        return str(result.final_output)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with model_endpoint() as endpoint:
        print(asyncio.run(main(endpoint, *sys.argv[1:])))
