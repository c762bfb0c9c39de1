"""Update masks: comma-separated paths. What is masked but absent from the body is cleared; what is not is ignored."""

from collections.abc import Collection

from libs.chassis.errors import InvalidParameter


def update_mask(mask: str | None, allowed: Collection[str]) -> set[str]:
    """The named paths; raises `InvalidParameter` for none, or for one that may not be changed."""
    paths = {path.strip() for path in (mask or "").split(",") if path.strip()}
    if not paths:
        raise InvalidParameter(f"update_mask is required; it may name {', '.join(sorted(allowed))}.")
    unknown = sorted(paths - set(allowed))
    if unknown:
        raise InvalidParameter(
            f"update_mask may name {', '.join(sorted(allowed))}; not {', '.join(path[:60] for path in unknown)}."
        )
    return paths
