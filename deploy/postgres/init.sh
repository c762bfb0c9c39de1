#!/bin/sh
# Run once, by the first start of an empty volume: a database and a role for each service, and nobody else in it.
# Passwords come from the environment (docker-compose.yml takes them from .env).

make_database() { # service, password
    psql -v ON_ERROR_STOP=1 --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres \
        -v service="$1" -v password="$2" <<'SQL'
create role :"service" login password :'password';
create database :"service" owner :"service";
revoke all on database :"service" from public;
SQL
}

make_database session "${DATABASE_PASSWORD_SESSION:?is required}"
make_database distiller "${DATABASE_PASSWORD_DISTILLER:?is required}"
make_database memory "${DATABASE_PASSWORD_MEMORY:?is required}"

psql -v ON_ERROR_STOP=1 --quiet --username "${POSTGRES_USER:-postgres}" --dbname postgres <<'SQL'
revoke connect on database postgres from public;
revoke connect on database template1 from public;
SQL
# Only a superuser may install it; the memory service's migrations use it for embeddings.
psql -v ON_ERROR_STOP=1 --quiet --username "${POSTGRES_USER:-postgres}" --dbname memory -c 'create extension vector'
