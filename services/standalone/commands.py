"""What the server distribution adds to the command line: `serve`, `tokens`, `keys`.

Loaded for `memstream --help`, hence the imports inside the commands.
"""

import re
from pathlib import Path
from typing import Annotated

import typer

from memstream.console import console
from memstream.errors import MemstreamError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}

KeyDir = Annotated[
    Path | None,
    typer.Option("--key-dir", envvar="KEY_DIR", help="The key directory.", show_default="the data directory's keys"),
]
DataDir = Annotated[
    Path, typer.Option("--data-dir", envvar="MEMSTREAM_DATA_DIR", help="The data directory of `memstream serve`.")
]
NAME_CHARS = 256
DEFAULT_DATA_DIR = Path(".memstream")

tokens = typer.Typer(help="Make tokens.", no_args_is_help=True)
keys = typer.Typer(help="Rotate the keys that sign tokens.", no_args_is_help=True)


def serve() -> None:
    """Serve everything in one process until Ctrl-C; MEMSTREAM_PORT and MEMSTREAM_DATA_DIR say where."""
    from services.standalone.__main__ import run
    from services.standalone.__main__ import serve as until_stopped

    raise typer.Exit(run(until_stopped))


@tokens.callback()
def _tokens() -> None:
    """Make tokens."""  # with a callback, `issue` stays a command of its own


@tokens.command("issue")
def issue(
    ctx: typer.Context,
    user: Annotated[str | None, typer.Option("--user", help="A user's name, usually an e-mail address.")] = None,
    service_principal: Annotated[
        str | None, typer.Option("--service-principal", help="A service principal's client id.")
    ] = None,
    workspace: Annotated[
        int, typer.Option("--workspace", min=0, max=2**63 - 1, help="The workspace, which is the tenant.")
    ] = 1,
    admin: Annotated[bool, typer.Option("--admin", help="May manage grants and erase, without reading data.")] = False,
    ttl: Annotated[str, typer.Option("--ttl", help="How long it is good: 90s, 30m, 1h, 7d.")] = "1h",
    data_dir: DataDir = DEFAULT_DATA_DIR,
    key_dir: KeyDir = None,
) -> None:
    """Print a token, and nothing else, signed with the newest key."""
    from libs.chassis.keys import issue_token

    if (user is None) == (service_principal is None):
        raise typer.BadParameter("give one of --user and --service-principal")
    principal = user if user is not None else service_principal
    if principal is None or not principal.strip() or len(principal) > NAME_CHARS or not principal.isprintable():
        option = "--service-principal" if user is None else "--user"
        raise typer.BadParameter(f"{option} must be 1 to {NAME_CHARS} printable characters, not all blank")
    directory = key_dir or data_dir / "keys"
    try:
        token = issue_token(
            directory,
            principal=principal,
            principal_type="SERVICE_PRINCIPAL" if user is None else "USER",
            workspace_id=workspace,
            admin=admin,
            ttl_s=seconds(ttl),
        )
    except FileNotFoundError:
        raise MemstreamError(
            f"there is no signing key in {directory}",
            hint="--data-dir or MEMSTREAM_DATA_DIR names the server's data directory; where there is no server yet,"
            " start `memstream serve` once or make a key with `memstream keys add`",
        ) from None
    except OSError as refused:
        raise _unusable(directory, refused) from None
    console(ctx).show({"token": token}, token)


@keys.command("add")
def add(ctx: typer.Context, data_dir: DataDir = DEFAULT_DATA_DIR, key_dir: KeyDir = None) -> None:
    """Make a key; it signs from now on, and services trust it within a minute. Older ones stay until retired."""
    from libs.chassis.keys import add_key

    directory = key_dir or data_dir / "keys"
    try:
        kid = add_key(directory)
    except OSError as refused:
        raise _unusable(directory, refused) from None
    out = console(ctx)
    out.show({"kid": kid}, kid)
    out.note(f"made in {directory.absolute()}; services look for keys every minute, and refuse its tokens until then")


@keys.command("list")
def list_keys(ctx: typer.Context, data_dir: DataDir = DEFAULT_DATA_DIR, key_dir: KeyDir = None) -> None:
    """The trusted keys, the one that signs last."""
    found = _kids(key_dir or data_dir / "keys")
    rows = [{"kid": kid, "signs": kid == found[-1]} for kid in found]
    console(ctx).show({"keys": rows}, "\n".join(f"{kid}{'  signs' if kid == found[-1] else ''}" for kid in found))


@keys.command("retire")
def retire(ctx: typer.Context, kid: str, data_dir: DataDir = DEFAULT_DATA_DIR, key_dir: KeyDir = None) -> None:
    """Stop trusting a key: its tokens are refused within a minute."""
    from libs.chassis.keys import retire_key

    directory = key_dir or data_dir / "keys"
    found = _kids(directory)
    if kid not in found:
        raise MemstreamError(f"there is no key {kid} in {directory}", hint="see `memstream keys list`")
    if len(found) == 1:
        raise MemstreamError(f"{kid} is the only key", hint="first make another with `memstream keys add`")
    try:
        retire_key(directory, kid)
    except OSError as refused:
        raise _unusable(directory, refused) from None
    console(ctx).show({"retired": kid}, f"retired {kid}")


def seconds(text: str) -> int:
    """A duration such as 90s, 30m, 1h, 7d."""
    match = re.fullmatch(r"([1-9]\d{0,8})([smhd])", text)
    if match is None:
        raise typer.BadParameter(f"'{text}' is not a duration such as 90s, 30m, 1h or 7d")
    return int(match[1]) * UNITS[match[2]]


def _kids(directory: Path) -> list[str]:
    from libs.chassis.keys import PUBLIC

    try:
        names = [path.name for path in directory.iterdir()]
    except OSError as refused:
        raise _unusable(directory, refused) from None
    return sorted(name.removesuffix(PUBLIC) for name in names if name.endswith(PUBLIC))


def _unusable(directory: Path, refused: OSError) -> MemstreamError:
    return MemstreamError(
        f"cannot use {directory}: {refused.strerror}", hint="--key-dir or KEY_DIR names the directory of the keys"
    )
