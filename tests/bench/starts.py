"""What it takes until the client and the command line are there, the interpreter's own start included.

In processor time, which is what a user waits for on a machine with nothing else to do.
"""

import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.bench.report import Row, at_most

TIMES = 7
STARTS = (
    ("start of `import memstream`", ("-c", "import memstream"), 0.25),
    ("start of `from memstream import AgentKitClient`", ("-c", "from memstream import AgentKitClient"), 0.25),
    ("start of `memstream --help`", (str(Path(sys.executable).parent / "memstream"), "--help"), 0.4),
)


def start_rows() -> list[Row]:
    alone = _took_s(("-c", "pass"))
    note = f"processor time, median of {TIMES} processes; the interpreter alone {alone:.2f} s"
    return [Row(name, "s", _took_s(arguments), None, at_most(target), note) for name, arguments, target in STARTS]


def _took_s(arguments: Sequence[str]) -> float:
    took = []
    for _ in range(TIMES):
        before = _used_s()
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        took.append(_used_s() - before)
    return median(took)


def _used_s() -> float:
    """By all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
