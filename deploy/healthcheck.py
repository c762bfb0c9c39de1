"""A container's health: 0 while this replica serves. Ends the process after three failures of `/healthz` in a row.

Docker shows an unhealthy container but does not restart it; Kubernetes needs none of this, its probes ask directly.
"""

import os
import signal
import socket
import sys

PORT = int(os.environ.get("HTTP_PORT", "8080"))
FAILURES = "/tmp/liveness-failures"
FAILURES_ALLOWED = 3
TIMEOUT_S = 5


def main() -> int:
    if answers("/healthz"):
        if os.path.exists(FAILURES):
            os.unlink(FAILURES)
        return 0 if answers("/readyz") else 1
    with open(FAILURES, "a+") as file:
        file.write("x")
        failures = file.tell()
    if failures >= FAILURES_ALLOWED:
        os.unlink(FAILURES)
        os.kill(-1, signal.SIGKILL)  # all but this process and PID 1, which then ends, and the container is restarted
    return 1


def answers(path: str) -> bool:
    """Whether a GET answers 200. A plain socket: an HTTP client takes four times as long to import as this to run."""
    try:
        with socket.create_connection(("127.0.0.1", PORT), TIMEOUT_S) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            return connection.recv(12) == b"HTTP/1.1 200"
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(main())
