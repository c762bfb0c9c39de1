"""Every command of the command line against a running Memstream; a command that no scene runs fails the last line.

What is printed as JSON is what the REST surface answers.
"""

import asyncio
import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import typer
from typer.testing import CliRunner

from libs.chassis.parked import PARK
from libs.contracts.ids import uuid7
from memstream.cli import app
from memstream.commands import progress
from services.standalone.embedded import EmbeddedPostgres
from tests.support.cli import MEMSTREAM, Cli
from tests.support.servers import server_directory
from tests.support.service import until
from tests.support.standalone import StandaloneProcess

RUN_ELSEWHERE = {"mcp"}  # test_mcp.py, by a client of its protocol

Scene = Callable[["Cli", Path], None]


def commands() -> set[str]:
    """The name of every command, such as `sessions stores create`."""
    root: Any = typer.main.get_command(app)
    return set(_below(root, typer.Context(root, info_name="memstream"), ""))


def _below(group: Any, ctx: Any, prefix: str) -> Iterator[str]:
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if hasattr(command, "list_commands"):
            yield from _below(command, ctx, f"{prefix}{name} ")
        else:
            yield f"{prefix}{name}"


@pytest.fixture(scope="module")
def cli(standalone: StandaloneProcess) -> Cli:
    return Cli(standalone)


@pytest.fixture
def chats(cli: Cli, name: str) -> str:
    cli.json("sessions", "stores", "create", "--name", name)
    return name


def fresh() -> str:
    """A store name that nobody else has."""
    return f"t-{uuid.uuid4().hex[:12]}"


def session_stores_are_made_found_changed_and_deleted(cli: Cli, _: Path) -> None:
    name = fresh()
    path = f"session-stores/{name}"
    stores = ("sessions", "stores")
    cli.json(*stores, "create", "--name", fresh())
    made = cli.json(*stores, "create", "--name", name, "--description", "calls", "--metadata", '{"team": "a"}')
    assert made == cli.rest(path)
    assert (made["description"], made["metadata"]) == ("calls", {"team": "a"})
    assert cli.json(*stores, "get", name) == cli.json(*stores, "get", path) == made
    assert f"session_store_name  {name}" in re.sub(" {3,}", "  ", cli.text(*stores, "get", name))

    assert cli.json(*stores, "list", "--page-size", "1") == cli.rest("session-stores", page_size=1)
    assert cli.json(*stores, "list", "--name", name.upper()) == {"session_stores": [made]}
    assert made in cli.json(*stores, "list", "--all")["session_stores"]
    assert name in cli.text(*stores, "list", "--name", name)
    assert cli.text(*stores, "list", "--name", "nobody-s") == "no session stores\n"
    assert re.search(r"\nmore: --page-token \S+\n$", cli.text(*stores, "list", "--page-size", "1"))
    assert cli.refused(*stores, "list", "--page-token", "x", "--all", status=2)

    changed = cli.json(*stores, "update", name, "--description", "talks")
    assert (changed, changed["description"]) == (cli.rest(path), "talks")
    kept = cli.json(*stores, "create", "--name", fresh(), "--retention-days", "30", "--idle-ttl-minutes", "60")
    assert (kept["retention_days"], kept["idle_ttl_minutes"]) == (30, 60)
    kept = cli.json(*stores, "update", kept["name"], "--retention-days", "0", "--idle-ttl-minutes", "90")
    assert ("retention_days" in kept, kept["idle_ttl_minutes"]) == (False, 90)
    assert cli.refused(*stores, "update", name).startswith("error: there is nothing to update")
    assert "must be a JSON object" in cli.refused(*stores, "update", name, "--metadata", "[1]")
    assert "is not JSON" in cli.refused(*stores, "update", name, "--metadata", "{")

    assert cli.refused(*stores, "create", "--name", name).startswith("error[ALREADY_EXISTS]: ")
    assert cli.refused(*stores, "create", "--name", "NO").startswith("error[INVALID_PARAMETER_VALUE]: ")
    for typed in ("n\n", "\n", ""):
        said = cli.refused(*stores, "delete", name, input=typed)
        assert said.endswith("error: nothing was done\n  help: --yes goes ahead without asking\n")
    assert cli.text(*stores, "delete", name, input="y\n") == f"Deleted session store {name}\n"
    missing = cli.refused(*stores, "get", name)
    assert missing.startswith("error[NOT_FOUND]: ")
    assert missing.splitlines()[1] == f"  help: `memstream sessions stores list --name {name}` looks for it"


