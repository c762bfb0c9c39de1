"""Who may use a model, and how long a pipeline's creator is believed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from libs.contracts.ids import uuid7
from libs.contracts.requests import StoreAuthorization
from services.distiller.access import Access
from services.distiller.domain import LaneFailure
from services.distiller.llm import Extractive, Models
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


def test_the_built_in_model_has_the_aliases_and_the_users_that_the_file_gives_it(tmp_path: Path) -> None:
    file = tmp_path / "models.json"
    file.write_text('[{"name": "builtin.extractive", "aliases": ["system.ai.claude-sonnet-5"], "users": ["ana"]}]')
    models = Models.of(DistillerSettings(database_url="postgresql://unused", models_file=file))  # type: ignore[arg-type]

    for name in (None, "builtin.extractive", "system.ai.claude-sonnet-5"):
        assert isinstance(models.get(name), Extractive)
        assert [models.may_be_used_by(user, name) for user in ("ana", "bo")] == [True, False]
