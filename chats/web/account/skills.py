"""Skill pages: list, create, edit, delete, import and export."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.utils.translation import gettext
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from chats.actions import skills
from chats.exchange import skill_folders
from chats.models import Team
from chats.prompt.tokenizer import get_page_counter
from chats.web.account.skill_forms import (
    ChangedSkillForm,
    NewSkillForm,
    SkillArchiveForm,
    SkillFileForm,
    StoredFileForm,
)
from chats.web.auth import PersonRequest, signed_in
from contextpolicy.engine.compose.system_text import format_complete_skill
from contextpolicy.engine.messages.skills import format_skill_line
from contextpolicy.models import Skill, SkillFile
from contextpolicy.skill_files import list_skill_files
from contextpolicy.skills import (
    EDITED,
    MOST_SKILLS,
    SkillChanged,
    build_skill_text,
    compute_skill_digest,
)

INSTALLATION, GROUP, TEAM = "installation", "group", "team"


@dataclass(frozen=True, slots=True)
class FileView:
    """A file of a skill with its tokens and its form."""

    row: SkillFile
    tokens: int
    form: StoredFileForm


@require_http_methods(["GET", "POST"])
@signed_in
def skill_list(request: PersonRequest) -> HttpResponse:
    """List the skills that the user may read, or create one."""
    if request.method == "GET":
        return render_skill_list(request)
    form = NewSkillForm(request.POST, places=list_places(request))
    values = form.read_values()
    with form.catch_refusal():
        place = parse_place(values.pop("place"))
        made = skills.create_own_skill(
            user=request.user, place=place, values=values, now=timezone.now()
        )
        return redirect("chats:skill", made.slug)
    return render_skill_list(request, form=form)


@require_http_methods(["GET", "POST"])
@signed_in
def skill_edit(request: PersonRequest, slug: str) -> HttpResponse:
    """Show a skill, or change it."""
    if request.method == "GET":
        return render_skill(request, skills.get_visible_skill(user=request.user, slug=slug))
    skill = skills.get_editable_skill(user=request.user, slug=slug)
    form = ChangedSkillForm(request.POST)
    values = form.read_values()
    based_on = values.pop("based_on")
    with form.catch_refusal():
        skills.change_own_skill(
            user=request.user, skill=skill, values=values, now=timezone.now(), based_on=based_on
        )
        return redirect("chats:skill", skill.slug)
    # The refused values are in the row, which is not stored.
    skill.refresh_from_db()
    return render_skill(request, skill, form=form)


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
    form = SkillFileForm(request.POST, request.FILES)
    values = form.read_values()
    name, text, chosen = values["name"], values["text"], values["file"]
    with form.catch_refusal():
        if chosen:
            name = name or chosen.name
            text = skills.decode_file_text(chosen.read(skills.MOST_TEXT_BYTES + 1), name=name)
        return save_files(request, skill, {name: text})
    return render_skill(request, skill, file_form=form)


@require_POST
@signed_in
def skill_file_delete(request: PersonRequest, slug: str) -> HttpResponse:
    """Delete a file from a skill."""
    skill = skills.get_editable_skill(user=request.user, slug=slug)
    form = SkillFileForm(request.POST)
    with form.catch_refusal():
        return save_files(request, skill, {form.read_values()["name"]: None})
    return render_skill(request, skill, file_form=form)


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
    form = SkillArchiveForm(request.POST, request.FILES, places=list_places(request))
    values = form.read_values()
    file = values["archive"]
    with form.catch_refusal():
        done = skill_folders.import_skill_archive(
            b"" if file is None else file.read(skill_folders.MOST_BYTES + 1),
            user=request.user,
            place=parse_place(values["place"]),
            now=timezone.now(),
        )
        return render_skill_list(request, done=done)
    return render_skill_list(request, archive_form=form)


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
    form: NewSkillForm | None = None,
    archive_form: SkillArchiveForm | None = None,
    done: skill_folders.ImportedSkills | None = None,
) -> HttpResponse:
    """Render the list and its two forms. A form that is given keeps its values and its refusal."""
    rows = list(skills.list_visible_skills(request.user))
    named = name_places(rows)
    places = list_places(request)
    form = form or NewSkillForm(places=places)
    archive_form = archive_form or SkillArchiveForm(places=places)
    refusal = form.refusal or archive_form.refusal
    context = {
        "rows": [(row, named[row.pk]) for row in rows],
        "may_create": bool(places),
        "form": form,
        "archive_form": archive_form,
        "done": done,
        "refusal": refusal,
        "most": MOST_SKILLS,
    }
    return render(request, "skills.html", context, status=refusal.status if refusal else 200)


def render_skill(
    request: PersonRequest,
    skill: Skill,
    *,
    form: ChangedSkillForm | None = None,
    file_form: SkillFileForm | None = None,
) -> HttpResponse:
    """Render the page of a skill.

    `file_form`: a refused form of a file. Its values are shown at that file, or in the form for a
    new file.
    """
    count = get_page_counter().count
    shown = build_skill_text(skill)
    files = list_skill_files(skill)
    may_edit = skills.list_editable_skills(request.user).filter(pk=skill.pk).exists()
    digest = compute_skill_digest(skill)
    values = {name: getattr(skill, name) for name in EDITED}
    form = form or ChangedSkillForm(initial={**values, "based_on": digest})
    is_changed = form.refusal is not None and form.refusal.code == SkillChanged.code
    if is_changed:
        # Saving again replaces the current version, which the page shows.
        form.data = dict(form.data.items()) | {"based_on": digest}
    refused = file_form.data.get("name", "") if file_form else ""
    is_stored = refused in {file.name for file in files}
    refusal = form.refusal or (file_form.refusal if file_form else None)
    context = {
        "skill": skill,
        "form": form,
        "place": name_places([skill])[skill.pk],
        "may_edit": may_edit,
        "may_choose_mode": may_edit and skills.is_skill_admin(request.user),
        "may_delete": may_edit and (skill.group_id is not None or skill.team_id is not None),
        "line_tokens": count(format_skill_line(skill.slug, skill.description)),
        "text_tokens": count(format_complete_skill(shown)),
        "files": [
            FileView(
                file,
                count(file.text),
                build_file_form(file, sent=file_form.data if file_form else None),
            )
            for file in files
        ],
        "refused_file": refused if is_stored else "",
        "file_form": SkillFileForm() if is_stored or file_form is None else file_form,
        "refusal": refusal,
        "is_changed": is_changed,
    }
    return render(request, "skill.html", context, status=refusal.status if refusal else 200)


def build_file_form(file: SkillFile, *, sent: Mapping[str, Any] | None) -> StoredFileForm:
    """Return the form of a file with its stored text, or with its refused text `sent`."""
    auto_id = f"file-{file.pk}-%s"
    if sent is not None and sent.get("name") == file.name and "text" in sent:
        return StoredFileForm(sent, auto_id=auto_id)
    return StoredFileForm(initial={"name": file.name, "text": file.text}, auto_id=auto_id)
