"""The published client, unmodified, against the whole product; none of its methods goes untested."""

import ast
from pathlib import Path
from uuid import uuid4

from databricks.sdk import WorkspaceClient
from databricks.sdk.service.agentkit import AgentKitAPI, ManagedMemoryStore, Session, SessionItem, SessionStore

from tests.support.standalone import StandaloneProcess

CONTRACT = Path(__file__).parents[1] / "contract"
DRIVEN_BY = (CONTRACT / "test_session_sdk.py", CONTRACT / "test_memory_sdk.py", Path(__file__))


def test_a_session_is_extracted(standalone: StandaloneProcess) -> None:
    api = WorkspaceClient(host=standalone.url, token=standalone.token).agent_kit
    chats, facts = f"chats-{uuid4().hex[:8]}", f"facts-{uuid4().hex[:8]}"
    api.create_session_store(SessionStore(), chats)
    api.create_memory_store(ManagedMemoryStore(), facts)
    api.create_session(f"session-stores/{chats}", Session(actor_id="ines"), session_id="s1")
    said = {"type": "message", "role": "user", "content": "My sister's name is Petra."}
    api.append_session_items(f"session-stores/{chats}/sessions/s1", [SessionItem(data=said)])

    tried = api.extract_memories(f"session-stores/{chats}", "s1", f"memory-stores/{facts}", dry_run=True)
    before = list(api.list_memories(f"memory-stores/{facts}", "ines"))
    written = api.extract_memories(f"session-stores/{chats}", "s1", f"memory-stores/{facts}")
    after = list(api.list_memories(f"memory-stores/{facts}", "ines"))

    assert tried.entries
    assert written.entries
    assert [entry.content for entry in tried.entries] == ["My sister's name is Petra."]
    assert before == []
    assert [entry.name for entry in after] == [entry.name for entry in written.entries]


def test_no_method_is_left_out() -> None:
    nodes = [node for path in DRIVEN_BY for node in ast.walk(ast.parse(path.read_text()))]
    called = {node.func.attr for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)}

    assert {name for name in dir(AgentKitAPI) if not name.startswith("_")} - called == set()
