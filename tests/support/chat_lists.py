"""The chat list of a page."""

import re

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext


def list_chat_ids(html: str) -> list[str]:
    """The ids of the chats in the list, in their order."""
    return re.findall(r'<li id="chat-([0-9a-f-]{36})"', html)


def find_next_page(html: str) -> str:
    """The address behind "Show more chats"."""
    found = re.search(r'<a class="btn btn--quiet btn--s" href="([^"]+)"', html)
    return found[1].replace("&amp;", "&") if found else ""


def explain_list_query(client: Client, address: str, **headers: str) -> str:
    """How the database reads the chats of a page."""
    with CaptureQueriesContext(connection) as heard:
        assert client.get(address, headers=headers or None).status_code == 200
    (sql,) = [q["sql"] for q in heard if "ORDER BY" in q["sql"] and 'FROM "chats_chat"' in q["sql"]]
    with connection.cursor() as cursor:
        explain = "EXPLAIN QUERY PLAN " if connection.vendor == "sqlite" else "EXPLAIN "
        cursor.execute(explain + sql.replace("%", "%%"))
        return "\n".join(str(row[-1]) for row in cursor.fetchall())
