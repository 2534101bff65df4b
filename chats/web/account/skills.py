"""Skill pages: list, create, edit, delete, import and export."""

import uuid
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.actions import skills
from chats.exchange import skill_folders
from chats.ground.refusals import Refusal
from chats.models import Team
from chats.prompt.tokenizer import get_page_counter
from chats.web.auth import PersonRequest, signed_in
from contextpolicy.engine.compose.system_text import format_complete_skill
from contextpolicy.engine.messages.skills import format_skill_line
from contextpolicy.models import Skill
from contextpolicy.models.skills import (
    LONGEST_DESCRIPTION,
    LONGEST_FILE_NAME,
    LONGEST_SKILL,
    LONGEST_SKILL_FILE,
    LONGEST_SKILL_FILES,
    MOST_SKILL_FILES,
)
from contextpolicy.skill_files import list_skill_files
from contextpolicy.skills import MOST_SKILLS, build_skill_text

INSTALLATION, GROUP, TEAM = "installation", "group", "team"
MODES = Skill.Mode


@require_http_methods(["GET", "POST"])
@signed_in
def skill_list(request: PersonRequest) -> HttpResponse:
    """List the skills that the user may read, or create one."""
    if request.method == "GET":
        return render_skill_list(request)
    values = read_skill_values(request)
    try:
        made = skills.create_own_skill(
            user=request.user,
            place=parse_place(request.POST.get("place", "")),
            values=values,
            now=timezone.now(),
        )
    except Refusal as refusal:
        return render_skill_list(request, refusal=refusal, values=values)
    return redirect("chats:skill", made.slug)


@require_http_methods(["GET", "POST"])
@signed_in
def skill_edit(request: PersonRequest, slug: str) -> HttpResponse:
    """Show a skill, or change it."""
    if request.method == "GET":
        return render_skill(request, skills.get_visible_skill(user=request.user, slug=slug))
    skill = skills.get_editable_skill(user=request.user, slug=slug)
    values = {"enabled": "enabled" in request.POST, **read_skill_values(request)}
    name = skill.name
    try:
        skills.change_own_skill(user=request.user, skill=skill, values=values, now=timezone.now())
    except Refusal as refusal:
        # The refused values are in the row, which is not stored.
        return render_skill(request, skill, name=name, refusal=refusal)
    return redirect("chats:skill", skill.slug)


@require_POST
@signed_in
def skill_delete(request: PersonRequest, slug: str) -> HttpResponse:
    """Delete a skill of a group or a team."""
    skill = skills.get_editable_skill(user=request.user, slug=slug)
    skills.delete_own_skill(user=request.user, skill=skill, now=timezone.now())
    return redirect("chats:skills")


@require_POST
@signed_in
def skill_file_save(request: PersonRequest, slug: str) -> HttpResponse:
    """Add a file to a skill, or replace the file with the same name."""
    skill = skills.get_editable_skill(user=request.user, slug=slug)
    name, text = request.POST.get("name", ""), request.POST.get("text", "")
    try:
        if chosen := request.FILES.get("file"):
            name = name or chosen.name or ""
            text = skills.decode_file_text(chosen.read(skills.MOST_TEXT_BYTES + 1), name=name)
        return save_files(request, skill, {name: text})
    except Refusal as refusal:
        text = "" if chosen else text
        return render_skill(request, skill, refusal=refusal, file_name=name, file_text=text)


@require_POST
@signed_in
def skill_file_delete(request: PersonRequest, slug: str) -> HttpResponse:
    """Delete a file of a skill."""
    skill = skills.get_editable_skill(user=request.user, slug=slug)
    try:
        return save_files(request, skill, {request.POST.get("name", ""): None})
    except Refusal as refusal:
        return render_skill(request, skill, refusal=refusal)


def save_files(
    request: PersonRequest, skill: Skill, files: Mapping[str, str | None]
) -> HttpResponse:
    skills.change_own_skill(
        user=request.user, skill=skill, values={}, now=timezone.now(), files=files
    )
    return redirect(f"{reverse('chats:skill', args=[skill.slug])}#files")


@require_GET
@signed_in
def skill_export(request: PersonRequest, slug: str) -> HttpResponse:
    """Download a skill as a ZIP archive."""
    skill = skills.get_visible_skill(user=request.user, slug=slug)
    response = HttpResponse(
        skill_folders.build_skill_archive([skill]), content_type="application/zip"
    )
    response["Content-Disposition"] = f'attachment; filename="{skill.slug}.zip"'
    return response


@require_POST
@signed_in
def skill_import(request: PersonRequest) -> HttpResponse:
    """Import the skills of a ZIP archive."""
    file = request.FILES.get("archive")
    data = b"" if file is None else file.read(skill_folders.MOST_BYTES + 1)
    try:
        done = skill_folders.import_skill_archive(
            data,
            user=request.user,
            place=parse_place(request.POST.get("place", "")),
            now=timezone.now(),
        )
    except Refusal as refusal:
        return render_skill_list(request, refusal=refusal)
    return render_skill_list(request, done=done)


