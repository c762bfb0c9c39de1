#!/bin/sh
# Brings each service's database to its newest schema, in the order of an upgrade. Safe to repeat.
set -eu
for service in memory distiller session; do
    name=DATABASE_URL_$(echo "$service" | tr '[:lower:]' '[:upper:]')
    url=$(printenv "$name")
    DATABASE_URL=$url python -m "services.$service" migrate
    echo "$service: migrated"
done
