#!/bin/sh
# Runs once, when the database is made: the role that the product uses. It may read and write rows;
# it owns no table, so it can neither drop the ledger's triggers nor truncate.
set -eu
password=$(cat /run/secrets/app_password)
psql -v ON_ERROR_STOP=1 -v password="$password" -U "$POSTGRES_USER" -d "$POSTGRES_DB" <<'SQL'
CREATE ROLE palimpsest_app LOGIN PASSWORD :'password';
GRANT CONNECT ON DATABASE palimpsest TO palimpsest_app;
GRANT USAGE ON SCHEMA public TO palimpsest_app;
ALTER DEFAULT PRIVILEGES FOR ROLE palimpsest_owner IN SCHEMA public
  GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO palimpsest_app;
ALTER DEFAULT PRIVILEGES FOR ROLE palimpsest_owner IN SCHEMA public
  GRANT USAGE, SELECT ON SEQUENCES TO palimpsest_app;
SQL
