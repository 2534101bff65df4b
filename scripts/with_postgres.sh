#!/usr/bin/env bash
# Runs a command with PALIMPSEST_TEST_DATABASE_URL set to a temporary PostgreSQL server, which stops
# with the command. initdb refuses root, so root runs the server as the user postgres.
set -euo pipefail

bin=$(dirname "$(ls /usr/lib/postgresql/*/bin/initdb 2>/dev/null | sort -V | tail -1 || command -v initdb)")
folder=$(mktemp -d /tmp/palimpsest-pg.XXXXXX)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
as=()
if [ "$(id -u)" = 0 ]; then
  chown postgres "$folder"
  as=(runuser -u postgres --)
fi
cd /
stop() { "${as[@]}" "$bin/pg_ctl" -D "$folder/data" -m immediate stop >/dev/null 2>&1 || true; rm -rf "$folder"; }
trap stop EXIT
"${as[@]}" "$bin/initdb" -D "$folder/data" -U postgres -A trust -E UTF8 --no-sync >/dev/null
"${as[@]}" "$bin/pg_ctl" -D "$folder/data" -w -l "$folder/log" \
  -o "-c listen_addresses=127.0.0.1 -p $port -c unix_socket_directories=$folder -c fsync=off" start >/dev/null
cd "$OLDPWD"
PALIMPSEST_TEST_DATABASE_URL="postgres://postgres@127.0.0.1:$port/postgres" "$@"
