"""Teams through the pages: made and changed, chosen for a chat, and how their rounds look."""

import html as markup
import re
import uuid
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from chats.models import Agent, Chat, Message, Rendering, Round, Team, TeamVersion, Turn
from chats.providers.base import Finished, ProviderError, TextDelta
from chats.rendering.spoken import extract_displayed_text, list_rendered_texts
from chats.rendering.store import compute_rendering_digest
from chats.teams import draft_checks, rosters
from chats.teams.presets import PRESETS
from chats.teams.team_drafts import AgentDraft
from chats.web.reasons import LEFT_OUT
from chats.web.teams import get_team_version
from chats.web.thread.entries import SHAPES, get_role_shape
from chats.web.thread.round_state import round_state
from chats.web.thread.thread import load_thread_page
from contextpolicy.engine.team.team_view import find_name_problem
from contextpolicy.models import ContextPolicy, ModelSpec
from contextpolicy.publish import create_policy
from tests.chats.web.markup import tight
from tests.contextpolicy.pages import Page, opened, submitted
from tests.support.chat_pages import (
    HTMX,
    get_chat_url,
    mark_running,
    read_page_html,
    read_page_text,
    set_sign_in_time,
)
from tests.support.team_rounds import Made, Plays, TeamPlay, Work, allow_policy_changes, draft_team

LIST, NEW = "/teams/", "/teams/new"


def at(team: Team, rest: str = "") -> str:
    """An address of a team."""
    return f"/teams/{team.pk}{rest}"


def article(page: Client, chat: Chat, message: Message) -> str:
    """A message as the chat's page shows it."""
    found = re.search(
        f'<article[^>]*id="message-{message.pk}".*?</article>', read_page_html(page, chat)
    )
    assert found is not None
    return found[0]


def error_at(html: str, place: int) -> str:
    """Return the error of an agent in the form, or an empty string."""
    found = re.search(rf'id="agent-{place}-error"[^>]*>.*?<span>(.*?)</span>', tight(html))
    return markup.unescape(found[1]) if found else ""


def refused_fields(html: str) -> list[str]:
    """Return the fields at which the form shows an error, as the API names them."""
    return re.findall(r'data-param="([^"]*)"', html)


def current(team: Team) -> TeamVersion:
    """The newest version of a team."""
    team.refresh_from_db()
    assert team.current is not None
    return team.current


def spoken(chat: Chat, seq: int) -> Message:
    """A message of the chat by its number; of several versions the first."""
    return Message.objects.filter(branch__chat=chat, seq=seq).order_by("accepted")[0]


@pytest.fixture
def admins_page(bob: User) -> Client:
    """The browser of Bob, a policy editor."""
    client = Client()
    client.force_login(allow_policy_changes(bob))
    return client


@pytest.fixture
def policy(db: None, now: datetime) -> ContextPolicy:
    """A policy that an agent could get."""
    values = {"input_length_limit": 900}
    return create_policy(slug="brief", name="Brief", values=values, actor="system", now=now)


# The list


def test_the_list_has_ones_own_the_shared_and_drafts_to_begin_with(
    page: Client, charlies_page: Client, made: Made
) -> None:
    own = made("Ann", "Ben", name="Mine")
    everybodys = made("Carl", name="Ours", shared=True)

    seen = opened(page, LIST)
    for name in ("Mine", "Ann , Ben", "Ours"):
        assert name in seen.words
    for key, preset in PRESETS.items():
        assert f"{NEW}?preset={key}" in seen.urls
        assert preset.name in seen.words
    html = page.get(LIST).content.decode()
    assert 'id="shared-title"' in html
    assert at(own, "/delete") in html
    assert at(everybodys, "/copy") in html
    assert at(everybodys, "/delete") not in html
    assert f"/chats/new?team={own.pk}" in html
    others = opened(charlies_page, LIST).words
    assert "Mine" not in others
    assert "Ours" in others


def test_an_empty_list_says_how_to_begin(page: Client) -> None:
    html = page.get(LIST).content.decode()
    assert 'data-note="no-teams"' in html
    assert 'id="shared-title"' not in html


def test_who_may_share_may_delete_what_is_shared(admins_page: Client, made: Made) -> None:
    everybodys = made("Carl", name="Ours", shared=True)
    assert at(everybodys, "/delete") in admins_page.get(LIST).content.decode()
    assert admins_page.post(at(everybodys, "/delete")).headers["Location"] == LIST
    assert "Ours" not in opened(admins_page, LIST).words


# Making


def test_a_team_is_made_from_a_preset(page: Client, demo_model: ModelSpec) -> None:
    answer = submitted(page, f"{NEW}?preset=support", do="save", name="Help desk")

    team = Team.objects.get()
    version = current(team)
    assert answer.headers["Location"] == f"{LIST}#team-{team.pk}"
    assert (version.name, version.routing, version.number) == ("Help desk", "person", 1)
    assert list(version.agents.order_by("place").values_list("name", "type", "role_id")) == [
        ("Support", "ai", "support"),
        ("Specialist", "ai", "specialist"),
        ("Lead", "human", "lead"),
    ]
    assert "[NEXT:Specialist]" in version.agents.get(role_id="support").instruction


def test_a_team_is_made_from_nothing_with_every_value(page: Client, demo_model: ModelSpec) -> None:
    form = {
        "do": "save",
        "name": "Two",
        "task": "Plan\r\na trip.",
        "routing": "round_robin",
        "independent": "on",
        "goes_on_after_failure": None,
        "hop_limit": "4",
        "token_limit": " 900 ",
        "seconds_limit": "60",
        "agent-0-name": "Ann",
        "agent-0-instruction": "Be\r\nbrief.",
        "agent-0-instruction_file_text": "From\r\na file.",
        "agent-0-agent_type": "codex",
        "agent-0-window_size": "30",
        "agent-0-model": "demo",
        "agent-1-name": "Ben",
        "agent-1-rests": "on",
    }
    answer = submitted(page, NEW, **form)

    assert answer.status_code == 302
    version = TeamVersion.objects.get()
    assert (version.task, version.routing, version.independent) == (
        "Plan\na trip.",
        "round_robin",
        True,
    )
    assert not version.goes_on_after_failure
    limits = (version.hop_limit, version.token_limit, version.seconds_limit)
    assert limits == (4, 900, 60)
    ann, ben = version.agents.select_related("model").order_by("place")
    assert ann.model is not None
    assert (ann.instruction, ann.instruction_file_text) == ("Be\nbrief.", "From\na file.")
    assert (ann.agent_type, ann.window_size, ann.model.slug) == ("codex", 30, "demo")
    assert (ann.rests, ben.rests) == (False, True)


