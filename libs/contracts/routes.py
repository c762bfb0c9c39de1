"""Which service owns which URL. The edge (Caddy, Ingress, the standalone process) routes by this table alone."""

import re

BASE = "/api/2.0/agents"
PERMISSIONS_BASE = "/api/agents/v1"
SESSION_STORES = "session-stores"
MEMORY_STORES = "memory-stores"
PIPELINES = "memory-pipelines"

_BASES = f"(?:{re.escape(BASE)}|{re.escape(PERMISSIONS_BASE)})"

# The first match wins: extractions hang below a session but are the distiller's.
ROUTES: tuple[tuple[str, str], ...] = (
    ("distiller", rf"^{_BASES}/session-stores/[^/]+/sessions/[^/]+/extractions$"),
    ("distiller", rf"^{_BASES}/memory-pipelines(?:[/:?].*)?$"),
    ("session", rf"^{_BASES}/session-stores(?:[/:?].*)?$"),
    ("memory", rf"^{_BASES}/memory-stores(?:[/:?].*)?$"),
    ("session", r"^/api/2\.0/preview/scim/v2/Me$"),
    ("session", r"^/\.well-known/databricks-config$"),
    ("session", r"^/(?:openapi|asyncapi)/session\.json$|^/docs/session$"),
    ("distiller", r"^/(?:openapi|asyncapi)/distiller\.json$|^/docs/distiller$"),
    ("memory", r"^/(?:openapi|asyncapi)/memory\.json$|^/docs/memory$"),
    ("session", r"^/ops/session(?:/.*)?$"),
    ("distiller", r"^/ops/distiller(?:/.*)?$"),
    ("memory", r"^/ops/memory(?:/.*)?$"),
)

_COMPILED = tuple((service, re.compile(pattern)) for service, pattern in ROUTES)


def owner_of(path: str) -> str | None:
    """The service that answers this path, or None."""
    return next((service for service, pattern in _COMPILED if pattern.match(path)), None)
