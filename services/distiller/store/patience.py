"""How long a lane is waited for that somebody else holds, as an erasure does. Then `Contended`: tried again later.

Several at once wait a second, so that load alone does not break them up; one alone not for long, for whoever waits
keeps one of a few connections, and the consumer's next messages from being fetched.
"""

PATIENCE_MS = 1000
ALONE_PATIENCE_MS = 300


def patience(lanes: str, *, several_ms: int = PATIENCE_MS, one_ms: int = ALONE_PATIENCE_MS) -> str:
    """Sets it within a statement, before anything is locked; `lanes` is an array with an element for each of them."""
    waited = f"case when cardinality({lanes}) > 1 then '{several_ms}' else '{one_ms}' end"
    return f"patience as (select set_config('lock_timeout', {waited}, true))"