def test_an_unknown_preset_is_an_empty_form_of_two(page: Client, demo_model: ModelSpec) -> None:
    form = opened(page, f"{NEW}?preset=none")
    assert (form.fields["agent-TOTAL_FORMS"], form.fields["name"]) == (["2"], [""])
    assert form.words.count("New member") == 2


# The browser sends it with the number of members in `agent-TOTAL_FORMS`.
MEMBERS = {"agent-INITIAL_FORMS": "0"}
TYPED = {
    "name": "Crew <1>",
    "task": "First line\nsecond",
    "independent": "on",
    "routing": "person",
    "hop_limit": "7",
    "agent-0-name": "Ann",
    "agent-0-instruction": "\nBe brief.",
    "agent-1-name": "Ben",
    "agent-1-window_size": "3",
    "agent-1-rests": "on",
}


@pytest.mark.parametrize(
    ("do", "names"),
    [
        ("add", ["Ann", "Ben", ""]),
        ("preview", ["Ann", "Ben"]),
        ("remove-0", ["Ben"]),
        ("remove-1", ["Ann"]),
        ("remove-2", ["Ann", "Ben"]),
        ("remove-x", ["Ann", "Ben"]),
    ],
)
def test_the_buttons_keep_what_was_typed_and_store_nothing(
    page: Client, demo_model: ModelSpec, do: str, names: list[str]
) -> None:
    answer = submitted(page, NEW, do=do, **TYPED)

    assert answer.status_code == 200
    form = Page(answer.content.decode()).fields
    assert form["agent-TOTAL_FORMS"] == [str(len(names))]
    assert [form[f"agent-{place}-name"][0] for place in range(len(names))] == names
    for name in ("name", "task", "independent", "routing", "hop_limit"):
        assert form[name] == [TYPED[name]]
    if "Ben" in names:
        place = names.index("Ben")
        assert form[f"agent-{place}-window_size"] == ["3"]
        assert form[f"agent-{place}-rests"] == ["on"]
    assert not Team.objects.exists()


def test_the_choice_to_share_is_kept_by_the_buttons(
    admins_page: Client, demo_model: ModelSpec
) -> None:
    assert "shared" not in opened(admins_page, NEW).fields
    answer = submitted(admins_page, NEW, do="add", shared="on")
    assert Page(answer.content.decode()).fields["shared"] == ["on"]


def test_no_more_are_added_than_a_team_may_have(page: Client, demo_model: ModelSpec) -> None:
    form = {
        **MEMBERS,
        "agent-TOTAL_FORMS": "8",
        "do": "add",
        **{f"agent-{n}-name": f"A{n}" for n in range(8)},
    }
    html = page.post(NEW, form).content.decode()
    assert Page(html).fields["agent-TOTAL_FORMS"] == ["8"]
    assert "Add member" not in html
    crowd = page.post(NEW, {**form, "agent-TOTAL_FORMS": "900", "do": "save", "name": "Crowd"})
    assert crowd.status_code == 422
    assert crowd.content.decode().count('<fieldset class="panel') == 9


def test_a_preview_says_what_each_agent_would_be_told(page: Client, demo_model: ModelSpec) -> None:
    form = {"agent-2-name": "Cleo", "agent-2-type": "human", "agent-TOTAL_FORMS": "3"}
    shown_now = submitted(page, NEW, do="preview", **TYPED, **form).content.decode()

    found = re.findall(r'<fieldset class="panel.*?</fieldset>', shown_now, re.DOTALL)
    ann, ben, _ = (" ".join(Page(each).text.split()) for each in found)
    told = ['data-note="agent-instructions"' in each for each in found]
    assert told == [True, True, False]
    assert "Be brief. You are Ann, a member of a team" in ann
    assert "The team's task: First line second" in ann
    # An inactive agent cannot be called, so it is not a teammate.
    assert "Your mates are Cleo (a person)." in ann
    assert "Your mates are Ann, Cleo (a person)." in ben


# Refusals

# The typed fields, the refused agent and field, and values in the sentence.
REFUSED: dict[str, tuple[dict[str, str], int, str, tuple[str, ...]]] = {
    "no name": ({"agent-1-name": " "}, 1, "name", (str(find_name_problem(" ")),)),
    "a name of the team": ({"agent-1-name": "all"}, 1, "name", (str(find_name_problem("all")),)),
    "a bracket": ({"agent-0-name": "A]"}, 0, "name", (str(find_name_problem("A]")),)),
    "a twin": ({"agent-1-name": "ANN"}, 1, "name", ("Ann", "ANN")),
    "a space": ({"agent-0-name": "Ann "}, 0, "name", (str(find_name_problem("Ann ")),)),
    "no window": ({"agent-0-window_size": "many"}, 0, "window_size", ("Ann", "-1", "100")),
    "a large window": ({"agent-1-window_size": "101"}, 1, "window_size", ("Ben", "101", "100")),
    "a type": ({"agent-0-type": "robot"}, 0, "type", ("`ai`", "`human`")),
    "a model": ({"agent-1-model": "gpt-99"}, 1, "model", ("“gpt-99”",)),
    "a policy": ({"agent-0-policy": "brief"}, 0, "policy", ("“brief”",)),
    "a kind": ({"agent-0-agent_type": "x" * 61}, 0, "agent_type", ("60",)),
    "a long instruction": (
        {"agent-0-instruction": "x" * 200_001},
        0,
        "instruction",
        ("Ann", "200,000"),
    ),
    "one role twice": ({"agent-0-role_id": "a", "agent-1-role_id": "a"}, 1, "role_id", (" a.",)),
}


@pytest.mark.parametrize(("typed", "place", "field", "named"), REFUSED.values(), ids=REFUSED)
def test_a_refusal_stands_at_its_agent_and_nothing_is_stored(
    page: Client,
    demo_model: ModelSpec,
    policy: ContextPolicy,
    typed: dict[str, str],
    place: int,
    field: str,
    named: tuple[str, ...],
) -> None:
    answer = submitted(page, NEW, do="save", **{**TYPED, "agent-1-rests": None, **typed})

    html = answer.content.decode()
    assert answer.status_code == 422
    assert all(each in error_at(html, place) for each in named), error_at(html, place)
    assert set(refused_fields(html)) == {f"agents.{place}.{field}"}
    assert not error_at(html, 1 - place)
    assert Page(html).fields["name"] == ["Crew <1>"]
    assert html.count('aria-invalid="true"') == 1
    assert not Team.objects.exists()


