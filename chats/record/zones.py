"""The time zones of users, and of the dates in a branch's prompts."""

from datetime import UTC, datetime, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

from chats.models import AccountSettings, Branch
from speed import prepared

DEFAULT = "UTC"
OWN_ZONE = prepared.Select(
    lambda at: AccountSettings.objects.filter(owner=at("owner")).values_list("time_zone")
)


def get_branch_zone(branch: Branch) -> str:
    """Return the name of a branch's time zone: the stored one, else its owner's, else UTC.

    A branch stores the zone of its first prompt or summary under a policy with dates
    (`freeze_zone`). The days in its prompts therefore do not change when its owner travels.
    """
    return str(branch.time_zone or get_account_zone(branch.chat.owner_id))


def get_account_zone(owner_id: int) -> str:
    """Return the name of a user's time zone: the chosen one, else the browser's, else UTC."""
    return next((zone for (zone,) in OWN_ZONE.tuples(owner=owner_id)), "") or DEFAULT


def convert_to_account_zone(owner_id: int, at: datetime) -> datetime:
    """Return a time in a user's time zone, for the days that a question mentions."""
    return convert_to_zone(get_account_zone(owner_id), at)


def freeze_zone(branch: Branch, *, zone: str) -> None:
    """Store the zone of a branch's first prompt or summary with dates.

    Later calls have no effect.
    """
    if zone and not branch.time_zone:
        Branch.objects.filter(pk=branch.pk, time_zone="").update(time_zone=zone)
        branch.time_zone = zone


def format_local_day(zone: str, at: datetime) -> str:
    """Return the ISO date of a time in a time zone, or in UTC if the zone is unknown here."""
    return convert_to_zone(zone, at).date().isoformat()


def convert_to_zone(zone: str, at: datetime) -> datetime:
    """Return a time in a time zone, or in UTC if the zone is unknown here."""
    return at.astimezone(_load_zone(zone))


@cache
def _load_zone(zone: str) -> tzinfo:
    try:
        return ZoneInfo(zone)
    except (KeyError, ValueError, OSError):
        # The name came from a browser, and this machine may have an older time zone database.
        return UTC
