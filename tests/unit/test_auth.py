"""Which claims make a caller, and which never do."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import SecretStr

from libs.chassis.auth import Verifier
from libs.chassis.errors import Unauthenticated
from libs.chassis.keys import PRIVATE, add_key, public_keys, retire_key
from libs.chassis.settings import ServiceSettings


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    add_key(tmp_path)
    return tmp_path


async def verifier(keys: Path) -> Verifier:
    made = Verifier(ServiceSettings(database_url=SecretStr("postgresql://nowhere"), key_dir=keys))
    await made.load()
    return made


def token(keys: Path, **claims: Any) -> str:
    path = next(keys.glob(f"*{PRIVATE}"))
    now = int(time.time())
    whole: dict[str, Any] = {
        "iss": "memstream",
        "aud": "memstream",
        "sub": "ana@example.com",
        "workspace_id": 7,
        "iat": now,
        "exp": now + 60,
    }
    key: Any = load_pem_private_key(path.read_bytes(), None)
    return jwt.encode(whole | claims, key, algorithm="EdDSA", headers={"kid": path.name.removesuffix(PRIVATE)})


async def test_a_whole_number_names_the_workspace_as_number_or_digits(keys: Path) -> None:
    known = await verifier(keys)

    for claim in (7, "7"):
        assert known.caller(f"Bearer {token(keys, workspace_id=claim)}").workspace_id == 7


@pytest.mark.parametrize(
    "claim", [None, True, 1.9, 1e300, float("inf"), 2**63, -(2**63), "1_0", " 1 ", "１", "+1", "", "x", [1], {"a": 1}]
)
async def test_what_only_looks_like_a_workspace_is_none(keys: Path, claim: Any) -> None:
    known = await verifier(keys)

    with pytest.raises(Unauthenticated, match="workspace_id"):
        known.caller(f"Bearer {token(keys, workspace_id=claim)}")


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": ""},
        {"sub": 7},
        {"sub": "a\x00b"},
        {"sub": "\ud800"},
        {"principal_type": "GROUP"},
        {"aud": "others"},
        {"iss": "others"},
        {"exp": 1},
        {"exp": "soon"},
        {"nbf": 2**40},
    ],
)
async def test_a_wrong_claim_is_401_and_never_a_fault_of_ours(keys: Path, claims: dict[str, Any]) -> None:
    known = await verifier(keys)

    with pytest.raises(Unauthenticated):
        known.caller(f"Bearer {token(keys, **claims)}")


async def test_an_expiry_beyond_all_time_is_no_fault(keys: Path) -> None:
    known = await verifier(keys)

    with suppress(Unauthenticated):
        assert known.caller(f"Bearer {token(keys, exp=10**400)}").principal == "ana@example.com"


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic x", "Bearer a.b.c", "Bearer \udcff"])
async def test_no_token_is_401(keys: Path, header: str | None) -> None:
    known = await verifier(keys)

    with pytest.raises(Unauthenticated):
        known.caller(header)


async def test_a_retired_key_is_trusted_no_more(keys: Path) -> None:
    known = await verifier(keys)
    good = token(keys)
    assert known.caller(f"Bearer {good}").principal == "ana@example.com"

    for kid in public_keys(keys):
        retire_key(keys, kid)
    add_key(keys)
    await known.load()

    with pytest.raises(Unauthenticated, match="not trusted"):
        known.caller(f"Bearer {good}")