REFUSED_WHOLE = {
    "no name": ({"name": " "}, "name", "100"),
    "nobody": ({"agent-TOTAL_FORMS": "0"}, "agents", draft_checks.NO_AGENT),
    "nothing that is a number": ({"agent-TOTAL_FORMS": "x"}, "agents", draft_checks.NO_AGENT),
    "all rest": ({"agent-0-rests": "on"}, "agents", draft_checks.NO_ACTIVE_AGENT),
    "a routing": ({"routing": "model"}, "routing", ", ".join(TeamVersion.Routing.values)),
    "no hops": ({"hop_limit": "0"}, "hop_limit", "1 to 50"),
    "hops that are not a number": ({"hop_limit": "1e3"}, "hop_limit", "1 to 50"),
    "other digits": ({"hop_limit": "٣"}, "hop_limit", "1 to 50"),
    "tokens": ({"token_limit": "9" * 12}, "token_limit", "1 to 10,000,000"),
    "seconds": ({"seconds_limit": ""}, "seconds_limit", "1 to 86,400"),
    "a task": ({"task": "a\x00b"}, "task", "2."),
}


@pytest.mark.parametrize(("typed", "field", "named"), REFUSED_WHOLE.values(), ids=REFUSED_WHOLE)
def test_a_refusal_of_the_team_stands_above_the_form(
    page: Client, demo_model: ModelSpec, typed: dict[str, str], field: str, named: str
) -> None:
    answer = submitted(page, NEW, do="save", **{**TYPED, **typed})

    html = answer.content.decode()
    assert answer.status_code == 422
    refusal = html.partition('id="refusal"')[2].partition("</h2>")[0]
    assert refused_fields(refusal) == [field]
    assert named in Page(refusal.partition("<h2")[2].partition(">")[2]).words
    assert "field__error" not in html
    assert not Team.objects.exists()


def test_an_agent_without_a_type_is_an_agent(page: Client, demo_model: ModelSpec) -> None:
    submitted(page, NEW, do="save", **TYPED, **{"agent-0-type": ""})
    assert set(Agent.objects.values_list("type", flat=True)) == {"ai"}


def test_a_team_without_a_version_is_a_mistake_and_is_not_there(
    page: Client, alice: User, now: datetime
) -> None:
    team = Team.objects.create(owner=alice, created_at=now)
    assert page.get(at(team)).status_code == 404
    with pytest.raises(ValueError, match=str(team.pk)):
        get_team_version(team)


