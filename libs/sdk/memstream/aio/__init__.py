"""The asynchronous client: the classes of `memstream`, under the same names, with methods to await.

`memstream.AsyncAgentKitClient` is the entrance. The blocking modules are made from the ones here by `generate.py`.
"""
