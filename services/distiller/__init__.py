"""The distiller: turns conversations into durable facts, one lane per pipeline and actor."""
