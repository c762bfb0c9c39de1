"""The examples as a user starts them, each turn a process of its own, on the scripted model and on a given endpoint."""

import asyncio
import os
import sys

import pytest

from memstream.client import AgentKitClient
from tests.support.scripted_model import answers, scripted_model
from tests.support.service import until
from tests.support.standalone import ROOT, StandaloneProcess

EXAMPLES = ROOT / "libs/sdk/examples"
DEADLINE_S = 120.0


async def turn(
    standalone: StandaloneProcess, example: str, *arguments: str, variables: dict[str, str] | None = None
) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")}
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / example),
        *arguments,
        env={
            **inherited,
            "MEMSTREAM_URL": standalone.url,
            "MEMSTREAM_TOKEN": standalone.token,
            **(variables or {}),
        },
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await asyncio.wait_for(process.communicate(), DEADLINE_S)
    return process.returncode or 0, out.decode(), errors.decode()


async def says(standalone: StandaloneProcess, example: str, *arguments: str) -> str:
    status, out, errors = await turn(standalone, example, *arguments)
    assert status == 0, errors
    return out


async def test_an_agent_of_the_agents_sdk_resumes_and_remembers(
    standalone: StandaloneProcess, client: AgentKitClient, name: str
) -> None:
    example, customer = "openai_agents_support.py", name

    await says(standalone, example, customer, f"{name}-1", "I prefer e-mail over phone.")
    recalled = await says(standalone, example, customer, f"{name}-2", "Do I prefer e-mail or phone?")
    await says(standalone, example, customer, f"{name}-2", "Thanks.")
    stranger = await says(standalone, example, f"{name}-other", f"{name}-3", "Do I prefer e-mail or phone?")

    assert "I prefer e-mail over phone." in recalled
    assert "e-mail" not in stranger
    conversation = client.session_stores.get("travel-chats").get(f"{name}-2")
    roles = [item.data.get("role") or item.data["type"] for item in conversation.list_items(order_by="create_time asc")]
    assert roles == ["user", "function_call", "function_call_output", "assistant", "user", "assistant"]


async def test_an_agent_without_a_framework_resumes_and_knows_what_was_distilled(
    standalone: StandaloneProcess, client: AgentKitClient, name: str
) -> None:
    example, customer = "plain_support.py", name

    await says(standalone, example, customer, f"{name}-1", "I prefer e-mail over phone.")
    resumed = await says(standalone, example, customer, f"{name}-1", "What did I say?")
    assert "I prefer e-mail over phone." in resumed
    facts = client.memory_stores.get("plain-facts")
    await until(lambda: any(facts.list(actor_id=customer)))
    known = await says(standalone, example, customer, f"{name}-2", "Do I prefer e-mail or phone?")

    assert "e-mail over phone" in known
    stored = client.session_stores.get("plain-chats").get(f"{name}-2").list_items(order_by="create_time asc")
    assert "<memory>" not in next(iter(stored)).data["content"]
    status, _, errors = await turn(standalone, example, "somebody-else", f"{name}-1", "What did I say?")
    assert status == 1
    assert "PermissionError" in errors


@pytest.mark.parametrize("example", ["openai_agents_support.py", "plain_support.py"])
async def test_an_example_asks_the_model_of_the_environment(
    standalone: StandaloneProcess, name: str, example: str
) -> None:
    async with scripted_model() as model:
        model.behave(answers("From a model of your own."))
        variables = {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "key", "MODEL": "mine"}
        _, out, _ = await turn(standalone, example, name, f"{name}-1", "Hello.", variables=variables)

    assert out == "From a model of your own.\n"
    assert model.requests[0]["model"] == "mine"


@pytest.mark.parametrize("example", ["openai_agents_support.py", "plain_support.py", "langgraph_support.py"])
async def test_an_example_without_a_models_name_says_what_to_set(standalone: StandaloneProcess, example: str) -> None:
    arguments = () if example.startswith("langgraph") else ("ana", "nameless", "Hello.")
    status, _, errors = await turn(standalone, example, *arguments, variables={"OPENAI_API_KEY": "key", "MODEL": ""})

    assert status == 1
    assert errors.startswith("which model? set MODEL")


async def test_an_agent_on_langgraph_resumes_and_remembers(standalone: StandaloneProcess) -> None:
    said = await says(standalone, "langgraph_support.py")

    assert "(4 messages in the first conversation)" in said
    assert "peanuts" in said.partition("Which allergies")[2]