def test_no_more_teams_are_made_than_a_person_may_have(
    page: Client, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = made("Ann", "Ben")
    monkeypatch.setattr(rosters, "MOST_TEAMS", 1)
    for answer in (submitted(page, NEW, do="save", **TYPED), page.post(at(team, "/copy"))):
        assert answer.status_code == 409
        assert "You have reached the limit of 1 teams." in Page(answer.content.decode()).words
    assert Team.objects.count() == 1


# Warnings and changes


@pytest.mark.requirement("S3.3", by="user")
def test_a_task_that_is_too_long_is_cut_with_a_notice_and_is_told_to_every_agent(
    page: Client, chat: Chat, work: Work
) -> None:
    answer = submitted(page, NEW, do="save", **TYPED | {"task": "äb" * 2_000 + "END"})

    found = Page(answer.content.decode())
    assert answer.status_code == 200
    assert 'data-note="saved-with-warnings"' in answer.content.decode()
    assert "longer than 5,120 bytes. The first 5,120 of 6,003 bytes were saved." in found.words
    team = Team.objects.get()
    task = current(team).task
    assert len(task.encode()) == 5_120
    assert found.fields["task"] == [task]
    assert page.post(get_chat_url(chat, "team"), {"team": str(team.pk)}).status_code == 302
    game = TeamPlay(chat, chat.owner, work)
    game.ask()
    game.answer("One.")
    turn = Turn.objects.get(branch__chat=chat, status="completed")
    told = opened(page, get_chat_url(chat, f"turns/{turn.pk}/receipt")).words
    assert f"The team's task: {task}" in told
    assert "END" not in told


def test_a_window_smaller_than_a_round_is_a_remark_on_the_saved_team(
    page: Client, demo_model: ModelSpec
) -> None:
    answer = submitted(page, NEW, do="save", **TYPED)

    html = answer.content.decode()
    assert "The window of Ben is smaller than the 7 replies in a round" in Page(html).words
    team = Team.objects.get()
    assert f'action="{at(team)}"' in html
    assert "field__error" not in html


def test_a_change_is_a_new_version_and_roles_keep_their_ids(page: Client, made: Made) -> None:
    team = made("Ann", "Ben")
    form = {
        "agent-0-name": "Anna",
        "agent-TOTAL_FORMS": "3",
        "agent-2-name": "Ann",
        "agent-2-type": "ai",
    }
    form["agent-2-window_size"] = "12"
    answer = submitted(page, at(team), do="save", name="Crew", **form)

    assert answer.headers["Location"] == f"{LIST}#team-{team.pk}"
    version = current(team)
    assert (version.number, version.name, team.versions.count()) == (2, "Crew", 2)
    assert list(version.agents.order_by("place").values_list("name", "role_id")) == [
        ("Anna", "ann"),
        ("Ben", "ben"),
        ("Ann", "ann-2"),
    ]
    assert "v2" in opened(page, LIST).words


def test_a_changed_form_keeps_what_no_field_shows(page: Client, made: Made) -> None:
    team = made(
        AgentDraft(name="Ann", agent_type="codex", instruction_file_text="From\n<a> file.\n"),
        "Ben",
    )
    submitted(page, at(team), do="save")
    ann = current(team).agents.get(role_id="ann")
    assert current(team).number == 2
    assert (ann.agent_type, ann.instruction_file_text) == ("codex", "From\n<a> file.\n")


def test_a_refused_change_and_the_buttons_leave_the_team(page: Client, made: Made) -> None:
    team = made("Ann", "Ben")
    refused = submitted(page, at(team), do="save", **{"agent-1-name": "Ann"})
    assert refused.status_code == 422
    assert set(refused_fields(refused.content.decode())) == {"agents.1.name"}
    assert error_at(refused.content.decode(), 1)
    added = submitted(page, at(team), do="add")
    assert added.status_code == 200
    assert Page(added.content.decode()).fields["agent-TOTAL_FORMS"] == ["3"]
    assert current(team).number == 1


def test_a_form_shows_each_agent_in_its_colour(page: Client, made: Made) -> None:
    html = page.get(at(made("Ann", "Ben"))).content.decode()
    for role_id in ("ann", "ben"):
        assert f'<legend class="who who--{get_role_shape(role_id)}">' in html
    assert '<legend class="who' not in page.get(NEW).content.decode()


def test_a_copy_is_ones_own_and_opens(page: Client, made: Made) -> None:
    everybodys = made("Carl", name="Ours", shared=True)
    answer = page.post(at(everybodys, "/copy"))

    copied = Team.objects.get(owner__username="alice")
    assert answer.headers["Location"] == at(copied)
    form = opened(page, at(copied))
    assert form.fields["name"] == ["Ours (copy)"]
    assert "Save team" in form.words


def test_a_deleted_team_is_gone_and_its_chat_keeps_it(
    page: Client, chat: Chat, play: Plays
) -> None:
    game = play("Ann", name="Crew")
    team = Team.objects.get()
    assert page.post(at(team, "/delete")).headers["Location"] == LIST
    assert "Crew" not in opened(page, LIST).words
    assert page.get(at(team)).status_code == 404
    assert f'value="{team.pk}"' not in page.get("/chats/new").content.decode()
    game.ask()
    assert game.answer("One.") == ["Ann"]
    assert "Team: Crew" in read_page_text(page, chat)


def test_ways_that_change_something_are_no_links(page: Client, made: Made) -> None:
    team = made("Ann")
    for rest in ("/copy", "/delete"):
        assert page.get(at(team, rest)).status_code == 405
    assert page.post(LIST).status_code == 405


# Whose teams


def test_an_administrator_shares_a_team_and_gives_its_agents_policies(
    admins_page: Client, demo_model: ModelSpec, policy: ContextPolicy
) -> None:
    form = {**TYPED, "agent-1-window_size": "12", "agent-0-policy": "brief"}
    answer = submitted(admins_page, NEW, do="save", shared="on", **form)

    team = Team.objects.get()
    assert answer.status_code == 302
    assert team.owner is None
    assert current(team).agents.get(role_id="ann").policy == policy
    assert opened(admins_page, at(team)).fields["agent-0-policy"] == ["brief"]
    assert submitted(admins_page, at(team), do="save", name="All").status_code == 302
    assert current(team).name == "All"
    assert current(team).agents.get(role_id="ann").policy == policy


def test_nobody_else_shares_a_team(page: Client, demo_model: ModelSpec) -> None:
    assert 'name="shared"' not in page.get(NEW).content.decode()
    answer = submitted(page, NEW, do="save", shared="on", **TYPED)
    assert answer.status_code == 403
    assert 'data-reason="team_not_yours"' in answer.content.decode()
    assert not Team.objects.exists()


def test_a_shared_team_is_a_locked_form_for_others(page: Client, made: Made) -> None:
    team = made("Carl", "Dora", name="Ours", shared=True)

    html = page.get(at(team)).content.decode()
    form = html[html.index(f'action="{at(team)}"') :]
    form = form[: form.index("</form>")]
    assert 'data-note="shared-team"' in html
    assert "<button" not in form
    assert " disabled" in form
    assert "Carl" in form
    fields = {name: values[0] for name, values in Page(html).fields.items()}
    for do, status in (("save", 403), ("add", 200)):
        answer = page.post(at(team), {**fields, "name": "Mine now", "do": do})
        assert answer.status_code == status
    assert page.post(at(team, "/delete")).status_code == 403
    assert (current(team).name, current(team).number, team.deleted_at) == ("Ours", 1, None)


def test_a_policy_that_an_administrator_gave_stays_when_another_changes_the_team(
    page: Client, made: Made, policy: ContextPolicy
) -> None:
    team = made("Ann", "Ben")
    Agent.objects.filter(role_id="ann").update(policy=policy)
    html = page.get(at(team)).content.decode()
    assert 'type="hidden" name="agent-0-policy" value="brief"' in html
    assert submitted(page, at(team), do="save").status_code == 302
    assert current(team).agents.get(role_id="ann").policy == policy


@pytest.mark.parametrize("rest", ["", "/copy", "/delete"])
def test_anothers_team_is_not_there(charlies_page: Client, made: Made, rest: str) -> None:
    team = made("Ann")
    for found in (team.pk, uuid.uuid4()):
        if not rest:
            assert charlies_page.get(f"/teams/{found}").status_code == 404
        for do in ("save", "add"):
            answer = charlies_page.post(
                f"/teams/{found}{rest}", {**MEMBERS, "do": do, "agent-TOTAL_FORMS": "1"}
            )
            assert answer.status_code == 404
    assert Team.objects.count() == 1
    assert current(team).number == 1
    assert team.deleted_at is None


def test_a_stranger_signs_in_first(client: Client, made: Made) -> None:
    for where in (LIST, NEW, at(made("Ann"))):
        assert client.get(where).headers["Location"].endswith(f"?next={where}")


# Chats of a team


def test_a_new_chat_begins_with_a_team(page: Client, made: Made) -> None:
    team = made("Ann", "Ben", name="Crew", task="Plan a trip.")
    html = tight(page.get(f"/chats/new?team={team.pk}").content.decode())
    assert f'<option value="{team.pk}" selected>Team: Crew</option>' in html
    assert " selected>Team" not in tight(page.get("/chats/new").content.decode())

    page.post("/chats/new", {"text": "Go.", "key": "k", "team": str(team.pk)})

    chat = Chat.objects.get()
    turn = Turn.objects.get()
    assert (chat.team, chat.team_task) == (team, "Plan a trip.")
    assert turn.agent is not None
    assert turn.agent.name == "Ann"


@pytest.mark.parametrize("team", ["anothers", "none", "no id"])
def test_a_new_chat_with_a_team_that_is_not_there_is_refused(
    charlies_page: Client, made: Made, team: str
) -> None:
    ids = {"anothers": str(made("Ann").pk), "none": str(uuid.uuid4()), "no id": "Crew"}
    form = {"text": "Go.", "key": "k", "team": ids[team]}
    answer = charlies_page.post("/chats/new", form)
    assert answer.status_code == 404
    assert "\nGo.</textarea>" in answer.content.decode()
    assert not Chat.objects.exists()


def test_a_refused_first_message_keeps_the_choice_of_its_team(page: Client, made: Made) -> None:
    team = made("Ann")
    answer = page.post("/chats/new", {"text": " ", "key": "k", "team": str(team.pk)})
    assert answer.status_code == 422
    assert f'value="{team.pk}" selected' in tight(answer.content.decode())


def test_a_chat_gets_a_team_and_its_model_again(page: Client, chat: Chat, made: Made) -> None:
    team = made("Ann", name="Crew")
    where = get_chat_url(chat, "team")
    assert where in page.get(get_chat_url(chat)).content.decode()
    assert opened(page, where).fields["team"] == [""]

    assert submitted(page, where, team=str(team.pk)).headers["Location"] == get_chat_url(chat)
    chat.refresh_from_db()
    assert chat.team == team
    assert opened(page, where).fields["team"] == [str(team.pk)]
    assert "Current: team Crew" in read_page_text(page, chat)
    assert submitted(page, where, team="").status_code == 302
    assert not Chat.objects.exclude(team=None).exists()
    assert "Crew" not in read_page_text(page, chat)


def test_no_team_is_chosen_while_a_reply_is_under_way(
    page: Client, chat: Chat, made: Made, say: Callable[[str], Turn]
) -> None:
    team = made("Ann")
    say("hello")
    answer = page.post(get_chat_url(chat, "team"), {"team": str(team.pk)})
    assert answer.status_code == 409
    assert 'data-reason="team_busy"' in answer.content.decode()
    chat.refresh_from_db()
    assert chat.team is None


@pytest.mark.parametrize("team", ["anothers", "none", "no id"])
def test_only_teams_that_one_may_see_are_chosen(
    page: Client, chat: Chat, charlie: User, now: datetime, demo_model: ModelSpec, team: str
) -> None:
    theirs = rosters.create_team(
        user=charlie, draft=draft_team("Ann", name="Other people’s team"), shared=False, now=now
    )
    ids = {"anothers": str(theirs.team.pk), "none": str(uuid.uuid4()), "no id": "Crew"}
    answer = page.post(get_chat_url(chat, "team"), {"team": ids[team]})
    assert answer.status_code == 404
    assert "Other people" not in answer.content.decode()
    chat.refresh_from_db()
    assert chat.team is None


def test_anothers_chat_gets_no_team(charlies_page: Client, chat: Chat) -> None:
    assert charlies_page.get(get_chat_url(chat, "team")).status_code == 404
    assert charlies_page.post(get_chat_url(chat, "team"), {"team": ""}).status_code == 404
    assert charlies_page.post(get_chat_url(chat, "round/go-on")).status_code == 404


# Messages


@pytest.mark.requirement("S3.1", by="user")
def test_a_message_says_who_speaks_and_to_whom(page: Client, chat: Chat, play: Plays) -> None:
    game = play("Planner", "Critic", "Writer")
    page.post(get_chat_url(chat, "messages"), {"text": "@Planner begin.", "key": "k"})
    game.answer("One. [NEXT:Critic, Writer]", "Two.")

    asked, first, second = (article(page, chat, spoken(chat, seq)) for seq in (1, 2, 3))
    assert '<bdi class="chip chip--outline">Planner</bdi>' in asked
    assert "who--" not in asked
    assert 'aria-label="Message 2 from Planner"' in first
    assert f'<bdi class="msg__who who who--{get_role_shape("planner")}">Planner</bdi>' in first
    assert re.findall(r'chip--outline">(\w+)<', first) == ["Critic", "Writer"]
    assert f"who--{get_role_shape('critic')}" in second
    assert "msg__to" not in second
    assert {get_role_shape(name) for name in ("planner", "critic", "writer", "ä\ud800")} <= {
        *range(SHAPES)
    }


@pytest.mark.requirement("S3.7", by="user")
@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("@all speak.", ["Planner", "Critic", "Writer"]),
        ("What do you say, @Critic?", ["Critic"]),
        ("@writer and @Planner, go.", ["Writer", "Planner"]),
        ("Write to a@planner.example.", []),
    ],
)
def test_a_message_names_all_one_or_several(
    page: Client, chat: Chat, play: Plays, text: str, names: list[str]
) -> None:
    game = play("Planner", "Critic", "Writer")
    page.post(get_chat_url(chat, "messages"), {"text": text, "key": "k"})

    asked = names or ["Planner", "Critic", "Writer"]
    assert game.answer(*asked) == asked
    assert game.queued() is None
    question = article(page, chat, spoken(chat, 1))
    assert re.findall(r'chip--outline">(\w+)<', question) == names


