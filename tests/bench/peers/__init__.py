"""Programs that measure a peer, run by `tests.bench.peer` in an environment of their own: build/peers.

Each takes the dsn of an empty database and its sizes, and prints one line of JSON. They import nothing of ours but what
needs the standard library only.
"""
