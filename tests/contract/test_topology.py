"""The table of streams and consumers against the services that use it, and the documents that tell of it."""

import json
from functools import cache
from typing import Any

import pytest
from fastapi import FastAPI

from libs.contracts import events, requests
from libs.contracts.events import Event
from libs.contracts.ids import uuid7
from libs.contracts.requests import Message
from libs.contracts.topology import CONSUMERS, STREAMS, consumers_of, stream_of
from services.distiller.app import build as build_distiller
from services.distiller.settings import DistillerSettings
from services.memory.app import build as build_memory
from services.memory.settings import MemorySettings
from services.session.app import build as build_session
from services.session.settings import SessionSettings

NOWHERE: dict[str, Any] = {"database_url": "postgresql://nowhere", "nats_url": "nats://user:secret@nowhere:4222"}


def app(service: str) -> FastAPI:
    match service:
        case "session":
            return build_session(SessionSettings(**NOWHERE))
        case "distiller":
            return build_distiller(DistillerSettings(**NOWHERE))
        case _:
            return build_memory(MemorySettings(**NOWHERE))


@cache
def document(service: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(app(service).state.chassis.bus.asyncapi)
    return found


def subjects(service: str, action: str) -> set[str]:
    """The subjects that a service's document says it receives or sends."""
    found = document(service)
    channels = {
        operation["channel"]["$ref"].rpartition("/")[2].replace("~1", "/")
        for operation in found["operations"].values()
        if operation["action"] == action
    }
    return {found["channels"][channel]["address"] for channel in channels}


def all_of(base: type[Any]) -> list[type[Any]]:
    return [kind for child in base.__subclasses__() for kind in (child, *all_of(child))]


def test_every_event_has_a_stream_of_its_owner_and_somebody_who_listens() -> None:
    for kind in all_of(Event):
        owner = next(stream for stream in STREAMS if kind in stream.events)
        assert owner.name == stream_of(kind.subject)
        assert any(consumer.event is kind for consumer in CONSUMERS), kind
        assert len(kind.subject.split(".")) == 4


def test_no_stream_covers_the_subject_of_a_request() -> None:
    bound = {event.subject for stream in STREAMS for event in stream.events}
    asked = {kind.subject for kind in all_of(Message) if kind.subject}

    assert asked
    assert not bound & asked
    assert not any("*" in subject or ">" in subject for subject in bound)


def test_durable_names_are_unique_within_a_stream() -> None:
    names = [(consumer.stream, consumer.durable) for consumer in CONSUMERS]

    assert len(set(names)) == len(names)


@pytest.mark.parametrize("service", ["session", "distiller", "memory"])
def test_every_consumer_of_the_table_has_a_handler_and_every_event_is_documented(service: str) -> None:
    received, sent = subjects(service, "receive"), subjects(service, "send")

    assert {consumer.event.subject for consumer in consumers_of(service)} <= received
    owned = next(stream for stream in STREAMS if stream.name == service.upper())
    assert sent == {event.subject for event in owned.events}


def test_every_question_is_answered_by_its_owner() -> None:
    for kind in all_of(Message):
        if kind.subject:
            assert kind.subject in subjects(kind.subject.split(".")[0], "receive"), kind


def test_a_document_names_no_secret() -> None:
    assert "secret" not in json.dumps(document("session"))


def test_an_event_survives_the_wire_and_a_newer_one_with_more_fields_is_read() -> None:
    event = events.SessionStoreDeleted(workspace_id=1, store_uid=uuid7())
    newer = json.loads(event.model_dump_json()) | {"reason": "added later"}

    assert events.SessionStoreDeleted.model_validate(newer) == event
    assert requests.Transcript.model_validate({"lines": [], "later": 1}).lines == []
