"""`DATABASE_URL`: every character of a password, options of libpq, refusals without a secret."""

from pathlib import Path
from typing import Any, cast

import pytest
from psycopg import pq

from project import database_url
from project.env import Misconfigured

SECRETS = [
    "s#cret",
    "s/cret",
    "s?cret",
    "s@cret",
    "s:cret",
    "p%23w",
    "a/b?c#d@e:f",
    "ä ö",
    "p@h?x=y",
    "%",
    "a%zz",
]


def database(url: str, monkeypatch: pytest.MonkeyPatch, **more: str) -> dict[str, Any]:
    """The settings for an address."""
    monkeypatch.setenv("DATABASE_URL", url)
    for name, value in more.items():
        monkeypatch.setenv(name, value)
    return cast(dict[str, Any], database_url.build_database_settings(Path("/nowhere")))


@pytest.mark.parametrize("secret", SECRETS)
def test_a_password_may_have_any_character(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = database(f"postgres://app:{secret}@db.example:6543/chats", monkeypatch)
    expected = "p#w" if secret == "p%23w" else secret
    assert (found["USER"], found["PASSWORD"]) == ("app", expected)
    assert (found["HOST"], found["PORT"], found["NAME"]) == ("db.example", "6543", "chats")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("postgresql://app:pw@[::1]:5432/n", "::1", "5432"),
        ("postgres://app@/n", "", ""),
        ("postgres://app:pw@%2Fvar%2Frun%2Fpostgresql/n", "/var/run/postgresql", ""),
        ("postgres:///n", "", ""),
        ("postgres://db/n", "db", ""),
        ("postgres://app:pw@db1,db2:5432/n", "db1,db2", "5432"),
        ("postgres://app:pw@db1:6000,db2:6001/n", "db1,db2", "6000,6001"),
        ("postgres://app:pw@db1,[::1]:6001,db3/n", "db1,::1,db3", "5432,6001,5432"),
        ("postgres://app:pw@[fe80::1%25eth0]/n", "fe80::1%eth0", ""),
        (" postgres://app:pw@db/n\n", "db", ""),
    ],
)
def test_hosts_of_every_kind_are_read(
    url: str, host: str, port: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = database(url, monkeypatch)
    assert (found["HOST"], found["PORT"], found["NAME"]) == (host, port, "n")


def test_options_of_libpq_are_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    query = (
        "sslmode=verify-full&sslrootcert=%2Fca.pem&connect_timeout=3&options=-c%20search_path%3Dx"
    )
    given = database(f"postgres://a:b@h/n?{query}", monkeypatch)["OPTIONS"]
    assert given["sslmode"] == "verify-full"
    assert given["sslrootcert"] == "/ca.pem"
    assert given["connect_timeout"] == "3"
    assert given["options"] == f"{database_url.TIMEOUTS} -c search_path=x"


@pytest.mark.parametrize(
    ("query", "name", "value"),
    [
        ("application_name=a+b", "application_name", "a+b"),
        ("sslpassword=p%2B+%20q", "sslpassword", "p++ q"),
        ("service=chats", "service", "chats"),
    ],
)
def test_values_of_options_are_read_as_by_libpq(
    query: str, name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert database(f"postgres://a:b@h/n?{query}", monkeypatch)["OPTIONS"][name] == value
    parsed = {one.keyword: one.val for one in pq.Conninfo.parse(f"postgres://h/n?{query}".encode())}
    assert parsed[name.encode()] == value.encode()


def test_every_option_is_one_of_the_client() -> None:
    known = {one.keyword.decode() for one in pq.Conninfo.get_defaults()}
    # An older client does not know the newest options.
    newest = {"sslkeylogfile", "max_protocol_version", "min_protocol_version", "sslnegotiation"}
    newest |= {"scram_client_key", "scram_server_key", "sslcertmode", "gssdelegation"}
    newest |= {"require_auth", "load_balance_hosts", "oauth_client_id", "oauth_client_secret"}
    newest |= {"oauth_issuer", "oauth_scope"}
    assert database_url.LIBPQ_OPTIONS - newest <= known


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("postgres://app:s3cr3t@h/n?sslmod=require", "sslmod"),
        ("postgres://app:s3cr3t@h/n?password=s3cr3t", "password"),
        ("postgres://app:s3cr3t@h/n?s3cr3t!=1", "behind"),
        ("postgres://app:s3cr3t@h/n?sslmode", "no value"),
        ("postgres://app:s3cr3t@h:99999/n", "port"),
        ("postgres://app:s3cr3t@h:port/n", "%40"),
        ("postgres://app:s3cr3t@h:\uff15\uff14/n", "%40"),
        ("postgres://app:s3cr3t@h1:5432,h2:0/n", "port"),
        ("postgres://app:s3cr3t%00@h/n", "NUL"),
        ("postgres://app:s3cr3t@h/n?application_name=%00", "NUL"),
        ("sqlite:///s3cr3t%00", "full path"),
        ("postgres://app:s3cr3t@h/n/m", "%40"),
        ("postgres://app:s3cr3t@h", "no database"),
        ("postgres://app:s3cr3t@h/?sslmode=require", "no database"),
        ("postgres://app:s3cr3t@h/n?host=/run", "two hosts"),
        ("postgres://app:s3cr3t@h/n?port=5433", "before the ?"),
        ("sqlite://", "full path"),
        ("sqlite:///:memory:", "full path"),
        ("mysql://app:s3cr3t@h/n", "postgres://"),
        ("s3cr3t", "postgres://"),
        ("sqlite:///s3cr3t?mode=ro", "no options"),
    ],
)
def test_what_cannot_be_used_is_named_without_the_password(
    url: str, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misconfigured, match="DATABASE_URL") as refused:
        database(url, monkeypatch)
    assert named in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_pgbouncer_gets_neither_options_nor_cursors(monkeypatch: pytest.MonkeyPatch) -> None:
    found = database("postgres://a:b@h/n?sslmode=require", monkeypatch, DATABASE_PGBOUNCER="1")
    assert "options" not in found["OPTIONS"]
    assert found["OPTIONS"]["prepare_threshold"] is None
    assert found["DISABLE_SERVER_SIDE_CURSORS"] is True
    assert found["OPTIONS"]["sslmode"] == "require"
    with pytest.raises(Misconfigured, match="PgBouncer"):
        database("postgres://a:b@h/n?options=-cx%3D1", monkeypatch, DATABASE_PGBOUNCER="1")
    plain = database("postgres://a:b@h/n", monkeypatch, DATABASE_PGBOUNCER="0")
    assert "statement_timeout" in plain["OPTIONS"]["options"]
    assert (plain["OPTIONS"]["server_side_binding"], plain["OPTIONS"]["prepare_threshold"]) == (
        True,
        2,
    )
    assert found["OPTIONS"]["server_side_binding"] is False


@pytest.mark.parametrize("path", ["/var/lib/a.db", "/a#b/c.db", "/a%41/c.db", "/a?b/é ü.db"])
def test_the_url_of_a_file_names_this_file(path: str) -> None:
    _, _, rest = database_url.format_sqlite_url(Path(path)).partition("://")
    assert database_url.parse_sqlite_path(rest) == Path(path)
