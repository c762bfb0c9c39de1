"""Who owns a failure decides what happens to the lane."""


class LaneFailure(Exception):
    """The lane's: it tries again by itself a few times, then it is parked with this reason."""


class Truncated(LaneFailure):
    """The answer to so many lines was cut at the output limit: they fit in smaller portions."""

    def __init__(self, reason: str, lines: int = 0) -> None:
        super().__init__(reason)
        self.lines = lines


class ProviderFailure(Exception):
    """The provider's: nothing is wrong with the lane; it waits until the endpoint answers again."""

    def __init__(self, reason: str, provider: str, retry_after_s: float = 30.0) -> None:
        super().__init__(reason)
        self.provider = provider
        self.retry_after_s = retry_after_s


class OverBudget(Exception):
    """The pipeline has spent its tokens of the day: the lane waits until the next one, which is no failure."""


class Fenced(Exception):
    """The lease was lost to another worker: nothing of this one's work counts."""
