"""The administration's pages of teams: whose they are, their versions and agents, two actions.

Teams are made and changed on their own pages. The instructions and the task of a person's own team
are that person's words: no page here prints them.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.admin.views.main import ChangeList
from django.db.models import Count, OuterRef, Prefetch, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString

from chats.admin.compaction_deeds import person
from chats.admin.confirm import confirmation, each
from chats.admin.words import as_table
from chats.compaction.people.rights import EDITS_POLICIES
from chats.models import Agent, Chat, Team, TeamVersion
from chats.teams import rosters
from contextpolicy.admin.bases import ReadOnlyAdmin

# The values of the filter, and what they select.
KINDS: Mapping[str, Mapping[str, Any]] = {
    "shared": {"owner": None, "deleted_at": None},
    "own": {"owner__isnull": False, "deleted_at": None},
    "deleted": {"deleted_at__isnull": False},
}
WORDS = {"shared": "Shared", "own": "Of one person", "deleted": "Deleted"}


class KindFilter(admin.SimpleListFilter):
    """Selects teams of everybody, of one person, or deleted ones."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the choices."""
        return list(WORDS.items())

    def queryset(self, request: HttpRequest, queryset: QuerySet[Team]) -> QuerySet[Team]:
        """Select the chosen teams; all without a choice."""
        return queryset.filter(**KINDS.get(self.value() or "", {}))


