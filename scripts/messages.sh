#!/usr/bin/env bash
# Catalogues of translations: scripts/messages.sh update|check PYTHON
#
# `update` extracts the messages into locale/ and compiles them. `check` fails if that would change
# a catalogue, or if a message is missing, fuzzy or has other placeholders than the original.
set -euo pipefail
cd "$(dirname "$0")/.."
action=$1 python=$2
languages=(zh_Hans)

if ! command -v msgfmt >/dev/null; then
  [ -n "${PALIMPSEST_REQUIRE_SERVICES:-}" ] || [ "$action" = update ] || {
    echo "Translations are not checked: install gettext to do so."
    exit 0
  }
  echo "gettext is missing: apt-get install gettext"
  exit 1
fi

update() {
  local language domain
  for language in "${languages[@]}"; do
    for domain in django djangojs; do
      "$python" manage.py makemessages --verbosity 0 --locale "$language" --domain "$domain" \
        --no-location --no-obsolete --ignore "tests/*" --ignore "replay/*" --ignore "staticfiles/*" \
        --ignore "mutants/*" --ignore "data/*"
    done
  done
  find locale -name '*.po' -exec sh -c 'msgfmt --check --output-file "${1%.po}.mo" "$1"' _ {} \;
}

# Extraction writes the time of day into each catalogue.
same() { diff --ignore-matching-lines='^"POT-Creation-Date' "$1" "$2"; }

if [ "$action" = update ]; then
  update
  exit
fi

before=$(mktemp -d)
trap 'rm -rf locale && cp -a "$before/locale" locale && rm -rf "$before"' EXIT
cp -a locale "$before/"
update
failed=0
while read -r catalogue; do
  compiled=${catalogue%.po}.mo
  if ! same "$before/$catalogue" "$catalogue" >"$before/changes"; then
    echo "$catalogue is out of date: run “make messages” and translate the new messages."
    head -40 "$before/changes"
    failed=1
  elif [ ! -f "$before/$compiled" ] || ! same <(msgunfmt "$before/$compiled") <(msgunfmt "$compiled") >/dev/null; then
    echo "$compiled is out of date: run “make messages”."
    failed=1
  fi
  missing=$(msgattrib --untranslated --no-obsolete "$catalogue" | grep -c '^msgid' || true)
  fuzzy=$(msgattrib --only-fuzzy --no-obsolete "$catalogue" | grep -c '^msgid' || true)
  # The header counts as one message where there are any.
  if [ "$missing" -gt 0 ] || [ "$fuzzy" -gt 0 ]; then
    echo "$catalogue: messages that are missing or fuzzy:"
    msgattrib --untranslated --no-obsolete "$catalogue" | grep -A1 '^msgid' | head -20
    msgattrib --only-fuzzy --no-obsolete "$catalogue" | grep '^msgid' | head -20
    failed=1
  fi
done < <(find locale -name '*.po' | sort)
exit "$failed"