def conversations_are_begun_forked_and_deleted(cli: Cli, _: Path) -> None:
    store = fresh()
    cli.json("sessions", "stores", "create", "--name", store)
    at, path = ("--store", store), f"session-stores/{store}/sessions"
    parent = cli.json("sessions", "create", *at, "--actor-id", "ines", "--session-id", "p", "--metadata", '{"a": "b"}')
    child = cli.json("sessions", "create", *at, "--actor-id", "ines", "--parent-session-id", "p")
    assert parent == cli.rest(f"{path}/p") == cli.json("sessions", "get", "p", *at)
    assert child["parent_session_id"] == "p"
    assert cli.json("sessions", "list", *at) == cli.rest(path)
    ines = ("--filter", 'actor_id = "ines"', "--order-by", "create_time asc", "--page-size", "1")
    page = cli.json("sessions", "list", *at, *ines)
    assert [each["session_id"] for each in page["sessions"]] == ["p"]
    rest = cli.json("sessions", "list", *at, *ines, "--page-token", page["next_page_token"])
    assert [each["session_id"] for each in rest["sessions"]] == [child["session_id"]]
    assert "ines" in cli.text("sessions", "list", *at)
    assert cli.json("sessions", "update", "p", *at, "--metadata", '{"c": "d"}') == cli.rest(f"{path}/p")

    said = cli.json("sessions", "items", "append", *at, "--session-id", "p", "--data", "1", "--data", "2")
    first = said["session_items"][0]["item_id"]
    fork = cli.json("sessions", "fork", "p", *at, "--actor-id", "emil", "--session-id", "f", "--up-to-item-id", first)
    assert fork["session"] == cli.rest(f"{path}/f")
    again = cli.json("sessions", "fork", *at, "--actor-id", "emil", "--source-session-id", "p")
    assert again["session"]["forked_from_session_id"] == "p"
    for sources in ((), ("p", "--source-session-id", "p")):
        assert cli.refused("sessions", "fork", *sources, *at, "--actor-id", "emil", status=2)

    assert cli.refused("sessions", "delete", "p", *at, "--yes").startswith("error[FAILED_PRECONDITION]: ")
    assert cli.json("sessions", "delete", "p", *at, "--force", "-y") == {"deleted": "p"}
    assert cli.refused("sessions", "get", "p", *at).startswith("error[NOT_FOUND]: ")
    assert "'--store'" in cli.refused("sessions", "get", "p", status=2)


def items_are_appended_listed_popped_and_cleared(cli: Cli, directory: Path) -> None:
    store = fresh()
    cli.json("sessions", "stores", "create", "--name", store)
    cli.json("sessions", "create", "--store", store, "--actor-id", "ines", "--session-id", "s")
    at, path = ("--store", store, "--session-id", "s"), f"session-stores/{store}/sessions/s/items"
    file = directory / "items.json"
    file.write_text('["first", {"ü": [1.5]}]')

    answer = cli.json("sessions", "items", "append", *at, "--data", "null", "--file", str(file), "--data", '"last"')
    assert [item["data"] for item in answer["session_items"]] == ["first", {"ü": [1.5]}, None, "last"]
    piped = cli.json("sessions", "items", "append", *at, "--file", "-", input='["half \\ud83d", "\\u001b[31mred"]')
    assert [item["position"] for item in piped["session_items"]] == [5, 6]
    assert cli.json("sessions", "items", "list", *at) == cli.rest(path)
    oldest = ("--order-by", "create_time asc", "--page-size", "2")
    assert cli.json("sessions", "items", "list", *at, *oldest) == cli.rest(
        path, order_by="create_time asc", page_size=2
    )
    table = cli.text("sessions", "items", "list", *at)
    assert "�[31mred" in table
    assert "half �" in table
    assert table.splitlines()[-1] == "6 items"

    assert cli.refused("sessions", "items", "append", *at).startswith("error: there is nothing to append")
    assert "is not JSON" in cli.refused("sessions", "items", "append", *at, "--data", "{")
    assert "must hold a JSON array" in cli.refused("sessions", "items", "append", *at, "--file", "-", input="{}")
    assert "cannot read" in cli.refused("sessions", "items", "append", *at, "--file", "/nowhere", status=2)

    assert cli.json("sessions", "items", "pop", *at)["item"] == piped["session_items"][1]
    assert cli.json("sessions", "items", "clear", *at) == {"cleared": "s"}
    assert cli.json("sessions", "items", "pop", *at) == {}
    assert cli.text("sessions", "items", "pop", *at) == "session s has no items\n"


