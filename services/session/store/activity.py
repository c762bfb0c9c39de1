"""Which sessions were active last. The index holds tens of seconds, so that the appends of a turn leave it alone."""


def active_in(time: str) -> str:
    """The ten seconds that a time lies in, as `sessions.active_in` has them: SQL."""
    return f"date_bin('10 seconds', {time}::timestamptz, '2000-01-01T00:00:00Z'::timestamptz)"
