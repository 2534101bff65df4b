"""Formats events of the ledger for other systems: as native lines, or as OCSF events.

The native format is authoritative: the hashed line with its id and both hashes. An OCSF event has
the same data under `unmapped`, and the required fields of its class are derived from it.
"""

import json
from collections.abc import Mapping
from typing import Any

from contextpolicy import ledger
from contextpolicy.models import AuditEvent

ENVELOPE = "palimpsest.audit/1"
VERSION = "1.3.0"
API_ACTIVITY, ACCOUNT_CHANGE, AUTHENTICATION, ENTITY_MANAGEMENT = 6003, 3001, 3002, 3004
CLASS_NAMES = {
    API_ACTIVITY: "API Activity",
    ACCOUNT_CHANGE: "Account Change",
    AUTHENTICATION: "Authentication",
    ENTITY_MANAGEMENT: "Entity Management",
}
CATEGORIES = {
    3: (3, "Identity & Access Management"),
    6: (6, "Application Activity"),
}
# The OCSF class of an event, by its type or the first part of it; all others are API activity.
CLASSES: Mapping[str, int] = {
    "api_key.used": AUTHENTICATION,
    "login": AUTHENTICATION,
    "logout": AUTHENTICATION,
    "api_key": ACCOUNT_CHANGE,
    "password": ACCOUNT_CHANGE,
    "role": ACCOUNT_CHANGE,
    "user": ACCOUNT_CHANGE,
    "chat": ENTITY_MANAGEMENT,
    "hold": ENTITY_MANAGEMENT,
    "model": ENTITY_MANAGEMENT,
    "policy": ENTITY_MANAGEMENT,
    "provider": ENTITY_MANAGEMENT,
    "skill": ENTITY_MANAGEMENT,
    "team": ENTITY_MANAGEMENT,
    "webhook": ENTITY_MANAGEMENT,
}
OTHER = (99, "Other")
# The OCSF activity, by class and the second part of the type. 3004 and 6003 share their numbers.
DEEDS: Mapping[int, Mapping[str, tuple[int, str]]] = {
    AUTHENTICATION: {
        "succeeded": (1, "Logon"),
        "used": (1, "Logon"),
        "failed": (1, "Logon"),
        "throttled": (1, "Logon"),
    },
    ACCOUNT_CHANGE: {"created": (1, "Create"), "revoked": (6, "Delete")},
}
CHANGES: Mapping[str, tuple[int, str]] = {
    "created": (1, "Create"),
    "imported": (1, "Create"),
    "placed": (1, "Create"),
    "read": (2, "Read"),
    "exported": (2, "Read"),
    "opened": (2, "Read"),
    "downloaded": (2, "Read"),
    "changed": (3, "Update"),
    "deleted": (4, "Delete"),
    "erased": (4, "Delete"),
    "released": (4, "Delete"),
}
FAILED = frozenset({"failed", "throttled", "rejected"})


def format_native_line(event: AuditEvent) -> str:
    """Return an event as one native line: the hashed data, its id and both hashes."""
    return format_ascii_json(build_native_event(event))


def format_ocsf_line(event: AuditEvent) -> str:
    return format_ascii_json(build_ocsf_event(event))


def build_native_event(event: AuditEvent) -> dict[str, Any]:
    """Return an event in the native format: the hashed data, its schema, id and both hashes."""
    hashed: dict[str, Any] = json.loads(ledger.format_event_line(event))
    return {
        "schema": ENVELOPE,
        "id": f"{event.scope}#{event.seq}",
        **hashed,
        "previous_hash": event.previous_hash,
        "hash": event.hash,
    }


def build_ocsf_event(event: AuditEvent) -> dict[str, Any]:
    """Return an event as an OCSF event of its class, with the native event under `unmapped`."""
    about, _, action = event.type.partition(".")
    uid = CLASSES.get(event.type) or CLASSES.get(about, API_ACTIVITY)
    number, name = map_ocsf_activity(uid, event.type, action)
    category, category_name = CATEGORIES[uid // 1000]
    has_failed = action in FAILED
    user = {"uid": event.actor, "name": event.actor}
    data: dict[str, Any] = {
        "category_uid": category,
        "category_name": category_name,
        "class_uid": uid,
        "class_name": CLASS_NAMES[uid],
        "activity_id": number,
        "activity_name": name,
        "type_uid": uid * 100 + number,
        "time": int(event.at.timestamp() * 1000),
        "severity_id": 2 if has_failed else 1,
        "status_id": 2 if has_failed else 1,
        "message": event.type,
        "metadata": {
            "version": VERSION,
            "product": {"name": "Palimpsest", "vendor_name": "Palimpsest"},
            "uid": f"{event.scope}#{event.seq}",
            "event_code": event.type,
        },
        "actor": {"user": user},
        "unmapped": build_native_event(event),
    }
    if uid in {AUTHENTICATION, ACCOUNT_CHANGE}:
        concerned = event.data.get("user")
        data["user"] = {"uid": f"user:{concerned}"} if concerned else user
    elif uid == ENTITY_MANAGEMENT:
        named = event.data.get(about) or event.chat_id or event.scope
        data["entity"] = {"type": about, "uid": str(named)}
    else:
        data["api"] = {"operation": event.type}
        data["src_endpoint"] = {"name": "palimpsest"}
    return data


def map_ocsf_activity(uid: int, kind: str, action: str) -> tuple[int, str]:
    """Return the number and the name of the OCSF activity."""
    if kind == "logout.succeeded":
        return 2, "Logoff"
    if kind == "password.changed":
        return 3, "Password Change"
    return DEEDS.get(uid, CHANGES).get(action, OTHER)


def format_ascii_json(values: Mapping[str, Any]) -> str:
    """Return an object as one line of ASCII JSON."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