def permissions_are_granted_listed_and_revoked(cli: Cli, _: Path) -> None:
    name = fresh()
    cli.json("sessions", "stores", "create", "--name", name)
    cli.json("memory", "stores", "create", "--display-name", name)
    for kind, collection in (("sessions", "session-stores"), ("memory", "memory-stores")):
        permissions = (kind, "stores", "permissions")
        path = f"{collection}/{name}/permissions"
        granted = cli.json(*permissions, "grant", name, "bo@example.com", "--permission", "read")
        assert granted == {
            "principal": {"principal_type": "USER", "name": "bo@example.com"},
            "permission": "READ",
        }
        cli.text(*permissions, "grant", name, "app-1")
        listed = cli.json(*permissions, "list", name)
        assert listed == cli.rest(path)
        (grants,) = (grants for field, grants in listed.items() if field != "next_page_token")
        assert granted in grants
        assert {"principal": {"principal_type": "SERVICE_PRINCIPAL", "name": "app-1"}, "permission": "WRITE"} in grants
        assert "bo@example.com" in cli.text(*permissions, "list", name)
        assert cli.json(*permissions, "get", name) == cli.rest(f"{path}/self")
        assert cli.json(*permissions, "revoke", name, "app-1") == {"revoked": "app-1"}
        assert len(grants) == 1 + len(next(iter(cli.rest(path).values())))
        assert "--permission must be" in cli.refused(*permissions, "grant", name, "bo", "--permission", "OWN")

    denied = Cli(cli.standalone, "eve@example.com").refused("sessions", "stores", "get", name)
    assert denied.startswith("error[PERMISSION_DENIED]: ")
    assert denied.splitlines()[1].startswith("  help: ")


def memories_are_written_searched_and_deleted(cli: Cli, directory: Path) -> None:
    store = fresh()
    stores, entries, at = ("memory", "stores"), ("memory", "entries"), ("--store", store)
    made = cli.json(*stores, "create", "--name", store, "--description", "facts")
    assert made == cli.rest(f"memory-stores/{store}") == cli.json(*stores, "get", f"memory-stores/{store}")
    assert cli.json(*stores, "list", "--page-size", "1") == cli.rest("memory-stores", page_size=1)
    (named,) = cli.json(*stores, "list", "--name", store)["managed_memory_stores"]
    assert named["name"] == made["name"]
    changed = cli.json(*stores, "update", store, "--description", "what is known")
    assert (changed, changed["description"]) == (cli.rest(f"memory-stores/{store}"), "what is known")
    options = ("--language", "french", "--history-days", "30", "--metadata", '{"team": "a"}')
    french = cli.json(*stores, "create", "--name", fresh(), *options)
    assert (french["language"], french["history_days"], french["metadata"]) == ("french", 30, {"team": "a"})
    changed = cli.json(*stores, "update", french["name"], "--language", "", "--history-days", "0", "--metadata", "{}")
    assert (changed["language"], "history_days" in changed) == (made["language"], False)
    assert not changed.get("metadata")
    refused = cli.refused(*stores, "update", store, "--embedding-model", "nobody-s")
    assert refused.startswith("error[INVALID_PARAMETER_VALUE]: embedding_model")
    assert "embedding_model" not in cli.json(*stores, "update", store, "--embedding-model", "")

    file = directory / "tea.md"
    file.write_text("Prefers green tea.\n")
    of_ines = (*at, "--actor-id", "ines")
    tea = cli.json(
        *entries, "create", *of_ines, "--path", "/tea.md", "--content-file", str(file), "--description", "drinks"
    )
    mug = cli.json(*entries, "create", *of_ines, "--path", "/mug.md", "--content", "Blue.", "--session-id", "s")
    path, tea_id = f"memory-stores/{store}/entries", tea["name"].rpartition("/")[2]
    assert tea["content"] == "Prefers green tea.\n"
    assert tea["source_type"] == "MANAGED_MEMORY_ENTRY_SOURCE_TYPE_AGENT"
    assert cli.json(*entries, "get", tea["name"]) == cli.json(*entries, "get", tea_id, *at) == cli.rest(tea["name"])
    assert cli.refused(*entries, "get", tea_id, status=2)
    assert cli.refused(*entries, "create", *of_ines, "--path", "/tea.md", "--content", "x").startswith(
        "error[ALREADY_EXISTS]"
    )
    assert cli.refused(*entries, "create", *of_ines, "--path", "/x.md", status=2)

    assert cli.json(*entries, "list", *of_ines) == cli.rest(path, actor_id="ines")
    assert cli.json(*entries, "list", *of_ines, "--session-id", "s")["managed_memory_entries"][0]["name"] == mug["name"]
    prefixed = cli.json(*entries, "list", *of_ines, "--path-prefix", "/tea", "--page-size", "1")
    assert [each["path"] for each in prefixed["managed_memory_entries"]] == ["/tea.md"]
    listed = cli.text(*entries, "list", *of_ines)
    assert "/tea.md" in listed
    assert "green" not in listed
    found = cli.json(*entries, "search", *of_ines, "--query", "which tea?", "--page-size", "5")
    assert [hit["managed_memory_entry"]["path"] for hit in found["results"]] == ["/tea.md"]
    assert re.search(
        r"0\.\d\d +/tea\.md +Prefers green tea\.", cli.text(*entries, "search", *of_ines, "--query", "tea")
    )

    updated = cli.json(*entries, "update", tea_id, *at, "--content", "Prefers black tea.")
    assert (updated["content"], updated["version"]) == ("Prefers black tea.", 2)
    assert cli.json(*entries, "versions", tea["name"]) == cli.rest(f"{tea['name']}/versions")
    assert re.search(
        r"\n2 +Prefers black tea\. .*\n1 +Prefers green tea\. ", cli.text(*entries, "versions", tea["name"])
    )
    assert "--page-token" in cli.text(*entries, "versions", tea_id, *at, "--page-size", "1")
    restored = cli.text(*entries, "restore", tea_id, *at, "--version", "1")
    assert restored == "Restored version 1 of /tea.md, as version 3\n"
    assert cli.rest(tea["name"])["content"] == "Prefers green tea.\n"
    assert cli.refused(*entries, "restore", tea["name"], "--version", "9").startswith("error[")
    assert cli.refused(*entries, "update", tea["name"]).startswith("error: there is nothing to update")
    assert "nothing was done" in cli.refused(*entries, "delete", tea["name"], input="n\n")
    assert cli.json(*entries, "delete", tea["name"], "--yes") == {"deleted": tea["name"]}
    assert cli.json(*stores, "delete", store, "--yes") == {"deleted": store}
    assert "stores list --name" in cli.refused(*stores, "get", store)


