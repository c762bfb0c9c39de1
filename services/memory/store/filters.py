"""Which entries of an actor are meant, in SQL and for entries at hand."""

from dataclasses import dataclass
from typing import Any

from services.memory.domain import Entry, prefix_end


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entries of an actor; `path` is in every session, `session_id` excludes entries without one."""

    path: str | None = None
    path_prefix: str | None = None
    session_id: str | None = None

    def fits(self, entry: Entry) -> bool:
        """As `sql`, for entries at hand."""
        return (
            (self.path is None or entry.path == self.path)
            and (self.path is not None or self.session_id is None or entry.session_id == self.session_id)
            and (self.path_prefix is None or entry.path.startswith(self.path_prefix))
        )

    def sql(self, arguments: list[Any], column: str = "e") -> str:
        """Conditions to add to a statement, whose further arguments go to `arguments`."""
        conditions = []
        if self.path is not None:
            arguments.append(self.path)
            conditions.append(f"{column}.path = ${len(arguments)}")
        elif self.session_id is not None:
            arguments.append(self.session_id)
            conditions.append(f"{column}.session_id = ${len(arguments)}")
        if self.path_prefix is not None:
            arguments.append(self.path_prefix)
            conditions.append(f"{column}.path >= ${len(arguments)}")
            end = prefix_end(self.path_prefix)
            if end is not None:
                arguments.append(end)
                conditions.append(f"{column}.path < ${len(arguments)}")
        return "".join(f" and {condition}" for condition in conditions)