@pytest.mark.requirement("S3.5", by="user")
@pytest.mark.team_case(5)
def test_labels_and_markers_are_not_shown_and_stay_stored(
    page: Client, chat: Chat, play: Plays
) -> None:
    said = "[FROM:Planner]\nTake  the **train**. `[NEXT:x]` is a marker. [NEXT:Critic]"
    game = play("Planner", "Critic")
    page.post(get_chat_url(chat, "messages"), {"text": "Say [NEXT:nobody].", "key": "k"})
    game.answer(said, "Planner: this list stays.")

    first, second = article(page, chat, spoken(chat, 2)), article(page, chat, spoken(chat, 3))
    assert "[FROM:" not in first
    assert "[NEXT:Critic]" not in first
    assert "<strong>train</strong>" in first
    assert "<code>[NEXT:x]</code>" in first
    assert "Planner: this list stays." in second
    assert "Say [NEXT:nobody]." in article(page, chat, spoken(chat, 1))
    assert spoken(chat, 2).text == said
    copied = page.get(get_chat_url(chat, f"messages/{spoken(chat, 2).pk}/source")).content.decode()
    assert copied == said
    assert game.prompts[1][-1] == (
        "user",
        "[FROM:alice]\nSay .\n\n[FROM:Planner]\nTake the **train**. `` is a marker.",
    )


@pytest.mark.team_case(7)
def test_what_is_spoken_for_others_is_folded(page: Client, chat: Chat, play: Plays) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("Planner: Mine.\n\n[FROM:Critic]\nI agree <so> much.", "Really.")

    html = article(page, chat, spoken(chat, 2))
    prose = html[html.index('<div class="prose">') : html.index("<details")]
    assert "Mine." in prose
    assert "agree" not in prose
    assert 'data-note="written-as-another"' in html
    assert "I agree &lt;so&gt; much." in html
    assert "<details open" not in html
    assert 'data-note="written-as-another"' not in article(page, chat, spoken(chat, 3))


@pytest.mark.team_case(19)
def test_a_pass_has_nothing_to_add(page: Client, chat: Chat, play: Plays) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("[NEXT:]", "Two.")
    passed = article(page, chat, spoken(chat, 2))
    assert 'data-note="nothing-to-add"' in passed
    assert 'class="prose"' not in passed
    assert 'data-note="nothing-to-add"' not in article(page, chat, spoken(chat, 3))


def test_what_a_program_says_for_a_member_is_shown_as_it_was_said(alice: User) -> None:
    role = {"roleId": "ann", "roleName": "Ann"}
    human = Message(parts=[{"type": "text", "text": "Ann: [NEXT:Ben]"}])
    human.speaker = {**role, "type": "human"}
    agent = Message(parts=[{"type": "text", "text": "Ann: Hi. [NEXT:Ben]"}])
    agent.speaker = {**role, "type": "ai"}
    plain = Message(parts=human.parts)
    assert [extract_displayed_text(row).own for row in (human, agent, plain)] == [
        "Ann: [NEXT:Ben]",
        "Hi.",
        "Ann: [NEXT:Ben]",
    ]
    assert list_rendered_texts(agent) == {"Ann: Hi. [NEXT:Ben]", "Hi."}
    assert list_rendered_texts(plain) == {"Ann: [NEXT:Ben]"}


# Rounds


