"""What the services say to each other and to the world: shapes, names and limits, without any driver."""
