#!/bin/sh
# `memstream` beside the signing keys: makes the first key, runs the command, then shows the services the public halves.
# The services mount PUBLIC_KEY_DIR alone, so that none of them can sign.
set -eu
: "${KEY_DIR:=/keys}" "${PUBLIC_KEY_DIR:=/public-keys}"
export KEY_DIR

first=$(find "$KEY_DIR" -name '*.public.pem' | head -n 1)
[ -n "$first" ] || memstream keys add >/dev/null

status=0
[ $# -eq 0 ] || memstream "$@" || status=$?

for public in "$KEY_DIR"/*.public.pem; do
    name=${public##*/}
    if [ ! -e "$PUBLIC_KEY_DIR/$name" ]; then
        cp "$public" "$PUBLIC_KEY_DIR/.$name.part"
        chmod 444 "$PUBLIC_KEY_DIR/.$name.part"
        mv "$PUBLIC_KEY_DIR/.$name.part" "$PUBLIC_KEY_DIR/$name"
    fi
done
for public in "$PUBLIC_KEY_DIR"/*.public.pem; do
    [ -e "$KEY_DIR/${public##*/}" ] || rm -f "$public"
done
exit "$status"