def a_pipeline_distils_what_was_said(cli: Cli, directory: Path) -> None:
    name, pipeline = fresh(), ("memory", "pipeline")
    cli.json("sessions", "stores", "create", "--name", name)
    cli.json("memory", "stores", "create", "--display-name", name)
    cli.json("sessions", "create", "--store", name, "--actor-id", "ines", "--session-id", "s")
    said = json.dumps({"type": "message", "role": "user", "content": "I prefer e-mail over phone."})
    cli.json("sessions", "items", "append", "--store", name, "--session-id", "s", "--data", said)
    steering = directory / "steering.txt"
    steering.write_text("Only préférences.", encoding="utf-8")
    stores = ("--session-store", name, "--memory-store", f"memory-stores/{name}")

    result = cli.run(*pipeline, "create", *stores, "--instructions", f"@{steering}", "--display-name", "ours")
    made = re.search(r"Created (memory-pipelines/(\S+))\n", result.stdout)
    assert made, result.output
    whole, known = made.groups()
    assert "note: without --trigger it runs only when it is started" in result.stderr
    raw = cli.json(*pipeline, "get", known)
    assert raw == cli.json(*pipeline, "get", whole) == cli.rest(whole)
    assert raw["dreamer_policy"]["trigger"] == "MANUAL_ONLY"
    assert raw["dreamer_policy"]["instructions"] == "Only préférences."
    assert raw in cli.json(*pipeline, "list", "--page-size", "100")["memory_pipelines"]
    assert known in cli.text(*pipeline, "list", "--page-size", "100")
    assert cli.json(*pipeline, "list", *stores) == {"memory_pipelines": [raw]}
    assert cli.json(*pipeline, "list", "--session-store", name, "--memory-store", "nobody-s") == {
        "memory_pipelines": []
    }
    assert cli.refused(*pipeline, "create", *stores, "--trigger", "sometimes", status=2)
    assert cli.refused(*pipeline, "create", *stores, "--instructions", "@/nowhere", status=2)

    run = cli.run(*pipeline, "run", known, "--wait")
    assert re.fullmatch(rf"Run {whole}/runs/\d+: SUCCEEDED\n", run.stdout), run.output
    assert run.stderr.startswith("waiting for run ")
    listed = cli.json(*pipeline, "runs", "list", known)
    assert cli.json(*pipeline, "runs", known) == listed
    assert "did you mean get" in cli.refused(*pipeline, "runs", "gte", known)
    assert listed == cli.rest(f"{whole}/runs", page_size=50)
    (ended,) = listed["pipeline_runs"]
    assert cli.json(*pipeline, "runs", "get", ended["name"]) == ended
    assert cli.refused(*pipeline, "runs", "get", f"{whole}/runs/x", status=2)
    hits = cli.json("memory", "entries", "search", "--store", name, "--actor-id", "ines", "--query", "contact e-mail")
    assert "e-mail over phone" in hits["results"][0]["managed_memory_entry"]["content"]
    begun = cli.json(*pipeline, "run", whole)
    assert begun["name"].startswith(f"{whole}/runs/")

    assert cli.json(*pipeline, "lanes", known) == cli.rest(f"{whole}/lanes")
    assert re.search(r"ines +settled", cli.text(*pipeline, "lanes", known, "--actor-id", "ines"))
    assert cli.text(*pipeline, "lanes", known, "--state", "parked") == "no lanes\n"
    assert cli.text(*pipeline, "redrive", known).startswith("Redrove 0 lanes\n")
    days = ("--from", "2026-01-01", "--to", "2100-01-01")
    assert cli.json(*pipeline, "usage", known, *days) == cli.rest(f"{whole}/usage")
    assert "the built-in model costs nothing" in cli.run(*pipeline, "usage", known).stderr
    assert cli.refused(*pipeline, "usage", known, "--from", "soon", status=2)

    assert cli.refused(*pipeline, "pause", known).startswith(f"error: pipeline {known} is paused already")
    assert cli.json(*pipeline, "resume", known)["dreamer_policy"]["trigger"] == "SCHEDULED"
    assert "is not paused" in cli.refused(*pipeline, "resume", known)
    assert cli.json(*pipeline, "pause", known)["dreamer_policy"]["trigger"] == "MANUAL_ONLY"
    changed = cli.json(*pipeline, "update", known, "--trigger", "continuous", "--display-name", "theirs", "--model", "")
    assert (changed, changed["display_name"]) == (cli.rest(whole), "theirs")
    assert changed["dreamer_policy"]["trigger"] == "CONTINUOUS"
    cli.json(*pipeline, "pause", known)
    assert cli.text(*pipeline, "resume", known) == f"Resumed {whole}: CONTINUOUS\n"
    assert cli.refused(*pipeline, "update", known).startswith("error: there is nothing to update")
    steered = {"quiet_period_s": 1.5, "max_wait_s": 9, "daily_token_budget": 700}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in steered.items()]
    assert steered.items() <= cli.json(*pipeline, "update", known, *options)["dreamer_policy"].items()
    cleared = cli.json(*pipeline, "update", known, *(f"--clear={name}" for name in steered))["dreamer_policy"]
    assert (cleared["quiet_period_s"], cleared["max_wait_s"]) == (2, 15)
    assert "daily_token_budget" not in cleared
    assert "both given and cleared" in cli.refused(
        *pipeline, "update", known, "--max-wait-s=9", "--clear=max_wait_s", status=2
    )
    assert "nothing was done" in cli.refused(*pipeline, "replay", known, input="")
    replayed = cli.text(*pipeline, "replay", known, "--actor-id", "ines", "--yes", "--wait")
    replay = re.fullmatch(rf"Replay ({whole}/replays/\S+): SUCCEEDED\n", replayed)
    assert replay, replayed
    assert cli.json(*pipeline, "replays", "get", replay[1]) == cli.rest(replay[1])
    for command in (("replays", "list"), ("replays",)):
        assert cli.json(*pipeline, *command, known) == cli.rest(f"{whole}/replays")
    assert re.search(rf"{replay[1]} +SUCCEEDED +1 of 1 ", cli.text(*pipeline, "replays", "list", known))
    assert cli.json(*pipeline, "replays", "cancel", replay[1]) == {"canceled": replay[1]}
    assert cli.refused(*pipeline, "replays", "get", "latest", status=2)
    assert cli.json(*pipeline, "replay", whole, "--memory-store", name, "-y")["memory_store"] == f"memory-stores/{name}"
    assert cli.refused(*pipeline, "run", "nobody-s").startswith("error[NOT_FOUND]: ")
    assert cli.json(*pipeline, "delete", known, "--yes") == {"deleted": known}


