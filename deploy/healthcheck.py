"""A container's health: 0 while this replica serves. Ends the process after three failures of `/healthz` in a row.

Docker shows an unhealthy container but does not restart it; Kubernetes needs none of this, its probes ask directly.
"""

import os
import signal
import sys
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

BASE = f"http://127.0.0.1:{os.environ.get('HTTP_PORT', '8080')}"
FAILURES = Path("/tmp/liveness-failures")
FAILURES_ALLOWED = 3
TIMEOUT_S = 5


def main() -> int:
    if _answers("/healthz"):
        FAILURES.unlink(missing_ok=True)
        return 0 if _answers("/readyz") else 1
    failures = 1 + (len(FAILURES.read_text()) if FAILURES.exists() else 0)
    FAILURES.write_text("x" * failures)
    if failures >= FAILURES_ALLOWED:
        FAILURES.unlink()
        os.kill(-1, signal.SIGKILL)  # everything but this process and PID 1, which then ends and is restarted
    return 1


def _answers(path: str) -> bool:
    try:
        with urlopen(BASE + path, timeout=TIMEOUT_S) as answer:
            return bool(answer.status == 200)
    except (HTTPError, URLError, OSError):
        return False


if __name__ == "__main__":
    sys.exit(main())
