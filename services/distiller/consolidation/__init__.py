"""Keeps an actor's memory in shape: entries that overlap are merged, those that are too long are split.

Only a configured model does this. The built-in one has nothing to add: it finds the slot of a restatement by its words
when it writes.
"""
