"""`memstream doctor`'s questions, each answered in a sentence: can this agent reach its server, stores and pipeline?"""

from __future__ import annotations

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx

from memstream.distilling import why
from memstream.errors import ISSUE, MemstreamError, NotFound, PermissionDenied
from memstream.transport import BASE, Transport
from memstream.values import PAGE_MAX, bare, segment

TIMEOUT_S = 10.0
LEEWAY_S = 30  # what the server lets clocks differ
WHOLE_S = 2  # the server tells whole seconds, and the answer takes its time
SHORT_S = 300
USERINFO = re.compile(r"//[^/@\s]+@")

OK, WARNING, FAILED, SKIPPED = "ok", "warning", "failed", "skipped"


@dataclass(frozen=True)
class Finding:
    """`state` is ok, warning, failed or skipped."""

    check: str
    state: str
    detail: str
    hint: str | None = None


class Doctor:
    """`rest` speaks to the server's root; `token` is the bearer token, `None` when there is none to look into."""

    def __init__(self, rest: Transport, token: str | None, session_store: str | None, memory_store: str | None) -> None:
        self._rest = rest
        self._token = token
        self._session_store = session_store and bare("session-stores", session_store)
        self._memory_store = memory_store and bare("memory-stores", memory_store)

    def findings(self) -> Iterator[Finding]:
        try:
            answer = httpx.get(f"{self._rest.base_url}/readyz", timeout=TIMEOUT_S)
        except httpx.HTTPError as lost:
            hint = "is it running? `make run` starts one; --url or MEMSTREAM_URL names another"
            yield Finding("server", FAILED, f"{hidden(self._rest.base_url)} cannot be reached: {lost}", hint)
            return
        yield self._server(answer)
        yield self._clock(answer)
        yield self._found("token", self._who)
        yield self._found("session store", lambda: self._store("session store", self._session_store))
        yield self._found("memory store", lambda: self._store("memory store", self._memory_store))
        yield from self._pipeline_and_model()

    def _server(self, answer: httpx.Response) -> Finding:
        url = hidden(self._rest.base_url)
        try:
            state = answer.json().get("status", "")
        except (ValueError, AttributeError):
            state = ""
        if answer.is_success and state in ("", "ready"):
            return Finding("server", OK, f"{url} is ready")
        if answer.is_success:
            return Finding("server", WARNING, f"{url} is {state}", "writes and reads go on; distilling waits for NATS")
        if answer.status_code == 404:
            return Finding("server", OK, f"{url} answers, and says nothing about its health")
        return Finding("server", FAILED, f"{url} is not ready (status {answer.status_code})", "see the server's log")

    def _clock(self, answer: httpx.Response) -> Finding:
        try:
            ahead_s = time.time() - parsedate_to_datetime(answer.headers["Date"]).timestamp()
        except (KeyError, ValueError):
            return Finding("clock", SKIPPED, "the server does not say what time it is")
        detail = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'} the server's"
        if abs(ahead_s) < WHOLE_S:
            return Finding("clock", OK, "as the server's")
        if abs(ahead_s) > LEEWAY_S:
            return Finding("clock", FAILED, detail, f"more than {LEEWAY_S} s: tokens may be refused; set the clocks")
        return Finding("clock", OK, detail)

    def _who(self) -> Finding:
        who = self._rest.get("/api/2.0/preview/scim/v2/Me")["userName"]
        claims = claims_of(self._token)
        parts = [str(who)]
        if "workspace_id" in claims:
            parts.append(f"workspace {claims['workspace_id']}")
        if claims.get("admin"):
            parts.append("admin")
        left_s = float(claims["exp"]) - time.time() if "exp" in claims else None
        if left_s is not None:
            parts.append(f"good for {_duration(left_s)}")
        detail = ", ".join(parts)
        if left_s is not None and left_s < SHORT_S:
            return Finding("token", WARNING, detail, f"`{ISSUE} --ttl 8h` makes another")
        return Finding("token", OK, detail)

    def _store(self, noun: str, name: str | None) -> Finding:
        if name is None:
            option, variable = noun.replace(" ", "-"), noun.upper().replace(" ", "_")
            return Finding(noun, SKIPPED, f"neither --{option} nor AGENT_{variable} names one")
        path = f"{BASE}/{noun.replace(' ', '-')}s/{segment(name)}"
        try:
            level = self._rest.get(f"{path}/permissions/self")["permission"]
        except NotFound as missing:
            group = "sessions" if noun == "session store" else "memory"
            return Finding(noun, FAILED, missing.message, f"`memstream {group} stores create --name {name}` makes it")
        if level not in ("READ", "WRITE"):
            return Finding(noun, FAILED, f"no access to {name}", "its creator or an admin can grant READ or WRITE")
        embedding = self._rest.get(path).get("embedding") or {}
        vectors = ""
        if embedding.get("model"):
            vectors = f", vectors of {embedding['model']} for {embedding['done']} of {embedding['total']} entries"
        return Finding(noun, OK, f"{name}: {level}{vectors}")

    def _pipeline_and_model(self) -> Iterator[Finding]:
        if self._session_store is None or self._memory_store is None:
            why = "it is looked for between a session store and a memory store"
            yield from (Finding(check, SKIPPED, why) for check in ("pipeline", "model"))
            return
        pair = (f"session-stores/{self._session_store}", f"memory-stores/{self._memory_store}")
        try:
            pipelines = self._rest.pages(f"{BASE}/memory-pipelines", "memory_pipelines", page_size=PAGE_MAX)
            of_pair = [one for one in pipelines if (one["session_store"], one["memory_store"]) == pair]
        except MemstreamError as error:
            yield Finding("pipeline", FAILED, error.message, error.hint)
            return
        # One of deleted stores may stand beside that of the stores of now.
        found = min(of_pair, key=lambda one: "error" in one, default=None)
        if found is None:
            create = f"memstream memory pipeline create --session-store {pair[0]} --memory-store {pair[1]}"
            detail = f"none from {self._session_store} to {self._memory_store} that you may see"
            yield Finding("pipeline", WARNING, detail, f"`{create} --trigger continuous` makes one")
            return
        yield self._found("pipeline", lambda: self._pipeline(found))
        yield self._found("model", lambda: self._model(found))

    def _pipeline(self, found: dict[str, Any]) -> Finding:
        trigger = found["dreamer_policy"]["trigger"]
        name = found["name"].rpartition("/")[2]
        if "error" in found:
            create = f"memstream memory pipeline create --session-store {self._session_store}"
            hint = (
                f"`memstream memory pipeline delete {name}`, then `{create} --memory-store {self._memory_store}`"
                if found["error"].startswith("NOT_FOUND")
                else "a grant gives its creator that right again"
            )
            return Finding("pipeline", FAILED, f"{found['name']}: {found['error']}", hint)
        parked = len(self._lanes(found, "parked"))
        if parked:
            hint = f"`memstream memory pipeline lanes {name} --state parked` gives the reasons"
            return Finding("pipeline", FAILED, f"{found['name']}: actors that are parked: {parked}", hint)
        if trigger == "MANUAL_ONLY":
            hint = f"`memstream memory pipeline update {name} --trigger continuous` changes that"
            return Finding("pipeline", WARNING, f"{found['name']} runs only when it is started", hint)
        return Finding("pipeline", OK, f"{found['name']}: {trigger}")

    def _model(self, found: dict[str, Any]) -> Finding:
        default = f"{found['effective_model']} (the server's default)" if "effective_model" in found else "the default"
        model = found["dreamer_policy"].get("model") or default
        name = found["name"].rpartition("/")[2]
        waiting = self._lanes(found, "waiting_provider")
        if waiting:
            reasons = why(lane.get("reason") for lane in waiting)
            detail = f"{model} does not answer: {reasons}; actors that wait for it: {len(waiting)}"
            hint = "it goes on by itself when it answers; `model_endpoint_fails` in the distiller's log says since when"
            return Finding("model", FAILED, detail, hint)
        retried = self._retried(found)
        if retried is not None:
            detail = f"{model} is asked again, since {retried['reason']}"
            return Finding("model", WARNING, detail, f"`memstream memory pipeline lanes {name}` tells of each actor")
        return Finding("model", OK, model)

    def _retried(self, found: dict[str, Any]) -> dict[str, Any] | None:
        """A lane of the first page that came to nothing and will be tried again; none for whoever may not see them."""
        try:
            page = self._rest.get(f"{BASE}/{found['name']}/lanes", params={"state": "due", "page_size": PAGE_MAX})
        except PermissionDenied:
            return None
        return next((lane for lane in page.get("lanes", ()) if lane.get("reason")), None)

    def _lanes(self, found: dict[str, Any], state: str) -> list[dict[str, Any]]:
        """The lanes in that state, none for whoever may not see them."""
        lanes = self._rest.pages(f"{BASE}/{found['name']}/lanes", "lanes", page_size=PAGE_MAX, params={"state": state})
        try:
            return list(lanes)
        except PermissionDenied:
            return []

    def _found(self, check: str, look: Callable[[], Finding]) -> Finding:
        try:
            return look()
        except MemstreamError as error:
            return Finding(check, FAILED, error.message, error.hint)


def claims_of(token: str | None) -> dict[str, Any]:
    """What a JWT says, unverified; nothing for another kind of token."""
    try:
        body = (token or "").split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (IndexError, ValueError):
        return {}
    return claims if isinstance(claims, dict) else {}


def hidden(text: str) -> str:
    """The text without the password of a URL in it."""
    return USERINFO.sub("//***@", text)


def _duration(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} seconds"
