"""Time zone, appearance and language of a user's pages, stored with the account.

A session caches them, so that most requests need no query. A full page load reads the account
again, so a change made in one browser reaches the user's other browsers on their next page.
"""

import zoneinfo
from datetime import UTC, tzinfo
from functools import cache

from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.sessions.backends.base import SessionBase

from chats.models import AccountSettings

# Keys of the session: the browser's zone that was stored last, the chosen zone, the appearance,
# the chosen language.
STORED, CHOSEN, APPEARANCE, LANGUAGE = "time_zone", "chosen_zone", "appearance", "language"
DEFAULTS = {CHOSEN: "", APPEARANCE: AccountSettings.Appearance.SYSTEM, LANGUAGE: ""}


@cache
def list_time_zones() -> tuple[str, ...]:
    """Return the names of the system's regional time zones, such as `Europe/Paris`, sorted."""
    names = zoneinfo.available_timezones()
    return tuple(sorted(name for name in names if "/" in name and not name.startswith("Etc/")))


def load_account_settings(user: AbstractBaseUser) -> AccountSettings:
    """Return the stored settings of an account, or unsaved defaults."""
    found = AccountSettings.objects.filter(owner_id=user.pk).first()
    return found or AccountSettings(owner_id=user.pk)


def save_account_settings(
    *,
    user: AbstractBaseUser,
    session: SessionBase,
    appearance: str,
    chosen_zone: str,
    language: str,
) -> None:
    """Store the page settings. An empty zone or language follows the browser."""
    values: dict[str, object] = {
        "appearance": appearance,
        "time_zone_chosen": bool(chosen_zone),
        "language": language,
    }
    if chosen_zone:
        values["time_zone"] = chosen_zone
    AccountSettings.objects.update_or_create(owner_id=user.pk, defaults=values)
    refresh_session(user=user, session=session)
    # The browser's zone is stored again with the next page.
    session.pop(STORED, None)


def refresh_session(*, user: AbstractBaseUser, session: SessionBase) -> None:
    """Update the session's cached settings from the account."""
    account = load_account_settings(user)
    values = {
        CHOSEN: account.time_zone if account.time_zone_chosen else "",
        APPEARANCE: account.appearance,
        LANGUAGE: account.language,
    }
    for key, value in values.items():
        if session.get(key, DEFAULTS[key]) != value:
            session[key] = value


def resolve_session_zone(*, session: SessionBase, browser: str) -> tzinfo:
    """Return the time zone for a session's pages: the chosen one, else the browser's, else UTC."""
    try:
        return zoneinfo.ZoneInfo(session.get(CHOSEN) or browser)
    except (KeyError, ValueError, OSError):
        # The browser sent no zone, or one that this machine does not know: ZoneInfo reads files by
        # name.
        return UTC


def remember_zone(*, user: AbstractBaseUser, session: SessionBase, zone: str) -> None:
    """Store the browser's time zone with the account, once per change in a session.

    A zone that the user chose in the settings is not replaced.
    """
    if session.get(CHOSEN) or session.get(STORED) == zone:
        return
    changed = AccountSettings.objects.filter(owner_id=user.pk, time_zone_chosen=False)
    if not changed.update(time_zone=zone):
        AccountSettings.objects.get_or_create(owner_id=user.pk, defaults={"time_zone": zone})
    session[STORED] = zone
