"""Team pages: list, create, edit, copy and delete teams, choose one, continue rounds."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.actions import lifecycle
from chats.compaction.people.rights import EDITS_POLICIES
from chats.ground.refusals import Refusal
from chats.models import Agent, Chat, Team, TeamVersion
from chats.record import access
from chats.teams import conversation, play, rosters
from chats.teams.presets import PRESETS, WINDOW
from chats.teams.rosters import AgentDraft, Saved, TeamDraft
from chats.web.auth import PersonRequest, count_message, format_actor, signed_in
from chats.web.thread.entries import get_role_shape
from chats.web.thread.updates import render_tail_update
from contextpolicy.engine.team.rounds import MOST_MEMBERS
from contextpolicy.engine.team.team import MAX_BYTES
from contextpolicy.models import ContextPolicy

# Text and number fields of the form, named like the draft's fields.
TEXTS = ("name", "role_id", "type", "agent_type", "model", "instruction", "policy")
LIMITS = ("hop_limit", "token_limit", "seconds_limit")
# Default window that contains a whole round.
EMPTY = AgentDraft(name="", window_size=WINDOW)


@dataclass(frozen=True, slots=True)
class AgentFields:
    """An agent in the form: position, typed values, and its prompt texts."""

    place: int
    draft: AgentDraft
    told: Sequence[str]
    error: str = ""
    # The refused field, as the API names it.
    param: str = ""

    @property
    def shape(self) -> str:
        """CSS classes for the agent's colour and shape in chats; empty for a new agent."""
        return f"who who--{get_role_shape(self.draft.role_id)}" if self.draft.role_id else ""


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
        empty = TeamDraft(name="", agents=(EMPTY, EMPTY))
        return render_team_form(request, PRESETS.get(request.GET.get("preset", ""), empty))
    draft = parse_team_draft(request)
    if request.POST.get("do") != "save":
        return render_team_form(request, update_draft_agents(request, draft))
    try:
        saved = rosters.create_team(
            user=request.user, draft=draft, shared="shared" in request.POST, now=timezone.now()
        )
    except Refusal as refusal:
        return render_team_form(request, draft, refusal=refusal)
    return render_saved_team(request, saved)


@require_http_methods(["GET", "POST"])
@signed_in
def team_edit(request: PersonRequest, team_id: uuid.UUID) -> HttpResponse:
    """Show a team, or save a new version."""
    known = access.get_team(user=request.user, team_id=team_id)
    if request.method == "GET":
        return render_team_form(
            request, rosters.build_version_draft(get_team_version(known)), team=known
        )
    draft = parse_team_draft(request)
    if request.POST.get("do") != "save":
        return render_team_form(request, update_draft_agents(request, draft), team=known)
    try:
        saved = rosters.update_team(
            user=request.user, team_id=team_id, draft=draft, now=timezone.now()
        )
    except Refusal as refusal:
        return render_team_form(request, draft, team=known, refusal=refusal)
    return render_saved_team(request, saved)


def get_team_version(team: Team) -> TeamVersion:
    """Return a team's current version, which every visible team has."""
    if team.current is None:
        raise ValueError(f"team {team.pk} has no version")
    return team.current


def render_saved_team(request: PersonRequest, saved: Saved) -> HttpResponse:
    """Redirect to the list, or show the team again with warnings."""
    if not saved.warnings:
        return redirect(reverse("chats:teams") + f"#team-{saved.team.pk}")
    draft = rosters.build_version_draft(get_team_version(saved.team))
    return render_team_form(request, draft, team=saved.team, warnings=saved.warnings)


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
    refusal = None
    if request.method == "POST":
        chosen = request.POST.get("team", "")
        try:
            rosters.set_chat_team(
                user=request.user,
                chat=chat,
                team_id=parse_uuid_or_nil(chosen),
                now=timezone.now(),
            )
        except Refusal as error:
            refusal = error
        else:
            return redirect("chats:chat", chat.pk)
    return render_team_choice(request, chat, refusal=refusal)


@require_POST
@signed_in
def chat_task(request: PersonRequest, chat_id: uuid.UUID) -> HttpResponse:
    """Set the task of the chat's team. Shows a notice if it was truncated."""
    chat = access.get_chat(user=request.user, chat_id=chat_id)
    task = normalise_line_ends(request.POST.get("task", ""))
    try:
        chat = conversation.set_task(
            chat=chat, task=task, actor=format_actor(request), now=timezone.now()
        )
    except Refusal as refusal:
        return render_team_choice(request, chat, refusal=refusal, task=task)
    notice = conversation.cut_notice(task, kept=chat.team_task or "")
    if notice:
        return render_team_choice(request, chat, notice=notice)
    return redirect("chats:chat", chat.pk)