def an_actor_is_forgotten(cli: Cli, _: Path) -> None:
    name = fresh()
    cli.json("sessions", "stores", "create", "--name", name)
    cli.json("memory", "stores", "create", "--display-name", name)
    cli.json("sessions", "create", "--store", name, "--actor-id", "ines")
    cli.json("memory", "entries", "create", "--store", name, "--actor-id", "ines", "--path", "/a.md", "--content", "x")

    for stores in ((), ("--session-store", name, "--memory-store", name)):
        assert "each takes a call of its own" in cli.refused("erase", "--actor", "ines", *stores, status=2)
    assert "There is no way back" in cli.refused("erase", "--actor", "ines", "--session-store", name, input="n\n")
    receipt = cli.json("erase", "--actor", "ines", "--session-store", name, "--yes", "--wait")
    assert receipt == cli.rest(f"session-stores/{name}/erasures/{receipt['erasure_id']}")
    assert receipt["state"] == "DONE"
    said = cli.text("erase", "--actor", "ines", "--memory-store", name, "--yes", "--wait")
    assert re.fullmatch(r"Erasure \S+ of ines: DONE, \d+ records of memory, \d+ records of the distiller\n", said)
    for store in ("--session-store", "--memory-store"):
        nobody = cli.text("erase", "--actor", "innes", store, name, "--yes", "--wait")
        assert re.fullmatch(r"Erasure \S+ of innes: DONE; nothing was held of this actor\n", nobody)
    assert cli.rest(f"session-stores/{name}/sessions").get("sessions", []) == []
    assert cli.rest(f"memory-stores/{name}/entries", actor_id="ines").get("managed_memory_entries", []) == []


