"""The new-chat page. The first message creates the chat."""

from collections.abc import Sequence
from itertools import groupby

from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext, gettext_lazy, gettext_noop
from django.views.decorators.http import require_http_methods

from chats.actions import lifecycle
from chats.ground.refusals import Refusal
from chats.models import Chat, Team
from chats.prompt import model_choice
from chats.record.idempotency import IdempotencyKeyReused
from chats.teams.ahead import load_active_agent_names
from chats.web.auth import PersonRequest, count_message, signed_in
from chats.web.errors import set_retry_after
from chats.web.shell import build_shell
from chats.web.teams import list_selectable_teams, parse_uuid_or_nil
from chats.web.thread.composer import Mention, build_composer
from chats.web.thread.message_forms import NewChatForm
from contextpolicy import resolution
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.engine.team.team_view import EVERYBODY

# Suggested first messages: button label, purpose, text.
SUGGESTIONS = (
    (
        gettext_lazy("Explain a text in plain words"),
        gettext_lazy("Paste a letter, a contract or an error message"),
        gettext_lazy("Explain this in plain words, step by step:\n\n"),
    ),
    (
        gettext_lazy("Draft a reply"),
        gettext_lazy("Paste the message that you received, and describe your reply"),
        gettext_lazy("Draft a short, friendly reply to this message:\n\n"),
    ),
    (
        gettext_lazy("Review some code"),
        gettext_lazy("Errors, unclear names, missing cases"),
        gettext_lazy("Review this code. List errors first, then unclear parts:\n\n"),
    ),
    (
        gettext_lazy("See the next prompt"),
        gettext_lazy("Ask two questions, then open “Prompt receipt”"),
        gettext_lazy("What do you know about our conversation so far?"),
    ),
)


class AlreadyBegun(Refusal):
    """The form started a chat and the response was lost, but the text has changed since."""

    code = "already_sent"
    status = 409
    sentence = gettext_noop(
        "An earlier version of this message was already sent and started a chat, which is in your "
        "chat list. Send again to start another chat with this text."
    )


@require_http_methods(["GET", "POST"])
@signed_in
def chat_new(request: PersonRequest) -> HttpResponse:
    """Show the page, or create the chat with its first message."""
    if request.method == "GET":
        return render_new_chat(request)
    form = NewChatForm(request.POST)
    sent = form.read_values()
    try:
        count_message(request)
        accepted = lifecycle.start_in_new_chat(
            user=request.user,
            text=sent["text"],
            now=timezone.now(),
            model_slug=sent["model"],
            temporary=sent["temporary"],
            team_id=parse_uuid_or_nil(sent["team"]),
            idempotency_key=sent["key"],
            files=sent["files"],
            unread=sent["unread"],
        )
    except IdempotencyKeyReused:
        form.refuse(AlreadyBegun())
    except Refusal as refusal:
        form.refuse(refusal)
    else:
        return redirect(reverse("chats:chat", args=[accepted.turn.branch.chat_id]))
    return render_new_chat(request, form)


def load_new_chat_values(user: User) -> PolicyValues:
    """Return the policy values for a new chat of this user, without a model.

    The model's context window does not limit the first message, so no model is needed. If the
    policies cannot work, returns the defaults.
    """
    try:
        effective = model_choice.resolve_effective_policy(chat=Chat(owner=user), model=None)
    except model_choice.PolicyRefused:
        return PolicyValues()
    return resolution.load_policy_values(effective)


def list_team_mentions(teams: Sequence[Team]) -> list[Mention]:
    """Return the `@` mentions of each team: its active agents, then `@all`."""
    found: list[Mention] = []
    for team, pairs in groupby(load_active_agent_names(teams), key=lambda pair: pair[0]):
        found += [(name, "", str(team.pk)) for _, name in pairs]
        found.append((EVERYBODY, gettext("every agent"), str(team.pk)))
    return found


def render_new_chat(request: PersonRequest, form: NewChatForm | None = None) -> HttpResponse:
    """Render the page. A refused message stays in the message box."""
    sent = form.read_values() if form else {}
    models = lifecycle.load_enabled_models()
    teams = list_selectable_teams(request)
    policy = load_new_chat_values(request.user)
    composer = build_composer(
        user=request.user,
        chat=None,
        limit=policy.input_length_limit,
        sent=form,
        models=models,
        team_names=list_team_mentions(teams),
    )
    team = sent.get("team") or request.GET.get("team", "")
    values = {
        "shell": build_shell(user=request.user),
        "composer": composer,
        "suggestions": SUGGESTIONS,
        "may_be_temporary": policy.temporary_chats,
        "erased_after": policy.retention_days,
        "temporary": sent.get("temporary", False),
        "teams": teams,
        "chosen_team": team,
        "is_team_gone": bool(team) and team not in {str(each.pk) for each in teams},
        "temporary_hours": settings.TEMPORARY_CHAT_HOURS,
        "only_demo": bool(composer.models) and all(choice.is_demo for choice in composer.models),
        # The picker is also empty if the policy does not work with any model.
        "no_model": all(model.provider_name is None for model in models),
    }
    response = render(request, "chats/new.html", values, status=form.status if form else 200)
    return set_retry_after(response, form.refusal) if form and form.refusal else response
