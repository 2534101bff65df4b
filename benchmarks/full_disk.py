"""Runs the product on a full database: writes are refused with a reason, reads work.

`python -m benchmarks.full_disk` uses a separate data folder. SQLite rolls back the whole
transaction of a statement that finds no space, so a test in a transaction cannot do this.
"""

import os
from datetime import timedelta
from typing import Any

LONG = "ﷺ" * 3_900
PAGES = ("/", "/chats/list", "/settings/keys", "/search?q=word", "/chats/archive")


def main() -> None:
    """Set up, fill the database, write and read. Raises AssertionError if a check fails."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    os.environ["ALLOWED_HOSTS"] = "testserver"
    import django

    django.setup()
    from django.core.management import call_command

    from chats.ground import queue

    queue.publish_task = queue.keep_here
    call_command("setup", verbosity=0)
    play()


def play() -> None:
    """Write and read with a key and in a browser."""
    from django.contrib.auth.models import User
    from django.test import Client
    from django.utils import timezone

    from chats.models import ApiKey, Chat
    from chats.people import keys, sessions
    from project import probes

    alice = User.objects.create_user("alice")
    scopes = ["chats:read", "chats:write"]
    _, secret = keys.create_key(owner=alice, name="k", scopes=scopes, now=timezone.now())
    program, person = Client(headers={"Authorization": f"Bearer {secret}"}), Client()
    person.force_login(alice)
    made = program.post("/api/v1/chats", {}, content_type="application/json").json()
    Chat.objects.update(unread=True)
    session = person.session
    session[sessions.SEEN_AT] = (timezone.now() - timedelta(hours=1)).isoformat()
    session.save()
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(days=2))
    fill()
    path = f"/api/v1/chats/{made['id']}/messages"
    refused = program.post(path, {"text": LONG}, content_type="application/json")
    assert (refused.status_code, refused.json()["error"]["code"]) == (507, "storage_full")
    assert "disk" in refused.json()["error"]["message"]
    assert int(refused["Retry-After"]) > 0
    page = person.post(f"/chats/{made['id']}/messages", {"text": LONG})
    assert (page.status_code, "disk" in page.text) == (507, True)
    for address in ("/api/v1/chats", path, path):
        assert program.get(address).status_code == 200, address
    for address in (*PAGES, f"/chats/{made['id']}/"):
        assert person.get(address, follow=True).status_code == 200, address
    assert probes.FULL in Client().get("/readyz").json()["warnings"]


def fill() -> None:
    """Fill the database to its last page and limit it to its size."""
    from django.db import DatabaseError, connection

    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE filler (x BLOB)")
        limit = number(cursor, "page_count")
        cursor.execute(f"PRAGMA max_page_count = {limit}")
        for size in (400_000, 4_000, 40):
            try:
                while True:
                    cursor.execute("INSERT INTO filler VALUES (zeroblob(%s))", [size])
            except DatabaseError:
                continue


def number(cursor: Any, name: str) -> int:
    """The value of a pragma."""
    cursor.execute(f"PRAGMA {name}")
    return int(cursor.fetchone()[0])


if __name__ == "__main__":
    main()