def round_words(page: Client, chat: Chat) -> str:
    """Return the page's text about the newest round, or an empty string."""
    found = re.search(
        '<div id="round"[^>]*>(<section.*?</section>|<p.*?</p>)</div>', read_page_html(page, chat)
    )
    return Page(found[1]).words if found else ""


@pytest.mark.requirement("S3.11", by="user")
@pytest.mark.team_case(3)
def test_agents_reply_one_after_another_and_the_page_follows(
    page: Client, chat: Chat, play: Plays
) -> None:
    game = play("Planner", "Critic", "Writer", hop_limit=4)
    page.post(get_chat_url(chat, "messages"), {"text": "Plan a trip.", "key": "k"})
    assert round_words(page, chat) == "Reply 1 of up to 4. Next: Critic, Writer."
    assert 'data-round="running"' in read_page_html(page, chat)
    assert game.answer("One.", "Two.") == ["Planner", "Critic"]
    assert round_words(page, chat) == "Reply 3 of up to 4."
    assert game.answer("Three. [NEXT:Planner]", "Four. [NEXT:Critic]") == ["Writer", "Planner"]
    found = round_words(page, chat)
    assert found.startswith(
        "Limit of 4 replies reached The next agent was Critic. 4 replies, 60 tokens."
    )

    html = page.post(get_chat_url(chat, "round/go-on"), headers=HTMX).content.decode()

    assert 'data-round="running"' in html
    assert "Critic" in html[html.index("data-live") :]
    assert game.answer("Five.") == ["Critic"]
    assert round_words(page, chat) == "Finished. 1 reply, 15 tokens."
    assert "round/go-on" not in read_page_html(page, chat)


def test_a_page_never_shows_the_end_of_a_round_below_a_reply_that_still_grows(
    page: Client, alice: User, chat: Chat, play: Plays
) -> None:
    """Between reading a page's rows and showing it a round may end; the page hears of that."""
    game = play("Planner")
    game.ask()
    chat.refresh_from_db()
    thread = load_thread_page(chat=chat, user=alice)
    game.answer("One.")
    assert thread.is_replying
    assert thread.round is not None
    assert thread.round.status == Round.Status.RUNNING


def test_a_page_with_the_last_reply_and_a_round_of_before_asks_again(
    page: Client, alice: User, chat: Chat, play: Plays, monkeypatch: pytest.MonkeyPatch
) -> None:
    game = play("Planner")
    game.ask()
    chat.refresh_from_db()
    before = round_state(chat)
    game.answer("One.")
    with monkeypatch.context() as patch:
        patch.setattr("chats.web.thread.thread.round_state", lambda _: before)
        drawn = load_thread_page(chat=Chat.objects.get(pk=chat.pk), user=alice)
    seen: dict[str, str | int] = {"seen": drawn.state, "turn": drawn.turn_state}
    seen["from"] = drawn.tail_from
    answer = page.get(get_chat_url(chat, "changes"), seen, headers=HTMX)
    assert answer.status_code == 200
    assert "Finished. 1 reply" in answer.content.decode()


def test_going_on_without_scripts_leads_to_the_end(page: Client, chat: Chat, play: Plays) -> None:
    game = play("Planner", "Critic", hop_limit=1)
    game.ask()
    game.answer("One.")
    assert "Continue round" in round_words(page, chat)
    answer = page.post(get_chat_url(chat, "round/go-on"))
    assert answer.headers["Location"] == get_chat_url(chat) + "#tail"
    assert game.answer("Two.") == ["Critic"]


def test_a_round_that_did_not_end_early_does_not_go_on(
    page: Client, chat: Chat, play: Plays
) -> None:
    assert page.post(get_chat_url(chat, "round/go-on"), headers=HTMX).status_code == 409
    game = play("Planner")
    game.ask()
    for _ in range(2):
        answer = page.post(get_chat_url(chat, "round/go-on"), headers=HTMX)
        assert answer.status_code == 409
        game.answer(*["One."] * (game.queued() is not None))
    assert 'data-reason="round_not_resumable"' in answer.content.decode()
    assert page.get(get_chat_url(chat, "round/go-on")).status_code == 405


STATES: dict[str, tuple[dict[str, Any], str]] = {
    "settled": ({}, "Finished. 2 replies, 1,200 tokens."),
    "hops": (
        {"status": "limit", "reason": "hops", "queue": ["critic"]},
        "Limit of 12 replies reached The next agent was Critic. 2 replies, 1,200 tokens.",
    ),
    "tokens": (
        {"status": "limit", "reason": "tokens", "queue": ["critic", "writer", "planner"]},
        "Limit of 200,000 tokens reached The next agents were Critic, Writer, Planner."
        " 2 replies, 1,200 tokens.",
    ),
    "time": (
        {"status": "limit", "reason": "time"},
        "Time limit reached 2 replies, 1,200 tokens.",
    ),
    "another limit": (
        {"status": "limit", "reason": ""},
        "Limit reached 2 replies, 1,200 tokens.",
    ),
    "pair": (
        {"status": "pair"},
        "Two agents replied only to each other 2 replies, 1,200 tokens.",
    ),
    "stopped": ({"status": "stopped"}, "Stopped 2 replies, 1,200 tokens."),
    "failed": ({"status": "failed"}, "A reply failed 2 replies, 1,200 tokens."),
    "waiting": (
        {"status": "waiting", "queue": ["ann"]},
        "Waiting for Ann Answer as Ann in the message box, or continue without an answer."
        " 2 replies, 1,200 tokens.",
    ),
    "unknown": (
        {"unknown": ["Ghost", "Ghost", "<b>"]},
        "Finished. 2 replies, 1,200 tokens. This chat has no agent named Ghost, <b>.",
    ),
    "running": ({"status": "running"}, "Reply 3 of up to 12."),
    "replaced": ({"status": "replaced"}, ""),
}


@pytest.mark.parametrize(("fields", "sentence"), STATES.values(), ids=STATES)
def test_each_state_of_a_round_has_its_words(
    page: Client, chat: Chat, play: Plays, fields: dict[str, Any], sentence: str
) -> None:
    person = AgentDraft(name="Ann", type="human")
    limits = {"hop_limit": 12, "token_limit": 200_000}
    game = play("Planner", "Critic", "Writer", person, **limits)
    game.ask("@Planner go.")
    game.answer("One.")
    values = {"hops": 2, "tokens": 1_200, "queue": [], "unknown": [], "reason": "", **fields}
    Round.objects.update(**values)

    found = round_words(page, chat)
    status = fields.get("status", "settled")
    can_go_on = status in {"limit", "pair", "stopped", "failed", "waiting"}
    assert found == sentence + " Continue round" * can_go_on
    assert ("round/go-on" in read_page_html(page, chat)) == can_go_on