def parked_messages_go_round_again_or_are_dropped(cli: Cli, _: Path) -> None:
    admin = Cli(cli.standalone, "root@example.com", is_admin=True)
    ids = sorted(str(uuid7()) for _ in range(2))
    asyncio.run(park(cli.standalone, ids))
    try:
        listed = admin.json("parked", "list")["parked_messages"]
        assert [each["parked_id"] for each in listed if each["parked_id"] in ids] == ids
        ours = [each for each in listed if each["service"] == "distiller"]
        assert admin.json("parked", "list", "--service", "distiller") == {"parked_messages": ours}
        assert "distiller" in admin.text("parked", "list")
        assert cli.refused("parked", "list").startswith("error[PERMISSION_DENIED]: ")

        of = ("--service", "distiller")
        assert "nothing was done" in admin.refused("parked", "drop", ids[0], *of, input="n\n")
        assert admin.json("parked", "drop", ids[0], *of, "--yes") == {"dropped": ids[0]}
        assert admin.refused("parked", "drop", ids[0], *of, "--yes").startswith("error[NOT_FOUND]: ")
        assert admin.refused("parked", "drop", "x", *of, "--yes").startswith("error[INVALID_PARAMETER_VALUE]: ")
        assert admin.json("parked", "redrive", ids[1], *of) == {"redriven": ids[1]}
        assert admin.refused("parked", "redrive", ids[1], *of).startswith("error[NOT_FOUND]: ")
    finally:
        cli.ran += admin.ran


def restored_databases_are_repaired(cli: Cli, _: Path) -> None:
    admin = Cli(cli.standalone, "root@example.com", is_admin=True)

    repaired = admin.json("repair")
    cli.ran += admin.ran

    assert repaired["sessions"] >= repaired["rewound"]
    assert repaired["batches"] >= repaired["applied_again"]
    assert cli.refused("repair").splitlines()[1].startswith("error[PERMISSION_DENIED]: ")


async def park(standalone: StandaloneProcess, ids: Sequence[str]) -> None:
    """As the distiller does with what it cannot read."""
    postgres = EmbeddedPostgres(standalone.data_dir / "postgres")
    connection = await asyncpg.connect(postgres.dsn("distiller", "distiller"))
    for parked_id in ids:
        subject = "session.items.appended.v1"
        await connection.execute(PARK, parked_id, subject, b'{"workspace_id": 1}', "invalid body", 1, 1, None, "ines")
    await connection.close()


def stores_are_bound_to_an_agents_directory(cli: Cli, directory: Path) -> None:
    for kind, table in (("sessions", "session_store"), ("memory", "memory_store")):
        source = ("--source", str(directory))
        bound = cli.json(kind, "bind", f"{kind}-one", *source)
        assert bound == {table: f"{kind}-one", "manifest": str(directory / "agent.toml")}
        assert f'[{table}]\nname = "{kind}-one"\n' in (directory / "agent.toml").read_text()
        assert "names no" in cli.text(kind, "unbind", *source)
        assert cli.refused(kind, "unbind", *source).startswith(f"error: {directory}/agent.toml names no ")
    assert cli.refused("memory", "bind", "m", "--source", "/nowhere").startswith("error: there is no directory")


def the_doctor_finds_what_is_wrong(cli: Cli, _: Path) -> None:
    name = fresh()
    cli.json("sessions", "stores", "create", "--name", name)
    cli.json("memory", "stores", "create", "--display-name", name)
    stores = ("--session-store", name, "--memory-store", name)

    def states(*arguments: str) -> dict[str, str]:
        result = cli.run("-o", "json", "doctor", *arguments)
        return {each["check"]: each["state"] for each in json.loads(result.stdout)["checks"]}

    assert states() == {
        "server": "ok",
        "clock": "ok",
        "token": "ok",
        "session store": "skipped",
        "memory store": "skipped",
        "pipeline": "skipped",
        "model": "skipped",
    }
    assert states(*stores)["pipeline"] == "warning"
    pipeline = ("memory", "pipeline", "create", "--session-store", name, "--memory-store", name)
    cli.json(*pipeline, "--trigger", "continuous")
    assert set(states(*stores).values()) == {"ok"}
    cli.json("memory", "stores", "delete", name, "--yes")
    cli.json("memory", "stores", "create", "--display-name", name)
    assert states(*stores)["pipeline"] == "failed"
    assert f"memory-stores/{name} of this pipeline was deleted" in cli.text("memory", "pipeline", "list", *stores)
    cli.json(*pipeline, "--trigger", "continuous")
    assert set(states(*stores).values()) == {"ok"}
    assert states("--session-store", "nobody-s")["session store"] == "failed"
    assert cli.run("doctor", "--session-store", "nobody-s").exit_code == 1

    told = cli.json("doctor", *stores)["settings"]
    settings = {each["name"]: each["value"] for each in told}
    assert settings["MEMSTREAM_URL"] == cli.standalone.url
    assert settings["MEMSTREAM_TOKEN"] == "hidden"
    assert settings["MEMSTREAM_PORT"] == str(cli.standalone.port)
    assert cli.token not in cli.text("doctor", *stores)
    refused = cli.run("--token", "nobody's", "doctor")
    assert re.search(r"✗ +token ", refused.stdout)
    away = cli.run("--url", "http://user:secret@127.0.0.1:9", "doctor")
    assert away.exit_code == 1
    assert "cannot be reached" in away.stdout
    assert "secret" not in away.output


