"""How long a pipeline's creator is believed."""

import asyncio
from typing import Any

import pytest

from libs.contracts.ids import uuid7
from libs.contracts.requests import StoreAuthorization
from services.distiller.access import Access
from services.distiller.domain import LaneFailure
from services.distiller.llm import Models
from services.distiller.settings import DistillerSettings
from tests.support.distiller import pipeline


class Stores:
    """The services that own the stores, which may be asked."""

    def __init__(self) -> None:
        self.allowed = True
        self.questions = 0

    async def ask(self, *_: Any) -> StoreAuthorization:
        self.questions += 1
        return StoreAuthorization(allowed=self.allowed, store_uid=uuid7())


async def test_a_right_that_was_revoked_serves_for_a_minute_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = Stores()
    models = Models.of(DistillerSettings(database_url="postgresql://unused"))  # type: ignore[arg-type]
    access, ours, other = Access(stores.ask, models), pipeline(), pipeline()
    loop = asyncio.get_running_loop()
    begun = loop.time()

    async def is_allowed(after_s: float, *, believed: bool = True) -> bool:
        monkeypatch.setattr(loop, "time", lambda: begun + after_s)
        try:
            await access.check(ours, believed=believed)
        except LaneFailure:
            return False
        finally:
            monkeypatch.undo()
        return True

    assert await is_allowed(0)
    stores.allowed = False
    assert await is_allowed(55)
    assert stores.questions == 2, "one of each store"
    assert not await is_allowed(55, believed=False)
    assert not await is_allowed(61)
    with pytest.raises(LaneFailure):
        await access.check(other)
    stores.allowed = True
    assert await is_allowed(61)
