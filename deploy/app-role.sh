#!/bin/sh
# Runs once, when the database is created: creates the role of the product. It may read and write
# rows. It owns no table, so it can neither drop the ledger's triggers nor truncate.
set -eu
password=$(cat /run/secrets/app_password)
psql -v ON_ERROR_STOP=1 -v password="$password" -U "$POSTGRES_USER" -d "$POSTGRES_DB" <<'SQL'
CREATE ROLE palimpsest_app LOGIN PASSWORD :'password';
ALTER ROLE palimpsest_app SET lock_timeout = '5s';
ALTER ROLE palimpsest_app SET idle_in_transaction_session_timeout = '30s';
ALTER ROLE palimpsest_app SET statement_timeout = '30s';
GRANT CONNECT ON DATABASE palimpsest TO palimpsest_app;
GRANT USAGE ON SCHEMA public TO palimpsest_app;
ALTER DEFAULT PRIVILEGES FOR ROLE palimpsest_owner IN SCHEMA public
  GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO palimpsest_app;
ALTER DEFAULT PRIVILEGES FOR ROLE palimpsest_owner IN SCHEMA public
  GRANT USAGE, SELECT ON SEQUENCES TO palimpsest_app;
SQL
