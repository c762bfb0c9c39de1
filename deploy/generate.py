"""Makes the files of deploy/ that follow from code: `.venv/bin/python -m deploy.generate`. A contract test compares.

deploy/requirements.lock     the part of requirements.lock that a server needs
deploy/nats/users.conf       one NATS user for each service, from libs/contracts/topology.py and what the services ask
deploy/caddy/routes.caddy    which service answers which path, from libs/contracts/routes.py
deploy/helm/…/files/         copies of Caddy's two files, since a chart reads only what is below it
"""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

from libs.contracts import requests
from libs.contracts.routes import ROUTES
from libs.contracts.topology import CONSUMERS, STREAMS, consumers_of, stream_of

ROOT = Path(__file__).parents[1]
SERVICES = ("session", "distiller", "memory")
CHART_FILES = Path("deploy/helm/memstream/files")
NOT_IN_LOCK = {"memstream", "memstream-server"}
BUILD = {"setuptools"}  # makes our own packages, then leaves the image
PYTHONS = ("3.11", "3.13")


def files() -> dict[Path, str]:
    """Every generated file by its path from the repository's root."""
    routes = routes_caddy()
    return {
        Path("deploy/requirements.lock"): requirements_lock(),
        Path("deploy/nats/users.conf"): users_conf(),
        Path("deploy/caddy/routes.caddy"): routes,
        CHART_FILES / "routes.caddy": routes,
        CHART_FILES / "Caddyfile": (ROOT / "deploy/caddy/Caddyfile").read_text(),
    }


# --- NATS -------------------------------------------------------------------------------------------------------------


def users_conf() -> str:
    lines = [
        "# Made by deploy/generate.py from libs/contracts/topology.py and from what the services ask. Do not edit.",
        "authorization {",
        "  users = [",
    ]
    for service in SERVICES:
        lines += [
            "    {",
            f"      user: {service}",
            f"      password: $NATS_PASSWORD_{service.upper()}",
            "      permissions: {",
            *_subjects("publish", publishes(service)),
            *_subjects("subscribe", subscribes(service)),
            '        allow_responses: { max: 1, expires: "30s" }',
            "      }",
            "    }",
        ]
    return "\n".join([*lines, "  ]", "}", ""])


def publishes(service: str) -> list[str]:
    """Its own events, its questions, and of JetStream: making the topology, then taking from its own consumers."""
    own = [event.subject for stream in STREAMS for event in stream.events if event.subject.startswith(f"{service}.")]
    own += [consumer.event.subject for consumer in consumers_of(service)]  # a redrive sends round what was parked
    streams = [f"$JS.API.STREAM.CREATE.{stream.name}" for stream in STREAMS]
    streams += [f"$JS.API.STREAM.{verb}.{service.upper()}" for verb in ("INFO", "UPDATE")]
    consumers = [
        f"$JS.API.CONSUMER.CREATE.{c.stream}.{c.durable}.{c.event.subject}"
        for c in CONSUMERS
        if service in (c.service, c.stream.lower())
    ]
    taking = [
        subject
        for c in consumers_of(service)
        for subject in (
            f"$JS.API.CONSUMER.INFO.{c.stream}.{c.durable}",
            f"$JS.API.CONSUMER.MSG.NEXT.{c.stream}.{c.durable}",
            f"$JS.ACK.{c.stream}.{c.durable}.>",
        )
    ]
    return own + asked_by(service) + streams + consumers + taking


def subscribes(service: str) -> list[str]:
    """Answers to itself, the questions that it answers, and the events that it owns or consumes, to be woken by."""
    owned = [event.subject for stream in STREAMS for event in stream.events if stream.name == stream_of(f"{service}.")]
    consumed = [consumer.event.subject for consumer in consumers_of(service)]
    answered = [subject for subject in _request_subjects().values() if subject.startswith(f"{service}.")]
    return [f"_INBOX_{service}.>", *answered, *owned, *consumed]


def asked_by(service: str) -> list[str]:
    """Subjects of the requests that a service's source names and another service owns."""
    subjects = _request_subjects()
    named: set[str] = set()
    for source in (ROOT / "services" / service).rglob("*.py"):
        for node in ast.walk(ast.parse(source.read_text())):
            named.add(node.id if isinstance(node, ast.Name) else getattr(node, "attr", ""))
    return [subject for name, subject in subjects.items() if name in named and not subject.startswith(f"{service}.")]


def _is_request(member: object) -> bool:
    return inspect.isclass(member) and member.__module__ == requests.__name__ and bool(vars(member).get("subject"))


def _request_subjects() -> dict[str, str]:
    """Every request by the name of its class, in the order of the file."""
    found = inspect.getmembers(requests, _is_request)
    return {name: member.subject for name, member in sorted(found, key=lambda pair: pair[1].subject)}


def _subjects(verb: str, subjects: list[str]) -> list[str]:
    return [f"        {verb}: {{ allow: [", *(f'          "{subject}"' for subject in subjects), "        ] }"]


# --- Caddy ------------------------------------------------------------------------------------------------------------


def routes_caddy() -> str:
    """One `handle` a route: of these the first match wins, as in the table."""
    lines = ["# Made by deploy/generate.py from libs/contracts/routes.py; the first match wins. Do not edit."]
    for number, (service, pattern) in enumerate(ROUTES):
        lines += [
            f"@route{number} path_regexp route{number} {pattern}",
            f"handle @route{number} {{",
            f"\timport to_{service}",
            "}",
        ]
    return "\n".join([*lines, ""])


# --- The lock ---------------------------------------------------------------------------------------------------------


def requirements_lock() -> str:
    wanted = closure("memstream-server") - NOT_IN_LOCK | BUILD
    blocks = {name: block for name, block in _blocks((ROOT / "requirements.lock").read_text()) if name in wanted}
    if missing := wanted - blocks.keys():
        raise SystemExit(f"not in requirements.lock: {', '.join(sorted(missing))}")
    return "# Made by deploy/generate.py from requirements.lock. Do not edit.\n" + "".join(blocks.values())


def closure(distribution: str) -> set[str]:
    """Every distribution that this one needs on Linux, itself included, as far as it is installed here."""
    seen: dict[str, set[str]] = {}

    def visit(name: str, extras: set[str]) -> None:
        if name in seen and extras <= seen[name]:
            return
        seen.setdefault(name, set()).update(extras)
        for line in requires(name) or []:
            requirement = Requirement(line)
            if _applies(requirement, extras):
                visit(_normal(requirement.name), set(requirement.extras))

    visit(distribution, set())
    return set(seen)


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    if requirement.marker is None:
        return True
    environments = (
        {"extra": extra, "python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux"}
        for extra in ("", *extras)
        for python in PYTHONS
    )
    return any(requirement.marker.evaluate(environment) for environment in environments)


def _blocks(lock: str) -> Iterator[tuple[str, str]]:
    for block in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        if "==" in block:
            yield _normal(block.partition("==")[0]), block


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    for path, text in files().items():
        (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / path).write_text(text)
        print(path)
