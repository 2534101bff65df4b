"""Team pages: list, create, edit, copy and delete teams, choose one, continue rounds."""

import uuid
from collections.abc import Sequence
from dataclasses import replace

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext_noop
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.actions import lifecycle
from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.ground.refusals import Refusal
from chats.models import Chat, Team, TeamVersion
from chats.record import access
from chats.teams import conversation, play, rosters, team_drafts
from chats.teams.presets import PRESETS
from chats.teams.rosters import Saved
from chats.teams.team_drafts import TeamDraft
from chats.web.auth import PersonRequest, count_message, format_actor, signed_in
from chats.web.team_forms import NEW_AGENT, ResponderForm, TaskForm, TeamForms
from chats.web.thread.updates import render_tail_update
from contextpolicy.engine.team.rounds import MOST_MEMBERS
from contextpolicy.models import ContextPolicy


class NoResponderChosen(Refusal):
    """The form names neither the chat's model nor a team."""

    code = "team_missing"
    status = 422
    sentence = gettext_noop("Nothing is chosen. Choose the chat’s model or a team.")
    param = "team"


@require_GET
@signed_in
def teams(request: PersonRequest) -> HttpResponse:
    """List the user's teams, shared teams and presets."""
    rows = list(
        access.get_visible_teams(user=request.user)
        .select_related("current")
        .prefetch_related("current__agents")
        .order_by("created_at")
    )
    context = {
        "own": [team for team in rows if team.owner_id is not None],
        "shared": [team for team in rows if team.owner_id is None],
        "presets": PRESETS.items(),
        "may_share": request.user.has_perm(EDITS_POLICIES),
    }
    return render(request, "chats/teams.html", context)


@require_http_methods(["GET", "POST"])
@signed_in
def team_new(request: PersonRequest) -> HttpResponse:
    """Show the form for a new team, optionally from a preset, or create the team."""
    if request.method == "GET":
        empty = TeamDraft(name="", agents=(NEW_AGENT, NEW_AGENT))
        draft = PRESETS.get(request.GET.get("preset", ""), empty)
        return render_team_form(request, build_team_forms(request, draft=draft))
    sent = build_team_forms(request)
    if request.POST.get("do") != "save":
        return render_team_form(request, change_members(request, sent))
    with sent.catch_refusal():
        saved = rosters.create_team(
            user=request.user,
            draft=sent.draft,
            shared=sent.is_shared,
            now=timezone.now(),
        )
        return render_saved_team(request, saved)
    return render_team_form(request, sent)


@require_http_methods(["GET", "POST"])
@signed_in
def team_edit(request: PersonRequest, team_id: uuid.UUID) -> HttpResponse:
    """Show a team, or save a new version."""
    known = access.get_team(user=request.user, team_id=team_id)
    if request.method == "GET":
        return render_team_form(request, build_version_forms(request, known), team=known)
    sent = build_team_forms(request)
    if request.POST.get("do") != "save":
        return render_team_form(request, change_members(request, sent), team=known)
    with sent.catch_refusal():
        saved = rosters.update_team(
            user=request.user,
            team_id=team_id,
            draft=sent.draft,
            now=timezone.now(),
            based_on=sent.based_on or None,
        )
        return render_saved_team(request, saved)
    return render_team_form(request, sent, team=known)


def get_team_version(team: Team) -> TeamVersion:
    """Return a team's current version, which every visible team has."""
    if team.current is None:
        raise ValueError(f"team {team.pk} has no version")
    return team.current


def render_saved_team(request: PersonRequest, saved: Saved) -> HttpResponse:
    """Redirect to the list, or show the team again with warnings."""
    if not saved.warnings:
        return redirect(reverse("chats:teams") + f"#team-{saved.team.pk}")
    forms = build_version_forms(request, saved.team)
    return render_team_form(request, forms, team=saved.team, warnings=saved.warnings)


@require_POST
@signed_in
def team_copy(request: PersonRequest, team_id: uuid.UUID) -> HttpResponse:
    saved = rosters.copy_team(user=request.user, team_id=team_id, now=timezone.now())
    return redirect("chats:team-edit", saved.team.pk)


@require_POST
@signed_in
def team_delete(request: PersonRequest, team_id: uuid.UUID) -> HttpResponse:
    """Delete the team, so that it is no longer offered for new chats."""
    rosters.delete_team(user=request.user, team_id=team_id, now=timezone.now())
    return redirect("chats:teams")


