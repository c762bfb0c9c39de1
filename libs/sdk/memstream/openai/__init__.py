"""For the OpenAI Agents SDK; needs the extra `openai`.

session = session_store(conversation_id, actor=user_id, store="chats")
agent = agent.clone(tools=[*agent.tools, *memory_tools(user_id, store="facts")])
await Runner.run(agent, message, session=session)
"""

from memstream.openai.session import AsyncSession, MemstreamSession, read_history, session_store
from memstream.openai.tools import memory_tools

__all__ = ["AsyncSession", "MemstreamSession", "memory_tools", "read_history", "session_store"]
