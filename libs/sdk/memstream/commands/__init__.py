"""The client's own commands; each module stays light, because `memstream --help` loads all of them."""
