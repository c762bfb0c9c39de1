"""Agents of the OpenAI Agents SDK on a scripted model."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Tool
from openai import AsyncOpenAI

from tests.support.scripted_model import ScriptedModel

QUIET = RunConfig(tracing_disabled=True)


@asynccontextmanager
async def scripted_agent(model: ScriptedModel, *tools: Tool, **settings: Any) -> AsyncIterator[Agent[Any]]:
    async with AsyncOpenAI(base_url=model.url, api_key="none", max_retries=0) as client:
        chosen = OpenAIChatCompletionsModel(model="scripted", openai_client=client)
        yield Agent(name="support", model=chosen, tools=list(tools), **settings)


def asked(body: dict[str, Any]) -> list[tuple[str, Any]]:
    """What a request to the model held: each message's role, and its text or the names of the tools called."""
    return [
        (message["role"], message.get("content") or [call["function"]["name"] for call in message["tool_calls"]])
        for message in body["messages"]
    ]
