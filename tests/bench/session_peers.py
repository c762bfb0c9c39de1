"""What keeps conversations in Postgres without a service: appends and reloads on the same server in the same run."""

from collections.abc import Mapping

from tests.bench.payload import ALONE, CLIENTS
from tests.bench.peer import measured
from tests.bench.report import Row, Target, at_least
from tests.bench.stand import Stand
from tests.bench.windows import Window

PROGRAMS = {"SQLAlchemySession": "sqlalchemy_session", "AsyncPostgresSaver": "postgres_saver"}
TARGETS: dict[tuple[str, str, int], Target] = {
    ("append", "SQLAlchemySession", 8): at_least(2.5),
    ("append", "AsyncPostgresSaver", 8): at_least(4),
    **{("reload", peer, clients): at_least(2) for peer in PROGRAMS for clients in (8, 32)},
}

Peers = Mapping[str, Mapping[str, Window]]


async def session_peers(stand: Stand, window_s: float) -> Peers:
    """The windows of each peer, by operation and clients as in `append 8`."""
    found = {peer: await measured(program, stand.peers_dsn, str(window_s)) for peer, program in PROGRAMS.items()}
    return {peer: {load: Window(**window) for load, window in loads.items()} for peer, loads in found.items()}


def peer_rows(operation: str, what: str, ours: Mapping[str, Window], peers: Peers) -> list[Row]:
    """`ours` by the number of clients; `what` is the operation as the rows call it."""
    rows = []
    for peer, loads in peers.items():
        for clients, how in (*((clients, "") for clients in CLIENTS), (ALONE, " alone")):
            theirs, window = loads.get(f"{operation} {clients}{how}"), ours[f"{clients}"]
            if theirs is None:
                continue
            rows.append(
                Row(
                    f"{what}, {clients} client{'s' * (clients > 1)}, against {peer}{how}",
                    "/s",
                    window.per_s,
                    theirs.per_s,
                    None if how else TARGETS.get((operation, peer, clients)),
                    f"ours over HTTP, the peer in process with a pool of 8; p50 {window.p50_ms:.1f} ms against "
                    f"{theirs.p50_ms:.1f}",
                )
            )
    return rows