@require_POST
@signed_in
def round_go_on(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    count_message(request)
    play.continue_round(user=request.user, chat=chat, now=timezone.now())
    return render_tail_update(request, access.get_chat(user=request.user, chat_id=chat_id))


@require_http_methods(["GET", "POST"])
@signed_in
def chat_team(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Show or change who replies in a chat: a team, or its model alone."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    if request.method == "GET":
        return render_team_choice(request, chat)
    form = ResponderForm(request.POST, teams=list_chat_teams(request, chat))
    with form.catch_refusal():
        rosters.set_chat_team(
            user=request.user,
            chat=chat,
            team_id=read_responder(form),
            now=timezone.now(),
        )
        return redirect("chats:chat", chat.pk)
    return render_team_choice(request, chat, form=form)


def read_responder(form: ResponderForm) -> uuid.UUID | None:
    """Return the ID of the chosen team; None for the chat's model.

    Raises `NoResponderChosen` for a form without a choice.
    """
    if "team" not in form.data:
        raise NoResponderChosen
    return parse_uuid_or_nil(form.read_values()["team"])


@require_POST
@signed_in
def chat_task(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Set the task of the chat's team. Shows a notice if it was truncated."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    form = TaskForm(request.POST)
    task = form.read_values()["task"]
    with form.catch_refusal():
        chat = conversation.set_task(
            chat=chat, task=task, actor=format_actor(request), now=timezone.now()
        )
        notice = conversation.cut_notice(task, kept=chat.team_task or "")
        if notice:
            return render_team_choice(request, chat, notice=notice)
        return redirect("chats:chat", chat.pk)
    return render_team_choice(request, chat, task_form=form)


def render_team_choice(
    request: PersonRequest,
    chat: Chat,
    *,
    form: ResponderForm | None = None,
    task_form: TaskForm | None = None,
    notice: str = "",
) -> HttpResponse:
    """Render the page. Forms that are given keep their values and their refusal."""
    chosen = {"team": str(chat.team_id or "")}
    teams = list_chat_teams(request, chat)
    form = form or ResponderForm(initial=chosen, teams=teams)
    task_form = task_form or TaskForm(initial={"task": chat.team_task or ""})
    refusal = form.refusal or task_form.refusal
    context = {
        "chat": chat,
        "form": form,
        "has_choice": bool(teams),
        "task_form": task_form,
        "notice": notice,
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200
    return render(request, "chats/team_choice.html", context, status=status)


def parse_uuid_or_nil(text: str) -> uuid.UUID | None:
    """Return the parsed ID; None for an empty one, the nil UUID for an invalid one."""
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        return uuid.UUID(int=0)


def list_selectable_teams(request: PersonRequest) -> Sequence[Team]:
    rows = access.get_visible_teams(user=request.user).select_related("current")
    return list(rows.order_by("current__name", "pk"))


def list_chat_teams(request: PersonRequest, chat: Chat) -> Sequence[Team]:
    """Return the selectable teams, and the team of the chat even if it is deleted."""
    teams = list(list_selectable_teams(request))
    if chat.team is not None and chat.team not in teams:
        teams.append(chat.team)
    return teams


def build_version_forms(request: PersonRequest, team: Team) -> TeamForms:
    """Return the forms with the values of a team's current version."""
    version = get_team_version(team)
    draft = team_drafts.build_version_draft(version)
    return build_team_forms(request, draft=draft, based_on=version.number)


def build_team_forms(
    request: PersonRequest, *, draft: TeamDraft | None = None, based_on: int = 0
) -> TeamForms:
    """Return the forms with the values of the draft, or with those of the request.

    `based_on`: the number of the version that the draft changes.
    """
    policies: list[tuple[str, str]] = []
    if request.user.has_perm(EDITS_POLICIES):
        rows = ContextPolicy.objects.filter(retired=False, current__isnull=False)
        policies = [(policy.slug, policy.name) for policy in rows.order_by("name")]
    options = {
        "models": [(model.slug, str(model)) for model in lifecycle.load_enabled_models()],
        "policies": policies,
    }
    if draft is None:
        return TeamForms.from_data(request.POST, options=options)
    return TeamForms.from_draft(draft, options=options, based_on=based_on)


def change_members(request: PersonRequest, sent: TeamForms) -> TeamForms:
    """Return the forms with a member added or removed, depending on the pressed button."""
    do, agents = request.POST.get("do", ""), list(sent.draft.agents)
    if do == "add" and len(agents) < MOST_MEMBERS:
        agents.append(NEW_AGENT)
    removals = [f"remove-{place}" for place in range(len(agents))]
    if do in removals:
        del agents[removals.index(do)]
    draft = replace(sent.draft, agents=agents)
    changed = build_team_forms(request, draft=draft, based_on=sent.based_on)
    changed.team.initial["shared"] = sent.is_shared
    return changed


def render_team_form(
    request: PersonRequest,
    sent: TeamForms,
    *,
    team: Team | None = None,
    warnings: Sequence[str] = (),
) -> HttpResponse:
    """Render the form with its values and the prompt texts of each agent."""
    may_edit_policies = request.user.has_perm(EDITS_POLICIES)
    context = {
        "team": team,
        "name": sent.draft.name,
        "form": sent.team,
        "agents": sent.agents,
        "most": MOST_MEMBERS,
        "may_share": may_edit_policies,
        "may_change": team is None or team.owner_id is not None or may_edit_policies,
        "warnings": warnings,
        "refusal": sent.team.refusal,
    }
    return render(request, "chats/team_form.html", context, status=sent.team.status)