def read_skill_values(request: HttpRequest) -> dict[str, Any]:
    """Return the submitted values of a skill. An unknown mode counts as on demand."""
    values: dict[str, Any] = {
        name: request.POST.get(name, "") for name in ("name", "description", "text")
    }
    if "mode" in request.POST:
        is_always = request.POST["mode"] == MODES.ALWAYS
        values["mode"] = MODES.ALWAYS if is_always else MODES.ON_DEMAND
    return values


def parse_place(value: str) -> skills.SkillPlace:
    """Return the owner of skills that a form names as `group:1`, `team:UUID` or `installation`.

    Raises `SkillPlaceRefused` for any other value.
    """
    kind, _, key = value.partition(":")
    if kind == INSTALLATION:
        return skills.SkillPlace()
    if kind == GROUP and key.isascii() and key.isdecimal() and len(key) < 10:
        return skills.SkillPlace(group_id=int(key))
    if kind == TEAM:
        try:
            return skills.SkillPlace(team_id=uuid.UUID(key))
        except ValueError:
            pass
    raise skills.SkillPlaceRefused


def list_places(request: PersonRequest) -> list[tuple[str, str]]:
    """Return the groups and teams to which the user may add skills, as (value, label)."""
    user = request.user
    found = [(INSTALLATION, gettext("Instance"))] if skills.is_skill_admin(user) else []
    found += [
        (f"{GROUP}:{group.pk}", gettext("Group {name}").format(name=group.name))
        for group in skills.list_owned_groups(user)
    ]
    teams = skills.list_owned_teams(user).select_related("current").order_by("created_at")
    found += [
        (f"{TEAM}:{team.pk}", gettext("Team {name}").format(name=team.name)) for team in teams
    ]
    return found


def name_places(rows: list[Skill]) -> dict[int, str]:
    """Map the primary keys of skills to the labels of their owners."""
    ids = {row.team_id for row in rows if row.team_id is not None}
    teams = {
        team.pk: team.name for team in Team.objects.filter(pk__in=ids).select_related("current")
    }
    named = {}
    for row in rows:
        if row.group is not None:
            named[row.pk] = gettext("Group {name}").format(name=row.group.name)
        elif row.team_id is not None:
            named[row.pk] = gettext("Team {name}").format(name=teams.get(row.team_id, "?"))
        else:
            named[row.pk] = gettext("Instance")
    return named


def render_skill_list(
    request: PersonRequest,
    *,
    refusal: Refusal | None = None,
    values: dict[str, Any] | None = None,
    done: skill_folders.ImportedSkills | None = None,
) -> HttpResponse:
    rows = list(skills.list_visible_skills(request.user))
    named = name_places(rows)
    context = {
        "rows": [(row, named[row.pk]) for row in rows],
        "places": list_places(request),
        "place": request.POST.get("place", ""),
        "values": values or {},
        "done": done,
        "refusal": refusal,
        "longest_description": LONGEST_DESCRIPTION,
        "longest_text": LONGEST_SKILL,
        "most": MOST_SKILLS,
    }
    return render(request, "skills.html", context, status=refusal.status if refusal else 200)


def render_skill(
    request: PersonRequest,
    skill: Skill,
    *,
    name: str = "",
    refusal: Refusal | None = None,
    file_name: str = "",
    file_text: str = "",
) -> HttpResponse:
    """Render the page of a skill.

    `name`: the stored name, if a new name was refused. `file_name` and `file_text`: refused values
    of a file, shown in that file's form or in the form for a new file.
    """
    count = get_page_counter().count
    shown = build_skill_text(skill)
    files = list_skill_files(skill)
    may_edit = skills.list_editable_skills(request.user).filter(pk=skill.pk).exists()
    context = {
        "skill": skill,
        "place": name_places([skill])[skill.pk],
        "may_edit": may_edit,
        "may_choose_mode": may_edit and skills.is_skill_admin(request.user),
        "may_delete": may_edit and (skill.group_id is not None or skill.team_id is not None),
        "line_tokens": count(format_skill_line(skill.slug, skill.description)),
        "text_tokens": count(format_complete_skill(shown)),
        "name": name or skill.name,
        "files": [(file, count(file.text)) for file in files],
        "refused_file": file_name if file_name in {file.name for file in files} else "",
        "file_name": file_name,
        "file_text": file_text,
        "longest_file_name": LONGEST_FILE_NAME,
        "longest_file": LONGEST_SKILL_FILE,
        "longest_files": LONGEST_SKILL_FILES,
        "most_files": MOST_SKILL_FILES,
        "refusal": refusal,
        "longest_description": LONGEST_DESCRIPTION,
        "longest_text": LONGEST_SKILL,
    }
    return render(request, "skill.html", context, status=refusal.status if refusal else 200)