def test_a_round_waits_for_a_person_and_goes_on_with_an_answer(
    page: Client, chat: Chat, play: Plays
) -> None:
    game = play("Planner", AgentDraft(name="Ann", type="human"))
    game.ask()
    game.answer("What does she say? [NEXT:Ann]")
    assert round_words(page, chat).startswith("Waiting for Ann")
    seats = re.findall(r'<option value="([^"]*)"( selected)?>', seats_of(page, chat))
    assert seats == [("", ""), ("ann", " selected")]
    page.post(
        get_chat_url(chat, "messages"),
        {"text": "Yes. [NEXT:Planner]", "key": "k", "as": "ann"},
        headers=HTMX,
    )
    assert game.answer("Good.") == ["Planner"]
    assert round_words(page, chat).startswith("Finished. 2 replies")
    assert 'from Ann"' in read_page_html(page, chat)


def test_the_owner_answers_as_nobody_else(page: Client, chat: Chat, play: Plays) -> None:
    play("Planner", AgentDraft(name="Ann", type="human"))
    sent = {"text": "Yes.", "key": "k", "as": "planner"}
    refused = page.post(get_chat_url(chat, "messages"), sent, headers=HTMX)
    assert 'data-reason="no_such_seat"' in refused.content.decode()
    assert not Message.objects.exists()


def test_a_team_of_agents_alone_offers_no_seat(page: Client, chat: Chat, play: Plays) -> None:
    game = play("Planner", "Critic")
    assert "composer-as" not in read_page_html(page, chat)
    assert game.chat.team is not None
    Team.objects.update(current=None)
    assert "composer-as" not in read_page_html(page, chat)


def seats_of(page: Client, chat: Chat) -> str:
    """The choice of whom the owner answers as."""
    found = re.search(r'<select[^>]*id="composer-as".*?</select>', read_page_html(page, chat))
    assert found is not None
    return found[0]


def test_no_round_is_shown_before_the_first_and_when_the_team_left(
    page: Client, chat: Chat, play: Plays
) -> None:
    game = play("Planner")
    assert round_words(page, chat) == ""
    game.ask()
    game.answer("One.")
    assert round_words(page, chat).startswith("Finished.")
    page.post(get_chat_url(chat, "team"), {"team": ""})
    assert round_words(page, chat) == ""
    assert "who--" in article(page, chat, spoken(chat, 2))


def test_a_stopped_round_goes_on(page: Client, chat: Chat, play: Plays) -> None:
    game = play("Planner", "Critic")
    turn = game.ask()
    html = page.post(get_chat_url(chat, f"turns/{turn.pk}/stop"), headers=HTMX).content.decode()
    assert "Stopped before a reply from Planner" in Page(html).words
    assert 'data-round="stopped"' in html
    page.post(get_chat_url(chat, "round/go-on"), headers=HTMX)
    assert game.queued() is not None


# Failures, the live reply, the receipt


