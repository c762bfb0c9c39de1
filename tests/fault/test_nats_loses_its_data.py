"""The broker's directory is deleted under load: the topology is made again, the sweep and re-emission find the rest."""

import asyncio
import shutil

from tests.support.cluster import Cluster, lose_all
from tests.support.load import Load, judged


async def test_all_is_distilled_once_after_nats_lost_its_directory(running: Cluster, load: Load, is_soak: bool) -> None:
    async def lose() -> None:
        for _ in range(5 if is_soak else 1):
            await asyncio.sleep(1)
            await asyncio.to_thread(shutil.rmtree, running.nats.data_dir / "jetstream")
            await asyncio.sleep(0.5)
            await lose_all(running.nats)
            await running.ready()

    losing = asyncio.create_task(lose())
    await load.run(lambda _: losing.done())
    await losing

    await judged(running, load.ledger)
