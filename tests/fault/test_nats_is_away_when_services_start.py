"""The broker is not there when the services start: HTTP serves, and all is distilled once it comes."""

from tests.support.cluster import ENTRIES, SERVICES, SESSIONS, Cluster
from tests.support.load import Load, judged


async def test_append_list_and_search_answer_without_nats_and_all_is_distilled_after_it_comes(
    running: Cluster, load: Load
) -> None:
    session, actor = f"{load.name}-s", f"{load.name}-a"
    await running.nats.stop()
    for service in SERVICES:
        await running.halt(service)
    for service in SERVICES:
        running.resume(service)
    await running.ready(bus=False)

    await running.make_session(session, actor)
    append = load.ledger.begin(session, actor, [load.script.fact(), load.script.answer()])
    appended = await load.tried(append)
    listed = await running.request("GET", f"{SESSIONS}/{session}/items")
    found = await running.request("POST", f"{ENTRIES}:search", json={"actor_id": actor, "query": "likes"})

    assert appended
    assert listed.status_code == 200
    assert found.status_code == 200, found.text
    await running.nats.start()
    await running.ready()
    await judged(running, load.ledger)
    assert len(await running.entries(actor)) == 1