@pytest.mark.team_case(15)
def test_a_failed_agent_is_named_behind_the_message_that_it_was_shown(
    page: Client, chat: Chat, play: Plays, work: Work
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("First word.")
    failing = game.queued()
    assert failing is not None
    work(failing, [ProviderError("provider_rejected", status=400)])
    assert game.answer("Last word.") == ["Writer"]

    html = read_page_html(page, chat)
    notice = html.index(f'id="outcome-{failing.pk}"')
    assert html.index("First word.") < notice < html.index("Last word.")
    assert "No complete reply from Critic" in read_page_text(page, chat)
    assert f"turns/{failing.pk}/retry" not in html


@pytest.mark.team_case(15)
def test_the_last_agent_that_failed_is_tried_again_and_the_round_goes_on(
    page: Client, chat: Chat, play: Plays, work: Work
) -> None:
    game = play("Planner", "Critic", goes_on_after_failure=False)
    turn = game.ask("Go.")
    work(turn, [ProviderError("provider_rejected", status=400)])
    html = read_page_html(page, chat)
    assert html.index("Go.</p>") < html.index(f'id="outcome-{turn.pk}"')
    assert "No complete reply from Planner" in read_page_text(page, chat)
    assert 'data-note="no-complete-reply"' in html
    assert 'data-round="failed"' in html

    again = page.post(get_chat_url(chat, f"turns/{turn.pk}/retry"), headers=HTMX).content.decode()

    assert 'data-note="no-complete-reply"' not in again
    assert "data-live" in again
    assert game.answer("Now.", "Fine.") == ["Planner", "Critic"]
    assert round_words(page, chat).startswith("Finished. 2 replies")


def test_the_reply_that_is_being_written_has_its_agents_name(
    page: Client, chat: Chat, play: Plays
) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("One.")
    turn = game.queued()
    assert turn is not None
    mark_running(turn)
    html = read_page_html(page, chat)
    live = html[html.index("data-live") :]
    assert f'<bdi class="msg__who who who--{get_role_shape("critic")}">Critic</bdi>' in live
    assert f'id="turn-{turn.pk}"' in html


def test_replies_written_at_the_same_time_are_all_shown_with_one_button(
    page: Client, chat: Chat, play: Plays
) -> None:
    game = play("Planner", "Critic", "Writer", independent=True)
    game.ask()
    turns = list(Turn.objects.filter(round=game.round()).order_by("lane"))
    assert round_words(page, chat) == "Replies 1 to 3 of up to 8, written at the same time."
    for turn in turns[:2]:
        mark_running(turn)
    html = read_page_html(page, chat)
    places = [html.index(f'id="turn-{turn.pk}"') for turn in turns]
    assert places == sorted(places)
    assert html.count("data-live") == 3
    assert html.count('id="stop"') == 1
    assert html.count('name="all" value="1"') == 1
    page.post(get_chat_url(chat, f"turns/{turns[0].pk}/stop"), headers=HTMX)
    assert [Turn.objects.get(pk=turn.pk).stop_requested_at for turn in turns].count(None) == 2
    page.post(get_chat_url(chat, f"turns/{turns[2].pk}/stop"), {"all": "1"}, headers=HTMX)
    assert [Turn.objects.get(pk=turn.pk).stop_requested_at for turn in turns].count(None) == 0


def test_what_an_agent_saw_is_shown_as_it_was_sent(page: Client, chat: Chat, play: Plays) -> None:
    critic = AgentDraft(name="Critic", instruction="Find what is wrong.", window_size=1)
    game = play("Planner", critic, "Writer", task="Plan a trip to Rome.")
    game.ask("How long?")
    game.answer("Two days. [NEXT:Critic]", "Short.", "Done.")
    game.ask("@Critic again.")
    game.answer("Longer. [NEXT:user]")
    turn = Turn.objects.filter(branch__chat=chat, agent__role_id="critic").latest("accepted")

    found = opened(page, get_chat_url(chat, f"turns/{turn.pk}/receipt")).words

    for told in (
        "Find what is wrong.",
        "You are Critic, a member of a team",
        "Your mates are Planner, Writer.",
        "The team's task: Plan a trip to Rome.",
        "[FROM:Writer] Done.",
        "[FROM:alice] @Critic again.",
        str(LEFT_OUT["window"].receipt),
        "Messages 1 to 3",
    ):
        assert told in found
    assert "[NEXT:Critic]" not in found
    assert "Two days." not in found
    sent_now = "\n".join(content for _, content in game.prompts[-1])
    assert "[FROM:Writer]\nDone." in sent_now
    assert "Two days." not in sent_now


# Again, and erasing


@pytest.mark.team_case(14)
@pytest.mark.parametrize(
    ("way", "after"), [("regenerate", ["Critic"]), ("play-on", ["Critic", "Writer"])]
)
def test_an_agent_replies_again_alone_or_with_those_who_followed(
    page: Client, chat: Chat, play: Plays, way: str, after: list[str]
) -> None:
    game = play("Planner", "Critic", "Writer")
    game.ask("Go.")
    game.answer("One.", "Two.", "Three.")
    middle = spoken(chat, 3)
    acts = page.get(get_chat_url(chat, f"messages/{middle.pk}/")).content.decode()
    assert 'data-act="play-on"' in acts

    answer = page.post(get_chat_url(chat, f"messages/{middle.pk}/{way}"))

    assert answer.headers["Location"] == get_chat_url(chat) + "#tail"
    assert game.answer(*["Again."] * len(after)) == after
    assert game.queued() is None
    html = read_page_html(page, chat)
    assert "One." in html
    assert ">Two.<" not in html
    assert 'aria-label="Version 2 of 2"' in html


def test_the_list_of_branches_has_no_labels_and_markers(
    page: Client, chat: Chat, play: Plays
) -> None:
    game = play("Planner", "Critic")
    game.ask("Go.")
    game.answer("One.", "Two.")
    page.post(get_chat_url(chat, f"messages/{spoken(chat, 3).pk}/regenerate"))
    game.answer("[FROM:Critic] Once more. [NEXT:Planner]")
    html = read_page_html(page, chat)
    assert '<span dir="auto">Once more.</span>' in html
    assert "[FROM:" not in html


def test_a_cut_reply_of_an_agent_is_continued_by_it(
    page: Client, chat: Chat, play: Plays, work: Work
) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("One.")
    turn = game.queued()
    assert turn is not None
    work(turn, [TextDelta("As far"), Finished("length")])
    html = page.post(get_chat_url(chat, f"turns/{turn.pk}/continue"), headers=HTMX).content.decode()
    assert ">Critic</bdi>" in html[html.index("data-live") :]
    game.answer("as it goes.")
    assert 'aria-label="Message 4 from Critic"' in read_page_html(page, chat)
    assert round_words(page, chat).startswith("Finished.")


def test_a_reply_of_no_agent_does_not_play_on(
    page: Client, chat: Chat, talk: Callable[..., Turn]
) -> None:
    talk("hello")
    reply = spoken(chat, 2)
    acts = page.get(get_chat_url(chat, f"messages/{reply.pk}/")).content.decode()
    assert 'data-act="regenerate"' in acts
    assert 'data-act="play-on"' not in acts


@pytest.mark.parametrize("what", ["message", "chat"])
def test_erasing_deletes_the_stored_html_of_what_was_shown(
    page: Client, chat: Chat, play: Plays, what: str
) -> None:
    game = play("Planner", "Critic")
    game.ask()
    game.answer("Planner: The code is **7781**. [NEXT:Critic]", "Noted.")
    read_page_html(page, chat)
    own = compute_rendering_digest("The code is **7781**.")
    assert Rendering.objects.filter(digest=own).exists()
    set_sign_in_time(page, timezone.now())

    rest = "erase" if what == "chat" else f"messages/{spoken(chat, 2).pk}/erase"
    assert page.post(get_chat_url(chat, rest)).status_code in {200, 302}

    assert not Rendering.objects.filter(digest=own).exists()
    if what == "message":
        seen = read_page_html(page, chat)
        assert "7781" not in seen
        assert 'data-note="message-erased"' in seen
        assert 'data-note="nothing-to-add"' not in seen
        assert "Noted." in seen


def test_an_own_message_in_a_teams_chat_is_erased(page: Client, chat: Chat, play: Plays) -> None:
    game = play("Planner")
    game.ask("The code is 7781.")
    game.answer("One.")
    read_page_html(page, chat)
    set_sign_in_time(page, timezone.now() - timedelta(minutes=1))
    page.post(get_chat_url(chat, f"messages/{spoken(chat, 1).pk}/erase"))
    assert "7781" not in read_page_html(page, chat)
    assert not Rendering.objects.filter(
        digest=compute_rendering_digest("The code is 7781.")
    ).exists()


# Chats without a team


def test_a_plain_chat_knows_nothing_of_teams(
    page: Client, chat: Chat, made: Made, talk: Callable[..., Turn]
) -> None:
    made("Ann", name="Crew")
    turn = talk("@Ann hello", "Ann: hi. [NEXT:Ben]")
    html = read_page_html(page, chat)
    for part in (
        'id="round"',
        "who--",
        "msg__to",
        "go-on",
        "written-as-another",
        "Crew",
        "Team: ",
    ):
        assert part not in html
    assert '<bdi class="msg__who ">You</bdi>' in html
    assert "Ann: hi. [NEXT:Ben]" in html
    assert 'aria-label="Message 2, reply"' in html
    assert "Prompt receipt" in opened(page, get_chat_url(chat, f"turns/{turn.pk}/receipt")).words
    told = opened(page, get_chat_url(chat, f"turns/{turn.pk}/receipt")).words
    assert "[FROM:" not in told
    assert "team" not in told


@pytest.mark.requirement("S3.3", by="user")
def test_the_task_of_a_chat_is_set_on_its_page_and_cut_with_a_notice(
    page: Client, chat: Chat
) -> None:
    assert page.post(get_chat_url(chat, "team/task"), {"task": "Sell\r\napples"}).status_code == 302
    chat.refresh_from_db()
    assert chat.team_task == "Sell\napples"
    assert "Sell\napples" in page.get(get_chat_url(chat, "team")).content.decode()
    cut = page.post(get_chat_url(chat, "team/task"), {"task": "a" * 5_121})
    assert "first 5,120 of 5,121 bytes were saved" in cut.content.decode()
    refused = page.post(get_chat_url(chat, "team/task"), {"task": "a\0b"})
    assert (refused.status_code, "a\0b" in refused.content.decode()) == (422, True)
    chat.refresh_from_db()
    assert chat.team_task == "a" * 5_120
