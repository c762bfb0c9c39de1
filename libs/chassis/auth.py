"""Who is calling. Identity and workspace come from a verified token and from nothing else.

Tokens are JWTs, EdDSA from our own key directory or any issuer's by JWKS. Algorithms are an allow-list; clocks may
differ by 30 s. A checked token is remembered by its SHA-256 until it expires or the keys change.
"""

import asyncio
import hashlib
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import jwt
from jwt.exceptions import InvalidTokenError, PyJWKSetError

from libs.chassis.errors import PermissionDenied, Unauthenticated, Unavailable
from libs.chassis.keys import public_keys
from libs.chassis.logs import logger
from libs.chassis.settings import ServiceSettings
from libs.chassis.texts import is_storable
from libs.contracts.requests import PrincipalType

ALGORITHMS = ["EdDSA", "ES256", "RS256"]
LEEWAY_S = 30
RELOAD_INTERVAL_S = 60
REMEMBERED = 10_000
LATEST_S = 2**53
WHOLE = re.compile(r"-?[0-9]{1,19}", re.ASCII)
PRINCIPAL_TYPES: tuple[PrincipalType, ...] = ("USER", "SERVICE_PRINCIPAL")

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Caller:
    """`principal` equals a grant's principal name: an e-mail or a client id. An admin manages, but reads no data.

    `expires_at`: until when the token serves, in seconds since the epoch.
    """

    principal_type: PrincipalType
    principal: str
    workspace_id: int
    admin: bool = False
    expires_at: float = field(default=math.inf, compare=False)

    def require_admin(self) -> None:
        if not self.admin:
            raise PermissionDenied("Only a workspace admin may do this.")


class Verifier:
    """Owned by the service's lifespan: `load` once, then `run` until cancelled."""

    def __init__(self, settings: ServiceSettings) -> None:
        self._settings = settings
        self._keys: Mapping[str, Any] = {}
        self._remembered: dict[bytes, tuple[float, Caller]] = {}

    async def load(self) -> None:
        """Reads the trusted public keys; a key that left is not trusted from then on."""
        if self._settings.jwks_url:
            async with httpx.AsyncClient(timeout=5) as client:
                answer = await client.get(self._settings.jwks_url)
            keys = {str(key.key_id): key.key for key in jwt.PyJWKSet.from_dict(answer.raise_for_status().json()).keys}
        elif self._settings.key_dir:
            keys = await asyncio.to_thread(public_keys, self._settings.key_dir)
        else:
            keys = {}
        if keys.keys() != self._keys.keys():
            self._remembered.clear()
        self._keys = keys

    async def run(self) -> None:
        while True:
            try:
                await self.load()
            except (OSError, ValueError, TypeError, AttributeError, httpx.HTTPError, PyJWKSetError) as error:
                log.error("keys_unreadable", error=type(error).__name__)
            await asyncio.sleep(RELOAD_INTERVAL_S if self._keys else 1)

    def caller(self, authorization: str | None) -> Caller:
        """The caller named by an Authorization header; raises `Unauthenticated` saying what is missing."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token:
            raise Unauthenticated("A bearer token is required: send 'Authorization: Bearer <token>'.")
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        now = time.time()
        known = self._remembered.get(digest)
        if known is not None and known[0] > now:
            return known[1]
        expires, caller = self._verify(token)
        if len(self._remembered) >= REMEMBERED:
            self._remembered.clear()
        self._remembered[digest] = (expires, caller)
        return caller

    def _verify(self, token: str) -> tuple[float, Caller]:
        if not self._keys:
            raise Unavailable("No signing key is known yet; nothing was written.")
        settings = self._settings
        try:
            key = self._keys.get(str(jwt.get_unverified_header(token).get("kid")))
            if key is None:
                raise Unauthenticated(
                    "The token is signed by a key that is not trusted here, or names none ('kid'); a new key is trusted"
                    f" within {RELOAD_INTERVAL_S} s."
                )
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=settings.token_audience,
                issuer=settings.token_issuer,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iat", settings.claim_principal]},
            )
        except jwt.ExpiredSignatureError:
            raise Unauthenticated("The token has expired.") from None
        except (InvalidTokenError, ValueError, TypeError, OverflowError) as error:
            raise Unauthenticated(f"The token is not valid: {type(error).__name__}.") from None
        expires_at = min(int(claims["exp"]), LATEST_S) + LEEWAY_S
        return expires_at, replace(self._caller_of(claims), expires_at=expires_at)

    def _caller_of(self, claims: Mapping[str, Any]) -> Caller:
        settings = self._settings
        principal = claims.get(settings.claim_principal)
        named = claims.get(settings.claim_principal_type, "USER")
        principal_type = next((known for known in PRINCIPAL_TYPES if known == named), None)
        workspace_id = _whole_number(claims.get(settings.claim_workspace))
        if workspace_id is None:
            raise Unauthenticated(f"The token lacks a whole number as claim '{settings.claim_workspace}'.")
        if not isinstance(principal, str) or not principal or not is_storable(principal):
            raise Unauthenticated(f"The token lacks a text claim '{settings.claim_principal}'.")
        if principal_type is None:
            raise Unauthenticated(
                f"The token's '{settings.claim_principal_type}' must be one of {', '.join(PRINCIPAL_TYPES)}."
            )
        return Caller(principal_type, principal, workspace_id, claims.get(settings.claim_admin) is True)


def _whole_number(claim: Any) -> int | None:
    """An int64 as a JSON number or in digits; nothing that merely looks like one: it is the tenant."""
    if isinstance(claim, str) and WHOLE.fullmatch(claim):
        claim = int(claim)
    return claim if type(claim) is int and abs(claim) < 2**63 else None
