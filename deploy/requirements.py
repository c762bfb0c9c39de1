"""Prints the part of `requirements.lock` that a server in a container needs: no tests, no linters, no embedded servers.

`.venv/bin/python deploy/requirements.py > deploy/requirements.lock`, whenever the lock changes; a contract test compares.
"""

import re
import sys
from collections.abc import Iterator
from importlib.metadata import requires
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
OURS = {"memstream", "memstream-server"}
BUILD = {"setuptools"}  # makes our own packages, then leaves the image
PYTHONS = ("3.11", "3.13")


def main() -> None:
    sys.stdout.write(text())


def text() -> str:
    wanted = closure("memstream-server") - OURS | BUILD
    blocks = {name: block for name, block in _blocks((ROOT / "requirements.lock").read_text()) if name in wanted}
    if missing := wanted - blocks.keys():
        raise SystemExit(f"not in requirements.lock: {', '.join(sorted(missing))}")
    return "# Made by deploy/requirements.py from requirements.lock.\n" + "".join(blocks.values())


def closure(distribution: str) -> set[str]:
    """Every distribution that this one needs on Linux, itself included."""
    seen: dict[str, set[str]] = {}

    def visit(name: str, extras: set[str]) -> None:
        if name in seen and extras <= seen[name]:
            return
        seen.setdefault(name, set()).update(extras)
        for line in requires(name) or []:
            requirement = Requirement(line)
            if _applies(requirement, extras):
                visit(_normal(requirement.name), set(requirement.extras))

    visit(distribution, set())
    return set(seen)


def _applies(requirement: Requirement, extras: set[str]) -> bool:
    if requirement.marker is None:
        return True
    environments = (
        {"extra": extra, "python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux"}
        for extra in ("", *extras)
        for python in PYTHONS
    )
    return any(requirement.marker.evaluate(environment) for environment in environments)


def _blocks(lock: str) -> Iterator[tuple[str, str]]:
    for block in re.split(r"^(?=[A-Za-z0-9])", lock, flags=re.MULTILINE):
        if "==" in block:
            yield _normal(block.partition("==")[0]), block


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


if __name__ == "__main__":
    main()