class TeamAdmin(ReadOnlyAdmin):
    """The teams: whose, how large, in how many chats; never an own team's instructions."""

    actions = ("delete_shared", "bring_back")
    list_display = ("name", "whose", "agents", "chats", "is_offered", "changed_at")
    list_filter = (KindFilter,)
    search_fields = ("current__name", "owner__username")
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
        """Count the agents in the same query."""
        rows: QuerySet[Team] = super().get_queryset(request)
        members = Agent.objects.filter(version=OuterRef("current")).order_by().values("version")
        return rows.annotate(
            agent_count=Subquery(members.annotate(total=Count("pk")).values("total"))
        )

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        """Count the chats of all teams on the page at once: no index leads to those of one."""
        page = super().get_changelist_instance(request)
        counts = chats_by_team([team.pk for team in page.result_list])
        for team in page.result_list:
            team.chat_count = counts.get(team.pk, 0)
        return page

    def has_share_permission(self, request: HttpRequest) -> bool:
        """Allow whoever edits policies: they make teams for everybody on the pages too."""
        return person(request).has_perm(EDITS_POLICIES)

    @admin.action(description="Delete shared teams", permissions=["share"])
    def delete_shared(self, request: HttpRequest, queryset: QuerySet[Team]) -> HttpResponse | None:
        """Offer shared teams for no new chat any more, after asking."""
        rows = queryset.filter(**KINDS["shared"])
        asked = confirmation(
            self,
            request,
            rows,
            title="Delete",
            sentence="These shared teams are offered for no new chat any more; chats that have "
            "one keep it. Teams of one person are not among them: only that person deletes them.",
        )
        if asked is not None:
            return asked
        user, now = person(request), timezone.now()
        each(
            self,
            request,
            rows,
            deed=lambda row: rosters.delete(user=user, team_id=row.pk, now=now),
            done="deleted.",
        )
        return None

    @admin.action(description="Bring shared teams back", permissions=["share"])
    def bring_back(self, request: HttpRequest, queryset: QuerySet[Team]) -> HttpResponse | None:
        """Offer deleted teams of everybody again, after asking."""
        rows = queryset.filter(owner=None, **KINDS["deleted"])
        asked = confirmation(
            self,
            request,
            rows,
            title="Bring back",
            sentence="Everybody may let these shared teams reply again.",
        )
        if asked is not None:
            return asked
        user, now = person(request), timezone.now()
        each(
            self,
            request,
            # Read before the first of them changes what is selected.
            list(rows),
            deed=lambda row: rosters.restore(user=user, team_id=row.pk, now=now),
            done="brought back.",
        )
        return None

    @admin.display(description="Name", ordering="current__name")
    def name(self, team: Team) -> str:
        """Return the name of its present version."""
        return str(team)

    @admin.display(description="Whose", ordering="owner__username")
    def whose(self, team: Team) -> str:
        """Name the owner, or say that it is everybody's."""
        return team.owner.get_username() if team.owner else "shared"

    @admin.display(description="Agents", ordering="agent_count")
    def agents(self, team: Team) -> int:
        """Count the members of its present version, with the persons among them."""
        return int(getattr(team, "agent_count", None) or 0)

    @admin.display(description="Chats")
    def chats(self, team: Team) -> int:
        """Count the chats in which it replies."""
        known: int | None = getattr(team, "chat_count", None)
        return chats_by_team([team.pk]).get(team.pk, 0) if known is None else known

    @admin.display(description="Offered", boolean=True, ordering="deleted_at")
    def is_offered(self, team: Team) -> bool:
        """Tell whether new chats may have it: it was not deleted."""
        return team.deleted_at is None

    @admin.display(description="Last change", ordering="current__created_at")
    def changed_at(self, team: Team) -> str:
        """Return the time of its present version."""
        return f"{team.current.created_at:%Y-%m-%d %H:%M:%S} UTC" if team.current else ""

    @admin.display(description="Page")
    def page(self, team: Team) -> str | SafeString:
        """Lead to the page where a shared team is changed."""
        if team.owner_id is not None:
            return "Only its owner opens and changes it."
        if team.deleted_at is not None or team.current is None:
            return "Bring it back to change it."
        address = reverse("chats:team-edit", args=[team.pk])
        return format_html('<a href="{}">Open and change this team</a>', address)

    @admin.display(description="Agents")
    def members(self, team: Team) -> SafeString:
        """List the members of its present version, with their settings."""
        heads = ["Name", "Role", "Kind", "Model", "Prompt form", "Window", "Policy", "Rests"]
        found = Agent.objects.filter(version=team.current_id).select_related("model", "policy")
        rows = [
            [
                agent.name,
                agent.role_id,
                agent.get_type_display(),
                agent.model.slug if agent.model else "of the chat",
                agent.get_prompt_form_display(),
                agent.window_size,
                agent.policy.slug if agent.policy else "",
                "yes" if agent.rests else "",
            ]
            for agent in found
        ]
        return as_table(heads, rows)

    @admin.display(description="Versions")
    def all_versions(self, team: Team) -> SafeString:
        """List its versions, newest first, with their rules and the names in them."""
        heads = [
            "Version",
            "Name",
            "Who replies",
            "Replies",
            "Tokens",
            "Seconds",
            "Cap",
            "Bytes",
            "Agents",
            "Made",
        ]
        members = Prefetch("agents", queryset=Agent.objects.only("version_id", "name", "place"))
        rows = [
            [
                version.number,
                version.name,
                version.get_routing_display(),
                version.hop_limit,
                version.token_limit,
                version.seconds_limit,
                version.message_cap or "none",
                version.max_bytes or "none",
                ", ".join(agent.name for agent in version.agents.all()),
                f"{version.created_at:%Y-%m-%d %H:%M:%S} UTC",
            ]
            for version in newest_versions(team).prefetch_related(members)
        ]
        return as_table(heads, rows)

    @admin.display(description="Instructions")
    def instructions(self, team: Team) -> str | SafeString:
        """Print what a shared team's agents are told; of an own team only how long that is."""
        found = Agent.objects.filter(version=team.current_id)
        heads = ["Name", "Instruction", "Text of its instruction file"]
        if team.owner_id is None:
            told = [[each.name, each.instruction, each.instruction_file_text] for each in found]
            task = team.current.task if team.current else ""
            return as_table(heads, [*told, *([["Task of the team", task, ""]] if task else [])])
        sizes = [
            [each.name, length(each.instruction), length(each.instruction_file_text)]
            for each in found
        ]
        return as_table(heads, sizes)


def newest_versions(team: Team) -> QuerySet[TeamVersion]:
    """Return the versions of a team without its task, newest first."""
    return TeamVersion.objects.filter(team=team).defer("task").order_by("-number")


def length(text: str) -> str:
    """Say how long a text is that is not shown."""
    return f"{len(text):,} characters" if text else "none"


def chats_by_team(teams: Sequence[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Count the chats of each team, without those that were deleted."""
    rows = Chat.objects.filter(team__in=teams, deleted_at=None).order_by().values("team")
    return dict(rows.annotate(total=Count("pk")).values_list("team", "total"))
