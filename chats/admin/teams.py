"""Admin pages of teams: owner, versions, agents, and actions for shared teams.

Teams are created and edited on their own pages. The names, instructions and task of a personal team
are the owner's content: no page here shows, searches or sorts by them.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import (
    Case,
    CharField,
    Count,
    F,
    OuterRef,
    Prefetch,
    QuerySet,
    Subquery,
    Value,
    When,
)
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, gettext_lazy, ngettext
from django_stubs_ext import StrOrPromise

from chats.admin.bases import ReadOnlyAdmin
from chats.admin.compactions.actions import get_request_user
from chats.admin.confirm import apply_confirmed
from chats.admin.words import render_table
from chats.compaction.people.summary_permissions import EDITS_POLICIES
from chats.models import Agent, Chat, Team, TeamVersion
from chats.teams import rosters
from contextpolicy.wording import join_items

# Values of the filter and their lookups.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "shared": {"owner": None, "deleted_at": None},
    "own": {"owner__isnull": False, "deleted_at": None},
    "deleted": {"deleted_at__isnull": False},
}
WORDS: Mapping[str, StrOrPromise] = {
    "shared": gettext_lazy("Shared"),
    "own": gettext_lazy("Personal"),
    "deleted": gettext_lazy("Deleted"),
}


class KindFilter(admin.SimpleListFilter):
    """Filters teams by kind: shared, personal or deleted."""

    title = gettext_lazy("kind")
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, StrOrPromise]]:
        return list(WORDS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Team]) -> QuerySet[Team]:
        """Return the teams of the chosen kind: shared, personal or deleted. No choice: all."""
        return queryset.filter(**KINDS.get(self.value() or "", {}))


class TeamAdmin(ReadOnlyAdmin):
    """Teams: owner, size and number of chats. The content of a personal team is never shown."""

    actions = ("delete_shared", "bring_back")
    list_display = ("name", "whose", "agents", "chats", "is_offered", "changed_at")
    list_filter = (KindFilter,)
    search_fields = ("owner__username",)
    search_help_text = gettext_lazy(
        "Enter the name of a shared team, or the user name of a team’s owner."
    )
    list_select_related = ("owner", "current")
    ordering = ("-current__created_at", "-created_at")
    fields = (
        "id",
        "name",
        "whose",
        "page",
        "is_offered",
        "created_at",
        "changed_at",
        "deleted_at",
        "chats",
        "members",
        "all_versions",
        "instructions",
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Team]:
        """Annotate the number of agents, and the names of shared teams for sorting."""
        rows: QuerySet[Team] = super().get_queryset(request)
        members = Agent.objects.filter(version=OuterRef("current")).order_by().values("version")
        return rows.annotate(
            agent_count=Subquery(members.annotate(total=Count("pk")).values("total")),
            shared_name=Case(
                When(owner=None, then=F("current__name")),
                default=Value(""),
                output_field=CharField(),
            ),
        )

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Team], search_term: str
    ) -> tuple[QuerySet[Team], bool]:
        """Search shared teams by name and all teams by owner."""
        found, repeats = super().get_search_results(request, queryset, search_term)
        if search_term.strip():
            found |= queryset.filter(owner=None, current__name__icontains=search_term.strip())
        return found, repeats

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Count the chats of all listed teams in one query.

        There is no index for counting the chats of a single team.
        """
        page = super().get_changelist_instance(request)
        counts = count_chats_by_team([team.pk for team in page.result_list])
        for team in page.result_list:
            team.chat_count = counts.get(team.pk, 0)
        return page

    def has_share_permission(self, request: HttpRequest) -> bool:
        """Return True for policy administrators, who also create shared teams on the pages."""
        return get_request_user(request).has_perm(EDITS_POLICIES)

    @admin.action(description=gettext_lazy("Delete shared teams"), permissions=["share"])
    def delete_shared(self, request: HttpRequest, queryset: QuerySet[Team]) -> HttpResponse | None:
        """Delete shared teams after confirmation, so that new chats can no longer use them."""
        rows = queryset.filter(**KINDS["shared"])
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            rows,
            title=gettext("Delete shared teams"),
            sentence=gettext(
                "New chats can no longer use these shared teams; existing chats keep them. "
                "Selected personal teams are skipped: only their owner can delete them."
            ),
            action=lambda row: rosters.delete_team(user=user, team_id=row.pk, now=now),
            done=gettext("deleted."),
        )

    @admin.action(description=gettext_lazy("Restore shared teams"), permissions=["share"])
    def bring_back(self, request: HttpRequest, queryset: QuerySet[Team]) -> HttpResponse | None:
        """Restore deleted shared teams, after confirmation."""
        rows = queryset.filter(owner=None, **KINDS["deleted"])
        user, now = get_request_user(request), timezone.now()
        return apply_confirmed(
            self,
            request,
            rows,
            title=gettext("Restore shared teams"),
            sentence=gettext("All users can use these shared teams in new chats again."),
            action=lambda row: rosters.restore_team(user=user, team_id=row.pk, now=now),
            done=gettext("restored."),
        )

    @admin.display(description=gettext_lazy("Name"), ordering="shared_name")
    def name(self, team: Team) -> str:
        return str(team)

    @admin.display(description=gettext_lazy("Owner"), ordering="owner__username")
    def whose(self, team: Team) -> str:
        return team.owner.get_username() if team.owner else gettext("shared")

    @admin.display(description=gettext_lazy("Agents"), ordering="agent_count")
    def agents(self, team: Team) -> int:
        """Return the number of members in the current version, including people."""
        return int(getattr(team, "agent_count", None) or 0)

    @admin.display(description=gettext_lazy("Chats"))
    def chats(self, team: Team) -> int:
        known: int | None = getattr(team, "chat_count", None)
        return count_chats_by_team([team.pk]).get(team.pk, 0) if known is None else known

    @admin.display(description=gettext_lazy("Available"), boolean=True, ordering="deleted_at")
    def is_offered(self, team: Team) -> bool:
        """Return True if new chats can use the team."""
        return team.deleted_at is None

    @admin.display(description=gettext_lazy("Last change"), ordering="current__created_at")
    def changed_at(self, team: Team) -> str:
        """Return the creation time of the current version; empty if there is none."""
        return f"{team.current.created_at:%Y-%m-%d %H:%M:%S} UTC" if team.current else ""

    @admin.display(description=gettext_lazy("Edit page"))
    def page(self, team: Team) -> str | SafeString:
        """Return a link to the page where a shared team is edited."""
        if team.owner_id is not None:
            message = gettext("Personal team: only its owner can open and edit it.")
            return format_html('<span data-note="owner-only">{}</span>', message)
        if team.deleted_at is not None or team.current is None:
            message = gettext("Restore the team to edit it.")
            return format_html('<span data-note="restore-to-edit">{}</span>', message)
        address = reverse("chats:team-edit", args=[team.pk])
        return format_html('<a href="{}">{}</a>', address, gettext("Edit team"))

    @admin.display(description=gettext_lazy("Agents"))
    def members(self, team: Team) -> SafeString:
        """Return a table of the current members. Members of a personal team are only numbered."""
        heads = [
            gettext("Name"),
            gettext("Role"),
            gettext("Kind"),
            gettext("Model"),
            gettext("Prompt format"),
            gettext("Window"),
            gettext("Policy"),
            gettext("Inactive"),
        ]
        shown = build_agent_namer(team)
        found = Agent.objects.filter(version=team.current_id).select_related("model", "policy")
        rows = [
            [
                shown(number, agent.name),
                # The role ID is derived from the name.
                shown(number, agent.role_id),
                agent.get_type_display(),
                agent.model.slug if agent.model else gettext("the chat’s model"),
                agent.get_prompt_form_display(),
                agent.window_size,
                agent.policy.slug if agent.policy else "",
                gettext("yes") if agent.rests else "",
            ]
            for number, agent in enumerate(found, 1)
        ]
        return render_table(heads, rows)

    @admin.display(description=gettext_lazy("Versions"))
    def all_versions(self, team: Team) -> SafeString:
        """Return a table of the versions, newest first, with rules and agents."""
        heads = [
            gettext("Version"),
            gettext("Name"),
            gettext("Routing"),
            gettext("Replies"),
            gettext("Tokens"),
            gettext("Seconds"),
            gettext("Message limit"),
            gettext("Byte limit"),
            gettext("Agents"),
            gettext("Created"),
        ]
        members = Prefetch("agents", queryset=Agent.objects.only("version_id", "name", "place"))
        rows = [
            [
                version.number,
                version.name if team.owner_id is None else str(team),
                version.get_routing_display(),
                version.hop_limit,
                version.token_limit,
                version.seconds_limit,
                version.message_cap or gettext("none"),
                version.max_bytes or gettext("none"),
                join_items(agent.name for agent in version.agents.all())
                if team.owner_id is None
                else len(version.agents.all()),
                f"{version.created_at:%Y-%m-%d %H:%M:%S} UTC",
            ]
            for version in list_team_versions(team).prefetch_related(members)
        ]
        return render_table(heads, rows)

    @admin.display(description=gettext_lazy("Instructions"))
    def instructions(self, team: Team) -> str | SafeString:
        """Return a shared team's instructions, or only their length for a personal team."""
        found = Agent.objects.filter(version=team.current_id)
        heads = [gettext("Name"), gettext("Instruction"), gettext("Instruction file")]
        if team.owner_id is None:
            rows = [[each.name, each.instruction, each.instruction_file_text] for each in found]
            task = team.current.task if team.current else ""
            if task:
                rows.append([gettext("Team task"), task, ""])
            return render_table(heads, rows)
        sizes = [
            [
                format_agent_number(number),
                format_text_length(each.instruction),
                format_text_length(each.instruction_file_text),
            ]
            for number, each in enumerate(found, 1)
        ]
        return render_table(heads, sizes)


def build_agent_namer(team: Team) -> Callable[[int, str], str]:
    """Return a function that maps position and name of an agent to its display name.

    In a personal team, agents are only numbered, because their names are private.
    """
    if team.owner_id is None:
        return lambda _number, name: name
    return lambda number, _name: format_agent_number(number)


def format_agent_number(number: int) -> str:
    """Return "Agent 2" for an agent whose name is private."""
    return gettext("Agent {number}").format(number=number)


def list_team_versions(team: Team) -> QuerySet[TeamVersion]:
    """Return the versions of a team without their tasks, newest first."""
    return TeamVersion.objects.filter(team=team).defer("task").order_by("-number")


def format_text_length(text: str) -> str:
    """Return the length of a private text in characters."""
    said = ngettext("{n:,} character", "{n:,} characters", len(text)).format(n=len(text))
    return said if text else gettext("none")


def count_chats_by_team(teams: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Return the number of chats per team, without deleted chats."""
    rows = Chat.objects.filter(team__in=teams, deleted_at=None).order_by().values("team")
    return dict(rows.annotate(total=Count("pk")).values_list("team", "total"))
