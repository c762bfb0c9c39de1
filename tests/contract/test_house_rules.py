"""Rules of the design that are found by reading the source; `make lint` runs this file."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FASTSTREAM_MAY_BE_IN = {"libs/chassis/bus.py", "libs/chassis/delivery.py", "libs/chassis/app.py"}
MIGRATIONS = re.compile(r"(libs/chassis|services/\w+)/migrations/")


def sources(*suffixes: str) -> Iterator[tuple[str, str]]:
    for top in ("libs", "services"):
        for path in sorted((ROOT / top).rglob("*")):
            if path.suffix in suffixes and "build" not in path.parts:
                yield str(path.relative_to(ROOT)), path.read_text()


def places(pattern: str, *suffixes: str) -> list[str]:
    wanted = re.compile(pattern, re.IGNORECASE | re.MULTILINE)
    return [name for name, text in sources(*suffixes) if wanted.search(text)]


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"skip\s+locked", "rows are found by a plain select and claimed by compare-and-set"),
        (r"clock_timestamp", "time is a parameter, so that the schema can be distributed"),
        (r"\boffset\s+(\$|[1-9]|\{|:)", "pages go by seek; `offset 0` only keeps a subquery as it is"),
        (r"\bstatement_timestamp\b", "time is a parameter, so that the schema can be distributed"),
    ],
)
def test_sql_stays_portable(pattern: str, why: str) -> None:
    assert places(pattern, ".py", ".sql") == [], why


def test_no_cancellation_is_swallowed() -> None:
    """Python 3.11's `wait_for` returns when what it waits for ends while it is cancelled, and the task goes on."""
    assert places(r"\basyncio\.wait_for\(", ".py") == []


def test_faststream_is_met_in_the_chassis_only() -> None:
    found = set(places(r"^\s*(from|import) faststream\b", ".py"))

    assert found <= FASTSTREAM_MAY_BE_IN


def test_what_is_sent_to_memory_is_made_in_one_place() -> None:
    assert places(r"(?<!class )\bMemoriesDistilled\((?!\))", ".py") == ["services/distiller/domain/batches.py"]


def test_alembic_is_met_in_migrations_only() -> None:
    found = places(r"^\s*(from|import) (alembic|sqlalchemy)\b", ".py")

    assert [name for name in found if not MIGRATIONS.match(name)] == []


def test_a_service_that_serves_loads_no_alembic() -> None:
    code = (
        "import sys, services.session.app, services.distiller.app, services.memory.app, services.standalone.app\n"
        "print([name for name in ('alembic', 'sqlalchemy') if name in sys.modules])"
    )

    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert answer.stdout.strip() == "[]", answer.stderr


def test_everything_kept_is_text() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    names = [name.decode() for name in listed.split(b"\0") if name]

    assert [name for name in names if b"\0" in (ROOT / name).read_bytes()] == []


def test_nothing_names_a_package_registry() -> None:
    files = [*ROOT.glob("*.lock"), *ROOT.glob("*.toml"), ROOT / "Makefile", *ROOT.glob("deploy/Dockerfile*")]

    for path in files:
        assert not re.search(r"index-url|find-links|trusted-host|https?://\S*/simple\b", path.read_text()), path
