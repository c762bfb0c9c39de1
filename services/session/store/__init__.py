"""All SQL of the session service, a file for each thing that it is about."""
