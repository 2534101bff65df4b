#!/bin/sh
# Creates the secrets for docker-compose.yml once; existing files are kept.
set -eu
cd "$(dirname "$0")"
umask 077
mkdir -p secrets
random() { python3 -c 'import secrets; print(secrets.token_urlsafe(48))'; }
keep() { [ -s "secrets/$1" ] || cat > "secrets/$1"; }
random | keep secret_key
python3 -c 'import base64, os; print(base64.urlsafe_b64encode(os.urandom(32)).decode())' | keep encryption_key
random | keep postgres_password
random | keep app_password
printf 'postgres://palimpsest_owner:%s@postgres:5432/palimpsest\n' "$(cat secrets/postgres_password)" | keep owner_url
printf 'postgres://palimpsest_app:%s@postgres:5432/palimpsest\n' "$(cat secrets/app_password)" | keep app_url
# The containers read each file as another user; on this machine only the owner can open the folder.
chmod 0644 secrets/*
chmod 0700 secrets
# PostgreSQL's container runs this script as another user too. With umask 077 it could not read it.
chmod a+rx app-role.sh