def render_team_choice(
    request: PersonRequest,
    chat: Chat,
    *,
    refusal: Refusal | None = None,
    task: str | None = None,
    notice: str = "",
) -> HttpResponse:
    context = {
        "chat": chat,
        "teams": list_selectable_teams(request),
        "task": (chat.team_task or "") if task is None else task,
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
    return list(rows.order_by("current__name", "pk")[:100])


def parse_team_draft(request: HttpRequest) -> TeamDraft:
    """Return the form as typed. Invalid numbers become -1, which validation refuses."""
    sent = request.POST
    count = min(parse_whole_number(sent.get("agents", "")), MOST_MEMBERS + 1)
    agents = [
        AgentDraft(
            **{name: normalise_line_ends(sent.get(f"agent-{place}-{name}", "")) for name in TEXTS},
            instruction_file_text=normalise_line_ends(
                sent.get(f"agent-{place}-instruction_file_text", "")
            ),
            prompt_form=sent.get(f"agent-{place}-prompt_form") or Agent.PromptForm.MESSAGES,
            window_size=parse_whole_number(sent.get(f"agent-{place}-window_size", "")),
            rests=f"agent-{place}-rests" in sent,
        )
        for place in range(max(count, 0))
    ]
    return TeamDraft(
        name=sent.get("name", ""),
        agents=[replace(agent, type=agent.type or Agent.Type.AI) for agent in agents],
        routing=sent.get("routing", ""),
        independent="independent" in sent,
        goes_on_after_failure="goes_on_after_failure" in sent,
        message_cap=parse_whole_number(sent.get("message_cap") or "0"),
        max_bytes=parse_whole_number(sent.get("max_bytes") or str(MAX_BYTES)),
        task=normalise_line_ends(sent.get("task", "")),
        **{name: parse_whole_number(sent.get(name, "")) for name in LIMITS},
    )


def normalise_line_ends(text: str) -> str:
    """Return the text with LF line ends, because browsers send CRLF."""
    return text.replace("\r\n", "\n")


def parse_whole_number(text: str) -> int:
    """Return a whole number, or -1, which every limit refuses."""
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def update_draft_agents(request: HttpRequest, draft: TeamDraft) -> TeamDraft:
    """Return the draft with an agent added or removed, depending on the pressed button."""
    do, agents = request.POST.get("do", ""), list(draft.agents)
    if do == "add" and len(agents) < MOST_MEMBERS:
        agents.append(EMPTY)
    remove = parse_whole_number(do.removeprefix("remove-"))
    if do.startswith("remove-") and 0 <= remove < len(agents):
        del agents[remove]
    return replace(draft, agents=agents)


def render_team_form(
    request: PersonRequest,
    draft: TeamDraft,
    *,
    team: Team | None = None,
    refusal: Refusal | None = None,
    warnings: Sequence[str] = (),
) -> HttpResponse:
    """Render the form with the typed values and the prompt texts of each agent."""
    param = (refusal.param if refusal else "") or ""
    fields = [
        AgentFields(
            place,
            agent,
            told=play.preview_agent_texts(agent, draft=draft),
            error=refusal.localized if refusal and param.startswith(f"agents.{place}.") else "",
            param=param,
        )
        for place, agent in enumerate(draft.agents)
    ]
    may_edit_policies = request.user.has_perm(EDITS_POLICIES)
    policies = ContextPolicy.objects.filter(retired=False, current__isnull=False)
    context = {
        "team": team,
        "draft": draft,
        "agents": fields,
        "most": MOST_MEMBERS,
        "routings": TeamVersion.Routing.choices,
        "prompt_forms": Agent.PromptForm.choices,
        "models": lifecycle.load_enabled_models(),
        "policies": policies.order_by("name") if may_edit_policies else (),
        "may_share": may_edit_policies,
        "shared": "shared" in request.POST,
        "may_change": team is None or team.owner_id is not None or may_edit_policies,
        "warnings": warnings,
        "refusal": refusal,
    }
    status = refusal.status if refusal else 200
    return render(request, "chats/team_form.html", context, status=status)
