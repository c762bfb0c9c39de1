"""Starts services by fork, from a process that has imported everything: in a tenth of a second instead of three.

What runs is a service's own `__main__` with its own environment. Each request is a JSON line on stdin, each answer one
on stdout; a child that ended stays a zombie until it is asked for, so that its pid cannot name another process.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import signal
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from tests.support.kill_points import KillPoints

# Beside the services, what uvicorn imports only when it runs.
WARM = (
    *(f"services.{service}.app" for service in ("session", "distiller", "memory")),
    "uvicorn.lifespan.on",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
)


def serve() -> None:
    for module in WARM:
        importlib.import_module(module)
    gc.collect()
    gc.freeze()
    children: set[int] = set()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if "reap" in request:
                _, status = os.waitpid(request["reap"], 0)
                children.discard(request["reap"])
                answer = os.waitstatus_to_exitcode(status)
            else:
                answer = os.fork() or become(**request)
                children.add(answer)
            print(answer, flush=True)
    finally:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)


def become(service: str, environment: Mapping[str, str], log: str, kill_points: str | None) -> NoReturn:
    """The child: never returns into the loop of its parent. `kill_points`: the directory that arms them, if any."""
    status: Any = 1
    try:
        os.setsid()
        null, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for source, target in ((null, 0), (out, 1), (out, 2)):
            os.dup2(source, target)
        os.environ.clear()
        os.environ.update(environment)
        sys.argv = [f"services.{service}"]
        if kill_points is not None:
            KillPoints(Path(kill_points)).install()
        runpy.run_module(f"services.{service}", run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stderr.flush()
    os._exit(status if isinstance(status, int) else int(status is not None))


if __name__ == "__main__":
    serve()
