"""Times on the wire: RFC 3339 in UTC with `Z` and 0 or 6 digits, which every published client can read."""

from datetime import UTC, datetime


def rfc3339(time: datetime) -> str:
    if time.tzinfo is not UTC:  # what comes from the database is
        time = time.astimezone(UTC)
    return time.isoformat()[: -len("+00:00")] + "Z"


def optional_rfc3339(time: datetime | None) -> str | None:
    return None if time is None else rfc3339(time)


def rfc3339_sql(time: str) -> str:
    """A `timestamptz` with 6 digits, as SQL."""
    return f"""to_char({time} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
