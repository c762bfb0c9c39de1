"""A stateful agent as one handler of stateless requests, as a user of `memstream.stateful` writes it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from agents import Runner

from memstream import AsyncAgentKitClient
from memstream.openai import AsyncSession
from memstream.stateful import AsyncLongTermMemory, resolve_thread_id, resolve_user_id, with_thread_id
from tests.support.agents import QUIET, scripted_agent
from tests.support.scripted_model import ScriptedModel

Request = Mapping[str, Any]


@dataclass
class Handler:
    """`sessions` and `facts` name the stores; a layer without a name is left out."""

    model: ScriptedModel
    url: str
    sessions: str | None
    facts: str | None

    async def predict(self, request: Request, token: str) -> dict[str, Any]:
        events = [event async for event in self.stream(request, token)]
        return {**events[-1], "type": "response"}

    async def stream(self, request: Request, token: str) -> AsyncIterator[dict[str, Any]]:
        thread_id = resolve_thread_id(request.get("custom_inputs"), request.get("conversation_id"))
        user_id = resolve_user_id(request.get("context"), request.get("custom_inputs"))
        question = request["input"][-1]["content"]
        async with AsyncAgentKitClient(base_url=self.url, token=token, patience_s=0.5) as client:
            memory = AsyncLongTermMemory(self.facts, client=client) if self.facts else None
            known = await memory.search_memories(user_id, question) if memory else []
            instructions = "\n".join(["Be helpful.", *(str(item.value) for item in known)])
            session = AsyncSession(thread_id, self.sessions, actor=user_id, client=client) if self.sessions else None
            async with scripted_agent(self.model, instructions=instructions) as agent:
                run = Runner.run_streamed(agent, question, session=session, run_config=QUIET)
                async for event in run.stream_events():
                    yield with_thread_id({"type": event.type}, thread_id)
            if memory and question.startswith("Remember: "):
                await memory.save_memory(user_id, "last-wish", {"wish": question.removeprefix("Remember: ")})
            message = {"type": "message", "role": "assistant", "content": run.final_output}
            yield with_thread_id({"type": "response.completed", "output": [message]}, thread_id)
