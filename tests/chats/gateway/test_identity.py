"""The end user and the conversation that a request names."""

from itertools import combinations
from typing import Any

from chats.gateway.matching.identity import parse_identity

JOINING: list[dict[str, Any]] = [
    {"safety_identifier": "p\x1fq"},
    {"safety_identifier": "p", "user": "q\x1f"},
    {"safety_identifier": "p", "user": "\x1fq"},
    {"safety_identifier": "p", "user": "q"},
    {"user": "p\x1fq"},
    {"user": '["", "p", "q"]'},
    {"user": "\x1fp\x1fq"},
    {"safety_identifier": "p", "user": "q\x1f\x1f"},
    {"user": 5},
    {"user": 6},
    {"user": "5"},
    {"safety_identifier": 5},
    {},
]


def test_no_character_joins_two_end_users() -> None:
    for one, other in combinations(JOINING, 2):
        assert parse_identity({}, one).end_user != parse_identity({}, other).end_user, (one, other)
    header = {"X-OpenWebUI-User-Id": "p\x1fq"}
    assert parse_identity(header, {}).end_user not in {
        parse_identity({}, b).end_user for b in JOINING
    }


def test_usual_end_users_keep_their_rooms() -> None:
    """Existing chats are still found, because their room names used this format."""
    assert parse_identity({}, {"user": "ann"}).end_user == "\x1f\x1fann"
    assert parse_identity({}, {"safety_identifier": "ann"}).end_user == "\x1fann\x1f"