def conversations_are_imported_and_exported(cli: Cli, directory: Path) -> None:
    file, copy = directory / "in.jsonl", directory / "out.jsonl"
    file.write_text('{"actor_id": "ines", "session_id": "s", "item": "hello"}\n')
    name = fresh()

    summary = cli.json("import", str(file), "--session-store", name, "--memory-store", name)
    exported = cli.json("export", str(copy), "--session-store", name)

    assert (summary["added"], exported["turns"]) == (1, 1)
    assert json.loads(copy.read_text())["item"] == "hello"


def keys_are_made_and_tokens_issued(cli: Cli, directory: Path) -> None:
    at = ("--data-dir", str(directory))
    first, second = (cli.json("keys", "add", *at)["kid"] for _ in range(2))
    assert {key["kid"] for key in cli.json("keys", "list", *at)["keys"]} == {first, second}
    assert cli.json("keys", "retire", first, *at) == {"retired": first}
    assert cli.json("tokens", "issue", "--user", "ines@example.com", *at)["token"].count(".") == 2


def it_serves_until_it_is_stopped(cli: Cli, _: Path) -> None:
    with server_directory() as directory:
        process = StandaloneProcess(directory / "data", command=[MEMSTREAM, "serve"])
        process.start()
        assert process.stop() == (0, "")
    cli.ran.append("serve")


SCENES: list[Scene] = [
    session_stores_are_made_found_changed_and_deleted,
    conversations_are_begun_forked_and_deleted,
    items_are_appended_listed_popped_and_cleared,
    permissions_are_granted_listed_and_revoked,
    memories_are_written_searched_and_deleted,
    a_pipeline_distils_what_was_said,
    an_actor_is_forgotten,
    parked_messages_go_round_again_or_are_dropped,
    restored_databases_are_repaired,
    stores_are_bound_to_an_agents_directory,
    the_doctor_finds_what_is_wrong,
    conversations_are_imported_and_exported,
    keys_are_made_and_tokens_issued,
    it_serves_until_it_is_stopped,
]


@pytest.mark.slow
def test_every_command_does_what_it_says(cli: Cli, tmp_path: Path) -> None:
    for number, scene in enumerate(SCENES):
        directory = tmp_path / str(number)
        directory.mkdir()
        scene(cli, directory)

    assert {name for name in commands() if not cli.has_run(name)} == RUN_ELSEWHERE


