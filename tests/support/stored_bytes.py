"""Everything that an instance stores in its database and its broker."""

from redis import Redis

from tests.faults.stores import SQLite
from tests.security.instance import Instance


def wait_for_newest_turn(instance: Instance) -> None:
    """Wait until the last turn has ended."""
    row = instance.database.rows("SELECT id FROM chats_turn ORDER BY queued_at DESC LIMIT 1")[0]
    instance.wait_until_over(str(row["id"]))


def read_everything_stored(instance: Instance) -> bytes:
    """All bytes of the database and of the broker."""
    with Redis.from_url(instance.broker.url) as client:
        stored = b"".join(client.dump(key) or b"" for key in client.scan_iter())
    if isinstance(instance.database, SQLite):
        files = instance.folder.glob("palimpsest.sqlite3*")
        return stored + b"".join(path.read_bytes() for path in files)
    tables = instance.database.rows(
        "SELECT table_name AS t FROM information_schema.tables WHERE table_schema = 'public'"
    )
    for table in tables:
        rows = instance.database.rows(f'SELECT * FROM "{table["t"]}"')  # noqa: S608  # own tables
        stored += repr(rows).encode()
    return stored
