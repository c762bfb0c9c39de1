#!/bin/sh
# Makes .env beside docker-compose.yml: .env.example with a random password for every placeholder. Never overwrites.
set -eu
cd "$(dirname "$0")/.."
[ ! -e .env ] || { echo ".env is there already; remove it to make another (the volumes keep the old passwords)" >&2; exit 1; }
umask 077
while IFS= read -r line; do
    case $line in
    # A leading letter: NATS would read a password such as 12e45 as a number.
    *=change-me) line="${line%change-me}p$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" ;;
    esac
    printf '%s\n' "$line"
done <.env.example >.env.part
mv .env.part .env
echo "made .env"