@pytest.mark.slow
def test_a_wait_says_where_the_run_or_the_replay_stands_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    away = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "OPENAI_API_KEY": "key", "MODEL": "away"}
    pipeline, brief = ("memory", "pipeline"), ("--wait", "--wait-timeout", "1")
    with server_directory() as directory:
        process = StandaloneProcess(directory / "data", variables=away)
        process.start()
        try:
            cli = Cli(process)
            cli.json("sessions", "stores", "create", "--name", "chats")
            cli.json("memory", "stores", "create", "--name", "facts")
            cli.json("sessions", "create", "--store", "chats", "--actor-id", "ines", "--session-id", "s")
            said = json.dumps({"type": "message", "role": "user", "content": "I live in Lisbon."})
            cli.json("sessions", "items", "append", "--store", "chats", "--session-id", "s", "--data", said)
            stores = ("--session-store", "chats", "--memory-store", "facts", "--trigger", "continuous")
            known = cli.json(*pipeline, "create", *stores)["name"].rpartition("/")[2]
            lanes = ("lanes", known, "--state", "waiting_provider")

            def waits() -> None:
                asyncio.run(until(lambda: cli.json(*pipeline, *lanes)["lanes"], deadline_s=60))

            waits()
            redriven = cli.json(*pipeline, "redrive", known, "--actor-id", "ines")
            unknown = cli.refused(*pipeline, "redrive", known, "--actor-id", "nobody")
            waits()
            monkeypatch.setattr(progress, "STAND_INTERVAL_S", 0.1)
            doctor = cli.run("doctor", "--session-store", "chats", "--memory-store", "facts")
            file = directory / "talk.jsonl"
            file.write_text(json.dumps({"actor_id": "ines", "session_id": "s", "item": json.loads(said)}) + "\n")
            run = cli.run(*pipeline, "run", known, *brief)
            imported = cli.run("import", str(file), "--session-store", "chats", "--memory-store", "facts", *brief)
            replay = cli.run(*pipeline, "replay", known, "--yes", *brief)
        finally:
            process.stop()

    assert redriven == {"redriven": 1, "over_budget": False}
    assert unknown.startswith("error[NOT_FOUND]: ")
    reason = "the model's endpoint cannot be reached"
    assert f"away (the server's default) does not answer: {reason}; actors that wait for it: 1" in doctor.stdout
    assert f"distilling: 0 of 1 turns ({reason})\n" in imported.stderr
    _, *stands, told, more = run.stderr.splitlines()
    assert stands
    assert all(re.fullmatch(rf"waiting for run \S+: actors: 1 waiting_provider \({reason}\)", line) for line in stands)
    state = r"(PENDING|RUNNING) after 1 s and goes on by itself"
    assert re.fullmatch(rf"error: \S+/runs/1 is {state}: actors: 1 waiting_provider \(.+\)", told), told
    assert more == f"  help: `memstream memory pipeline lanes {known}` tells of each actor"
    _, *stands, told, more = replay.stderr.splitlines()
    assert stands
    assert all(re.fullmatch(r"waiting for replay \S+: 0 of [01] actors swapped, 0 failed", line) for line in stands)
    # A replay that is PENDING may know of nobody yet.
    assert re.fullmatch(rf"error: \S+/replays/\S+ is {state}: 0 of [01] actors swapped, 0 failed", told), told
    assert more.startswith("  help: `memstream memory pipeline replays get memory-pipelines/")
    assert [(result.exit_code, result.stdout) for result in (run, replay)] == [(1, ""), (1, "")]


@pytest.mark.parametrize("columns", [40, 80, 160])
def test_tables_fit_the_terminal_and_have_colour_there_alone(cli: Cli, chats: str, columns: int) -> None:
    for session_id in ("a" * 30, "b" * 30):
        labels = json.dumps({"label": "long " * 30})
        of = ("--store", chats, "--actor-id", "ines@example.com", "--session-id", session_id, "--metadata", labels)
        cli.json("sessions", "create", *of)

    shown = cli.at_terminal("sessions", "list", "--store", chats, columns=columns)
    piped = cli.text("sessions", "list", "--store", chats)

    assert (shown.status, shown.has_colour) == (0, True)
    assert max(map(len, shown.lines)) <= columns
    if columns > 40:
        assert [line.split()[0] for line in shown.lines if "ines@" in line] == ["b" * 30, "a" * 30]
    rows = [line for line in piped.splitlines() if "ines@example.com" in line]
    assert [line.split()[0] for line in rows] == ["b" * 30, "a" * 30]


def test_somebody_at_a_terminal_is_offered_the_next_page(cli: Cli, chats: str) -> None:
    for number in range(3):
        cli.json("sessions", "create", "--store", chats, "--actor-id", f"actor-{number}")
    page = ("sessions", "list", "--store", chats, "--page-size", "1", "--order-by", "create_time asc")

    shown = cli.at_terminal(*page, typed="y\nn\n")

    assert shown.status == 0
    assert ["actor-0" in shown.raw, "actor-1" in shown.raw, "actor-2" in shown.raw] == [True, True, False]
    assert shown.raw.count("Show the next page?") == 2


def test_a_success_at_a_terminal_stands_in_a_frame_with_what_may_follow(cli: Cli, name: str) -> None:
    shown = cli.at_terminal("sessions", "stores", "create", "--name", name)

    assert shown.status == 0
    assert shown.lines[0].startswith("╭")
    assert any(f"memstream sessions create --store {name}" in line for line in shown.lines)


def test_at_a_terminal_no_is_the_answer_to_enter(cli: Cli, chats: str) -> None:
    shown = cli.at_terminal("sessions", "stores", "delete", chats, typed="\n")

    assert shown.status == 1
    assert cli.json("sessions", "stores", "get", chats)["session_store_name"] == chats


def test_a_failure_is_json_when_results_are(cli: Cli) -> None:
    error = json.loads(cli.refused("-o", "json", "sessions", "stores", "get", "nobody-s"))["error"]

    assert error["code"] == "NOT_FOUND"
    assert set(error) == {"code", "message", "hint"}


def test_the_stores_of_the_environment_are_used(cli: Cli, chats: str) -> None:
    cli.json("sessions", "create", "--store", chats, "--actor-id", "ines", "--session-id", "s")

    answer = CliRunner().invoke(app, ["sessions", "get", "s"], env={**cli.env, "AGENT_SESSION_STORE": chats})

    assert answer.exit_code == 0
