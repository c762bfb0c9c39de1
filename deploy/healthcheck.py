"""A container's health: 0 while this replica serves. Ends the process after three failures of `/healthz` in a row.

Docker shows an unhealthy container but does not restart it; Kubernetes needs none of this, its probes ask directly.
"""

import os
import signal
import socket
import sys

PORT = int(os.environ.get("HTTP_PORT", "8080"))
FAILURES = "/tmp/liveness-failures"  # noqa: S108 - the container's own, in memory
FAILURES_ALLOWED = 3
TIMEOUT_S = 5


def main() -> int:
    if answers("/healthz"):
        remember(0)
        return 0 if answers("/readyz") else 1
    failures = remembered()
    if failures is None:
        return 1  # it has not answered yet: starting may take its time
    if failures + 1 < FAILURES_ALLOWED:
        remember(failures + 1)
    else:
        os.remove(FAILURES)  # noqa: PTH107
        os.kill(-1, signal.SIGKILL)  # all but this process and PID 1, which then ends, and the container is restarted
    return 1


# Plain sockets and files, run with `python -IS`: importing an HTTP client would cost more than everything here.


def answers(path: str) -> bool:
    """Whether a GET answers 200."""
    try:
        with socket.create_connection(("127.0.0.1", PORT), TIMEOUT_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


def remembered() -> int | None:
    """Failures in a row; None before the first success of this process."""
    try:
        with open(FAILURES) as file:  # noqa: PTH123
            return int(file.read())
    except FileNotFoundError:
        return None


def remember(failures: int) -> None:
    with open(FAILURES, "w") as file:  # noqa: PTH123
        file.write(str(failures))


if __name__ == "__main__":
    sys.exit(main())
