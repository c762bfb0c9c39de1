"""HTTP: from a request to one call of the store, and from what it gives to the contract's JSON."""
