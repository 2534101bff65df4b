"""Exports a person's account as one archive, chat by chat.

Deleted chats are in a separate list and folder: versions that do not know them would import
them as chats that were not deleted.
"""

import json
import tempfile
import zipfile
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any, cast

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet

from chats.exchange import documents, originals, pictures, skill_folders
from chats.exchange.writing import Writer
from chats.memory.preferences import exported_memory
from chats.models import (
    AccountSettings,
    Agent,
    ApiKey,
    Chat,
    Folder,
    Message,
    Team,
    Webhook,
)
from contextpolicy import ledger
from contextpolicy.models import Skill

# Bytes held in memory; the rest is on disk until it is sent.
IN_MEMORY = 4 * 1024 * 1024


# Parts of an archive that an API key gets only with another scope than that of the export.
SCOPES_OF_PARTS = {"skills": "policy:read", "webhooks": "webhooks"}


def build_account_archive(
    user: User, *, form: str, now: datetime, key: ApiKey | None = None
) -> IO[bytes]:
    """Return an archive of a person's chats, files, memory, skills and account data, rewound.

    Deleted chats that are not erased yet are included. The ledger records the export. The caller
    closes the file. `form`: `ui`, which can be imported, or one of `documents.FORMS`. `key`: the
    API key of the request, without whose scopes some parts are left out.
    """
    left_out = [
        part
        for part, scope in SCOPES_OF_PARTS.items()
        if key is not None and scope not in key.scopes
    ]
    with transaction.atomic():
        ledger.record_event(
            "chat.exported",
            actor=f"user:{user.pk}",
            now=now,
            data={"form": form, "scope": "everything"},
        )
    held = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  # the reader closes it
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        out = ArchiveOutput(archive, form=form)
        chats = out.write_chats(Chat.objects.filter(owner=user, deleted_at=None), folder="chats")
        deleted = out.write_chats(
            Chat.objects.filter(owner=user, deleted_at__isnull=False), folder="deleted_chats"
        )
        originals.write_unattached(user, archive=archive, written=out.files)
        memory = exported_memory.export_all_memory(user.pk)
        archive.writestr("memory.json", format_json(memory))
        if "skills" not in left_out:
            skill_folders.write_skill_folders(
                list_own_skills(user), archive=archive, under="skills/"
            )
        account = {**build_person_data(user), "exported_at": now.isoformat(), "left_out": left_out}
        if "webhooks" not in left_out:
            account["webhooks"] = list_webhook_data(user)
        account |= {"chats": chats, "deleted_chats": deleted, "files": list(out.files.values())}
        archive.writestr("account.json", format_json(account))
    held.seek(0)
    return cast(IO[bytes], held)


def format_json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, indent=1)


class ArchiveOutput:
    """Writes chats to an archive, and each image and each file once."""

    def __init__(self, archive: zipfile.ZipFile, *, form: str) -> None:
        self.archive = archive
        self.form = form
        self.images: set[str] = set()
        self.files: dict[str, Mapping[str, Any]] = {}

    def write_chats(self, chats: QuerySet[Chat], *, folder: str) -> list[Mapping[str, Any]]:
        """Write chats to a folder, oldest first. Return their entries in the list of chats."""
        listed: list[Mapping[str, Any]] = []
        rows = chats.select_related("owner", "model", "folder").order_by("created_at", "pk")
        for chat in rows.iterator(chunk_size=100):
            name = f"{folder}/{documents.build_export_filename(chat, form=self.form)}"
            with self.archive.open(name, "w", force_zip64=True) as entry:
                write_chat(chat, form=self.form, entry=entry)
            listed.append(build_chat_metadata(chat, name=name))
            if self.form != "html":
                write_images(chat, archive=self.archive, written=self.images)
            originals.write_originals(chat, archive=self.archive, written=self.files)
        return listed


def write_chat(chat: Chat, *, form: str, entry: IO[bytes]) -> None:
    if form == "ui":
        for part in Writer(chat, scope="all").lines():
            entry.write(part)
    else:
        documents.write_document(chat, form=form, into=entry, beside="../")


def write_images(chat: Chat, *, archive: zipfile.ZipFile, written: set[str]) -> None:
    """Write the images of a chat that are not in `written` yet, and add their names to it."""
    for image in pictures.iterate_unique_images(Message.objects.filter(branch__chat=chat)):
        name = pictures.build_image_filename(image)
        if name not in written:
            written.add(name)
            # Images are already compressed.
            archive.writestr(name, bytes(image.data), zipfile.ZIP_STORED)


def build_chat_metadata(chat: Chat, *, name: str) -> Mapping[str, Any]:
    return {
        "id": str(chat.pk),
        "title": chat.title,
        "file": name,
        "folder": chat.folder.name if chat.folder else None,
        "pinned": chat.pinned,
        "archived": chat.archived,
        "temporary": chat.temporary,
        "system_text": chat.system_text,
        "team_task": chat.team_task or "",
        "without_memory": chat.without_memory,
        "model": chat.model.slug if chat.model else None,
        "created_at": chat.created_at.isoformat(),
        "updated_at": chat.updated_at.isoformat(),
        **build_deletion_data(chat),
    }


def build_deletion_data(chat: Chat) -> Mapping[str, Any]:
    """Return when a deleted chat was deleted, and when it is due to be erased."""
    if chat.deleted_at is None:
        return {}
    return {
        "deleted_at": chat.deleted_at.isoformat(),
        "erase_at": chat.erase_at.isoformat() if chat.erase_at else None,
    }


def build_person_data(user: User) -> Mapping[str, Any]:
    """Return a person's profile, settings, folder names, API keys and teams, without secrets."""
    keys = ApiKey.objects.filter(owner=user).order_by("created_at")
    teams = Team.objects.filter(owner=user, deleted_at=None, current__isnull=False)
    return {
        "name": user.get_username(),
        "email": user.email,
        "joined_at": user.date_joined.isoformat(),
        "settings": build_settings_data(user),
        "folders": list(Folder.objects.filter(owner=user).values_list("name", flat=True)),
        "api_keys": [
            {"name": key.name, "prefix": key.prefix, "scopes": key.scopes} for key in keys
        ],
        "teams": [build_team_data(team) for team in teams.select_related("current")],
    }


def list_webhook_data(user: User) -> list[Mapping[str, Any]]:
    """Return a person's webhooks without their secrets, oldest first."""
    return [
        {"url": hook.url, "events": hook.events, "created_at": hook.created_at.isoformat()}
        for hook in Webhook.objects.filter(owner=user).order_by("created_at", "pk")
    ]


def build_settings_data(user: User) -> Mapping[str, Any]:
    """Return the settings of a person's pages. Empty texts: chosen by the browser or UTC."""
    row = AccountSettings.objects.filter(owner=user).first() or AccountSettings()
    return {
        "time_zone": row.time_zone,
        "appearance": str(row.appearance),
        "language": row.language,
    }


def list_own_skills(user: User) -> QuerySet[Skill]:
    """Return the skills of a person's personal teams. Skills of groups belong to the group."""
    teams = Team.objects.filter(owner=user).values("pk")
    return Skill.objects.filter(team_id__in=teams).order_by("slug")


def build_team_data(team: Team) -> Mapping[str, Any]:
    version = team.current
    agents = Agent.objects.filter(version=version).order_by("place")
    return {
        "name": version.name if version else "",
        "task": version.task if version else "",
        "agents": [
            {
                "name": agent.name,
                "role_id": agent.role_id,
                "type": agent.type,
                "instruction": agent.instruction,
                "instruction_file_text": agent.instruction_file_text,
            }
            for agent in agents
        ],
    }
