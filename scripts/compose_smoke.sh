#!/bin/sh
# Builds and runs the stack of docker-compose.yml in a separate project and removes it at the end:
# secrets, first sign-in, a chat, a summary, two workers, a restart.
#   scripts/compose_smoke.sh
# Other base images: PYTHON_IMAGE, POSTGRES_IMAGE, REDIS_IMAGE. Another port: PALIMPSEST_PORT.
# KEEP=1 leaves the stack running. Secrets and data of this folder are not used.
set -eu

DOCKER=${DOCKER:-docker}
PYTHON=${PYTHON:-python3}
here=$(cd "$(dirname "$0")/.." && pwd)
place=$(mktemp -d)
export COMPOSE_PROJECT_NAME="${COMPOSE_PROJECT_NAME:-palimpsest-smoke-$$}"
export PALIMPSEST_PORT="${PALIMPSEST_PORT:-18420}"
export PALIMPSEST_PUBLIC_URL=https://chat.example.org
# Not `latest`: a running installation on this machine keeps its image.
export PALIMPSEST_IMAGE="palimpsest:smoke-$$"

say() { printf '\n== %s\n' "$*"; }
# Only long-running services are named: `--wait` fails for a service that ends, such as the setup.
up() { compose up --detach --wait --wait-timeout 300 "$@" web worker background beat; }
compose() { "$DOCKER" compose --project-directory "$place" -f "$place/docker-compose.yml" "$@"; }
client() { "$PYTHON" "$place/scripts/compose_client.py" "http://127.0.0.1:$PALIMPSEST_PORT" "$place/key" "$@"; }

finish() {
    code=$?
    if [ "$code" -ne 0 ]; then
        say "It failed; the last lines of each container"
        compose logs --tail 30 || true
    fi
    if [ -n "${KEEP:-}" ]; then
        say "Left running; to remove it:"
        echo "$DOCKER compose -p $COMPOSE_PROJECT_NAME down --volumes"
        echo "$DOCKER image rm $PALIMPSEST_IMAGE"
        echo "rm -r $place"
    else
        compose down --volumes --remove-orphans --timeout 10 || true
        "$DOCKER" image rm "$PALIMPSEST_IMAGE" >/dev/null || true
        rm -rf "$place"
    fi
    exit "$code"
}

"$DOCKER" compose version >/dev/null || { echo "This needs Docker with compose." >&2; exit 1; }
git -C "$here" archive HEAD | tar -x -C "$place"
trap finish EXIT
trap 'exit 130' INT TERM

say "Make the secrets"
sh "$place/deploy/make-secrets.sh"
test "$(find "$place/deploy/secrets" -prune -perm 700)" || { echo "The folder of secrets is open." >&2; exit 1; }

say "Build and start; every service becomes healthy"
up --build

say "Sign in with the link that the setup printed"
link=$(compose logs --no-log-prefix setup | sed -n 's|.*\(/login/link/[^ ]*\).*|\1|p' | tail -1)
test "$link" || { echo "The setup printed no sign-in link." >&2; exit 1; }
client sign-in "$link"

say "A chat and its reply"
client chat "The bridge opens at six." 1

say "A summary"
client summary

say "Another start recreates no container and logs no second sign-in link"
running=$(compose ps --quiet | sort)
up
test "$(compose ps --quiet | sort)" = "$running" || { echo "Containers were recreated." >&2; exit 1; }
test "$(compose logs --no-log-prefix setup | grep -c '/login/link/')" -eq 1

say "Two workers"
up --scale worker=2 --no-recreate
client workers 2
client chat "And when does it close?" 2

say "A restart loses nothing"
compose restart
up --scale worker=2 --no-recreate
client chat "Thank you." 3

say "Everything worked"
