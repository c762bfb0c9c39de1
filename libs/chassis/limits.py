"""How many requests of one workspace a replica works on at once, so that no tenant takes all of it."""

from collections import Counter

from libs.chassis.errors import Exhausted


class Admission:
    def __init__(self, requests_per_workspace: int) -> None:
        self._most = requests_per_workspace
        self._under_way: Counter[int] = Counter()

    def enter(self, workspace_id: int) -> None:
        """Raises `Exhausted` when there are too many; else `leave` must follow."""
        if self._under_way[workspace_id] >= self._most:
            raise Exhausted(f"A workspace may have at most {self._most} requests at once here; nothing was written.")
        self._under_way[workspace_id] += 1

    def leave(self, workspace_id: int) -> None:
        self._under_way[workspace_id] -= 1
        if not self._under_way[workspace_id]:
            del self._under_way[workspace_id]
