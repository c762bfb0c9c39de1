"""The contract's JSON. What is None is left out."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from libs.chassis.stores import Store
from libs.chassis.times import rfc3339
from libs.contracts.routes import SESSION_STORES
from services.session.domain.records import Erasure, Session


class Shape(BaseModel):
    model_config = ConfigDict(frozen=True)


class SessionStore(Shape):
    name: str
    session_store_name: str
    session_store_id: str
    description: str | None = None
    metadata: dict[str, str]
    creator_user_id: str
    create_time: str
    update_time: str
    retention_days: int | None = None
    idle_ttl_minutes: int | None = None

    @classmethod
    def of(cls, store: Store) -> "SessionStore":
        return cls(
            name=f"{SESSION_STORES}/{store.store_id}",
            session_store_name=store.store_id,
            session_store_id=store.store_id,
            description=store.description,
            metadata=store.metadata,
            creator_user_id=store.creator,
            create_time=rfc3339(store.create_time),
            update_time=rfc3339(store.update_time),
            **store.options,
        )


class SessionStorePage(Shape):
    session_stores: list[SessionStore]
    next_page_token: str | None = None


class SessionShape(Shape):
    """A session. `last_position` is what an append's `expected_position` is compared with."""

    name: str
    session_id: str
    session_store_name: str
    actor_id: str
    parent_session_id: str | None = None
    root_session_id: str
    forked_from_session_id: str | None = None
    metadata: dict[str, str]
    create_time: str
    update_time: str
    last_activity_time: str
    last_position: int

    @classmethod
    def of(cls, store_id: str, session: Session) -> "SessionShape":
        return cls(
            name=f"{SESSION_STORES}/{store_id}/sessions/{session.session_id}",
            session_id=session.session_id,
            session_store_name=store_id,
            actor_id=session.actor_id,
            parent_session_id=session.parent_session_id,
            root_session_id=session.root_session_id,
            forked_from_session_id=session.forked_from_session_id,
            metadata=session.metadata,
            create_time=rfc3339(session.create_time),
            update_time=rfc3339(session.update_time),
            last_activity_time=rfc3339(session.last_activity_time),
            last_position=session.last_position,
        )


class SessionPage(Shape):
    sessions: list[SessionShape]
    next_page_token: str | None = None


class Forked(Shape):
    session: SessionShape


class NewItem(Shape):
    data: Any = Field(description="Any JSON, returned byte for byte.")
    occurred_at: str | None = Field(None, description="When it was said: RFC 3339 with an offset.")


class Append(Shape):
    items: list[NewItem] = Field(min_length=1, max_length=1000)
    expected_position: int | None = Field(None, ge=0, description="The session's last_position; else 409 ABORTED.")


class SessionItem(Shape):
    item_id: str
    data: Any
    create_time: str
    position: int
    occurred_at: str | None = None


class ItemPage(Shape):
    session_items: list[SessionItem]
    next_page_token: str | None = None


class Appended(Shape):
    session_items: list[SessionItem]


class Popped(Shape):
    item: SessionItem | None = None


class ErasureShape(Shape):
    """A receipt. `counts` holds what each service removed, once it has said so.

    Of `distiller` they are lanes and batches, of `memory` versions that were removed or changed.
    """

    erasure_id: str
    state: str = Field(pattern="^(PENDING|DONE)$")
    counts: dict[str, int]

    @classmethod
    def of(cls, erasure: Erasure) -> "ErasureShape":
        confirmed = {"distiller": erasure.distiller_removed, "memory": erasure.memory_removed}
        return cls(
            erasure_id=str(erasure.erasure_id),
            state="DONE" if erasure.is_done else "PENDING",
            counts={
                "sessions": erasure.sessions,
                "items": erasure.items,
                **{service: removed for service, removed in confirmed.items() if removed is not None},
            },
        )


class Me(Shape):
    id: str
    userName: str
    active: bool = True
    emails: list[dict[str, Any]] | None = None


class Discovery(Shape):
    oidc_endpoint: str = ""
