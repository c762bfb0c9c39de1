#!/bin/sh
# Makes .env beside docker-compose.yml: .env.example with a random password for every placeholder. Never overwrites.
# An argument names another file.
set -eu
root=$(dirname "$0")/..
file=${1:-$root/.env}
[ ! -e "$file" ] || { echo "$file is there already: it holds the passwords of your volumes" >&2; exit 1; }
umask 077
while IFS= read -r line; do
    case $line in
    # A leading letter: NATS would read a password such as 12e45 as a number.
    *=change-me) line="${line%change-me}p$(od -An -N24 -tx1 /dev/urandom | tr -d ' \n')" ;;
    esac
    printf '%s\n' "$line"
done <"$root/.env.example" >"$file.part"
mv "$file.part" "$file"
echo "made $file"
