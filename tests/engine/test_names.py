"""Names in every script: which words are names, and how a person mentions a member."""

import unicodedata

import pytest

from contextpolicy.engine.team.team_view import (
    find_mentioned_members,
    find_name_problem,
    split_reply_speakers,
)
from contextpolicy.engine.text import names


@pytest.mark.parametrize(
    "name",
    [
        "کتاب\u200cها",
        "東京\u3000出張",
        "Budget\u00a02027",
        "👩\u200d💻 Work",
        "क्\u200dष",
        "א\u200fב",
        "Tom\u0303",
        "🏴\U000e0067\U000e007f",
        "\U0001fae9 new",
        "\ue000",
    ],
)
def test_a_name_may_have_what_its_script_needs(name: str) -> None:
    assert names.is_allowed_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "\u200b" * 20,
        "\u3000",
        "\u3164",
        "a\nb",
        "a\u2028b",
        "a\u2029b",
        "a\x85b",
        "a\x00b",
        "a\tb",
        "a\x7f",
        "a\u202eb",
        "a\u2066b",
        "a\ud800",
    ],
)
def test_a_name_has_no_controls_and_something_to_see(name: str) -> None:
    assert not names.is_allowed_name(name)


@pytest.mark.parametrize("name", ["Straße", "İzmir", "ÉCOLE", "ΐ", "ᾷ", "ﬁnance", "Ǆ"])
def test_case_and_marks_do_not_make_another_name(name: str) -> None:
    forms = (name.upper(), name.lower(), unicodedata.normalize("NFD", name.upper()))
    assert {names.casefold_name(form) for form in forms} == {names.casefold_name(name)}


def test_a_name_has_one_spelling() -> None:
    assert names.normalise_name(" Jose\u0301\u3000") == "José"


@pytest.mark.parametrize(
    ("members", "message", "called"),
    [
        (["José", "Jose"], "@Jose\u0301 please check", ["José"]),
        (["José"], "@Jose\u0301 please check", ["José"]),
        (["Jose\u0301"], "@José please check", ["Jose\u0301"]),
        (["Jose"], "@Jose\u0301 please check", []),
        (["Hiếu"], "@Hie\u0302\u0301u please check", ["Hiếu"]),
        (["김철수"], unicodedata.normalize("NFD", "@김철수 확인"), ["김철수"]),
        (["Tom"], "@Tom\u0303 please", []),
        (["Tom\u0303"], "@Tom\u0303 please", ["Tom\u0303"]),
        (["राम"], "@रामा please", []),
        (["राम"], "@राम please", ["राम"]),
        (["José"], '@"Jose\u0301" please', ["José"]),
        (["می"], "@می\u200cخواهم please", []),
        (["می"], "@می\u200c please", ["می"]),
        (["\U0001f469"], "@\U0001f469\u200d\U0001f4bb please", []),
        (
            ["\U0001f469\u200d\U0001f4bb"],
            "@\U0001f469\u200d\U0001f4bb hi",
            ["\U0001f469\u200d\U0001f4bb"],
        ),
        (["\U0001f44d"], "@\U0001f44d\U0001f3fd please", []),
    ],
)
def test_a_mention_is_read_letter_by_letter(
    members: list[str], message: str, called: list[str]
) -> None:
    assert list(find_mentioned_members(message, names=members)) == called


def test_a_label_is_found_in_either_spelling() -> None:
    assert split_reply_speakers("Jose\u0301: Done.", name="José").own == "Done."
    assert split_reply_speakers("José: Done.", name="Jose\u0301").own == "Done."


@pytest.mark.parametrize(("name", "is_one"), [("東京\u3000太郎", True), ("a\u202eb", False)])
def test_a_member_is_named_by_the_same_rule(name: str, is_one: bool) -> None:  # a case
    assert (find_name_problem(name) is None) is is_one


def test_what_no_name_may_have_becomes_a_space() -> None:
    assert names.replace_forbidden_characters("a\nb\u202ec\x00d") == "a b c d"
    assert names.replace_forbidden_characters("کتاب\u200cها") == "کتاب\u200cها"


def test_names_that_differ_in_case_or_form_are_one_name() -> None:
    for one, other in (
        ("Cases", " cases"),
        ("STRASSE", "straße"),
        ("Jose\u0301", "JOSÉ"),
        ("Ａ", "a"),
    ):
        assert names.casefold_name(one) == names.casefold_name(other)
    assert names.casefold_name("Cases") != names.casefold_name("Case")
