"""The key directory: `<kid>.public.pem` is trusted, `<kid>.private.pem` signs; the newest private key is used.

Only the command line and the standalone process see private keys. A key is retired by removing its public half.
"""

import secrets
import time
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

PUBLIC, PRIVATE = ".public.pem", ".private.pem"


def public_keys(directory: Path) -> dict[str, Any]:
    """Every trusted public key by its kid."""
    return {
        path.name.removesuffix(PUBLIC): load_pem_public_key(path.read_bytes())
        for path in sorted(directory.glob(f"*{PUBLIC}"))
    }


def add_key(directory: Path) -> str:
    """Makes an Ed25519 pair and returns its kid; names sort by time of making."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    kid = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{secrets.token_hex(4)}"
    private = Ed25519PrivateKey.generate()
    path = directory / f"{kid}{PRIVATE}"
    path.touch(mode=0o600)
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    # The public half last: a key is trusted only once it is whole.
    half = directory / f"{kid}.part"
    half.write_bytes(private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    half.rename(directory / f"{kid}{PUBLIC}")
    return kid


def retire_key(directory: Path, kid: str) -> None:
    """Stops trusting a key; `FileNotFoundError` when there is none of that name."""
    (directory / f"{kid}{PUBLIC}").unlink()
    (directory / f"{kid}{PRIVATE}").unlink(missing_ok=True)


def issue_token(
    directory: Path,
    *,
    principal: str,
    principal_type: str,
    workspace_id: int,
    admin: bool = False,
    ttl_s: int = 3600,
    issuer: str = "memstream",
    audience: str = "memstream",
) -> str:
    """A token signed with the newest key; `FileNotFoundError` when the directory holds none."""
    newest = max(directory.glob(f"*{PRIVATE}"), default=None)
    if newest is None:
        raise FileNotFoundError(f"no signing key in {directory}")
    now = int(time.time())
    claims: dict[str, Any] = {
        "iss": issuer,
        "aud": audience,
        "sub": principal,
        "principal_type": principal_type,
        "workspace_id": workspace_id,
        "iat": now,
        "exp": now + ttl_s,
    }
    if admin:
        claims["admin"] = True
    key = load_pem_private_key(newest.read_bytes(), None)
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(f"{newest.name} is not an Ed25519 key")
    return jwt.encode(claims, key, algorithm="EdDSA", headers={"kid": newest.name.removesuffix(PRIVATE)})
