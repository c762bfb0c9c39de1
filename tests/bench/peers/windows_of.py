"""The closed loops of a peer, measured as ours are, in fewer windows."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from tests.bench.windows import FEWER, Step, side_by_side


async def tell(loads: Mapping[str, Sequence[Step]], window_s: float) -> None:
    """Measures and prints each load's window by its name."""
    found = await side_by_side(loads, window_s, windows=FEWER)
    print(json.dumps({name: asdict(window) for name, window in found.items()}))
