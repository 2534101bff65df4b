"""Exports a user's account as one archive, chat by chat.

Deleted chats are in a separate list and folder, because versions that do not support them would
import them as chats that were not deleted.
"""

import io
import json
import tempfile
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import IO, Any, cast

from django.contrib.auth.models import User
from django.core.exceptions import ObjectDoesNotExist
from django.db import transaction
from django.db.models import QuerySet

from chats.exchange import documents, originals, pictures, skill_folders
from chats.exchange.archive_entries import write_file_entry
from chats.exchange.writing import Writer
from chats.ground.refusals import NotFound
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


# Parts of an archive that an API key gets only with another scope than that of the export. A key
# that can restore deleted chats can also read them.
SCOPES_OF_PARTS = {
    "deleted_chats": "chats:write",
    "preferences_of_deleted_chats": "chats:write",
    "skills": "policy:read",
    "webhooks": "webhooks",
}


def build_account_archive(
    user: User, *, form: str, now: datetime, key: ApiKey | None = None
) -> IO[bytes]:
    """Return an archive of a user's chats, files, memory, skills and account data, rewound.

    Deleted chats that can be restored are included. The ledger records the export. The caller
    closes the file. `form`: `ui`, which can be imported, or one of `documents.FORMS`. `key`: the
    API key of the request; parts that need a scope it lacks are left out.
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
    with ExitStack() as kept:
        held = kept.enter_context(tempfile.SpooledTemporaryFile(max_size=IN_MEMORY))
        with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
            write_account(user, archive=archive, form=form, left_out=left_out, now=now)
        held.seek(0)
        kept.pop_all()
    return cast(IO[bytes], held)


def write_account(
    user: User, *, archive: zipfile.ZipFile, form: str, left_out: Sequence[str], now: datetime
) -> None:
    """Write all entries of an archive except those of the parts in `left_out`."""
    out = ArchiveOutput(archive, user, form=form, has_deleted="deleted_chats" not in left_out)
    out.write_chats()
    originals.write_unattached(user, archive=archive, written=out.live.files)
    has_deleted = "preferences_of_deleted_chats" not in left_out
    memory = exported_memory.export_all_memory(user.pk, has_deleted=has_deleted)
    write_json(archive, "memory.json", memory)
    account = {**build_person_data(user), "exported_at": now.isoformat(), "left_out": left_out}
    if "skills" not in left_out:
        skills = list_own_skills(user)
        skill_folders.write_skill_folders(skills, archive=archive, under="skills/")
        account["skills"] = [build_skill_data(skill) for skill in skills]
    if "webhooks" not in left_out:
        account["webhooks"] = list_webhook_data(user)
    write_json(archive, "account.json", account | out.list_contents())


def write_json(archive: zipfile.ZipFile, name: str, value: Mapping[str, Any]) -> None:
    data = json.dumps(value, ensure_ascii=False, indent=1).encode()
    write_file_entry(archive, name=name, file=io.BytesIO(data))


@dataclass(frozen=True, slots=True)
class ArchiveFolder:
    """A group of chats in an archive, with the images and files of these chats.

    `chats`: path of the chats. `under`: path before `images/` and `files/`. `link`: path from a
    chat to the folder with `images/`. `names`, `listed`, `images` and `files` contain the written
    entries.
    """

    chats: str
    under: str
    link: str
    names: set[str] = field(default_factory=set)
    listed: list[Mapping[str, Any]] = field(default_factory=list)
    images: set[str] = field(default_factory=set)
    files: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class ArchiveOutput:
    """Writes a user's chats to an archive, and each image and each file of a folder once."""

    def __init__(
        self, archive: zipfile.ZipFile, owner: User, *, form: str, has_deleted: bool
    ) -> None:
        self.archive = archive
        self.owner = owner
        self.form = form
        self.has_deleted = has_deleted
        self.live = ArchiveFolder("chats/", "", "../")
        # With separate images and files, so that an import can ignore the folder.
        self.deleted = ArchiveFolder("deleted_chats/", "deleted_chats/", "./")

    def write_chats(self) -> None:
        """Write the chats that exist now, oldest first, each once."""
        rows = Chat.objects.filter(owner=self.owner).order_by("created_at", "pk")
        for chat_id in list(rows.values_list("pk", flat=True)):
            self.write_chat(chat_id)

    def write_chat(self, chat_id: uuid.UUID) -> None:
        """Write a chat to the folder of its state. Skips it if it is erased during the export.

        If it is deleted or restored during the export, it is written again for the new state.
        """
        chat = self.load_chat(chat_id)
        while chat is not None and (folder := self.choose_folder(chat)) is not None:
            with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as held:
                try:
                    write_chat_body(chat, form=self.form, into=held, beside=folder.link)
                except (NotFound, ObjectDoesNotExist):
                    if self.load_chat(chat_id) is not None:
                        raise
                    return
                written, chat = chat, self.load_chat(chat_id)
                if chat is None or self.choose_folder(chat) is not folder:
                    continue
                # The short ids of two among thousands of chats can be equal.
                own = documents.build_export_filename(written, form=self.form, taken=folder.names)
                folder.names.add(own)
                name = f"{folder.chats}{own}"
                write_file_entry(self.archive, name=name, file=held)
            folder.listed.append(build_chat_metadata(chat, name=name))
            self.write_attachments(chat, folder=folder)
            return

    def load_chat(self, chat_id: uuid.UUID) -> Chat | None:
        rows = Chat.objects.filter(owner=self.owner, pk=chat_id)
        return rows.select_related("owner", "model", "folder").first()

    def choose_folder(self, chat: Chat) -> ArchiveFolder | None:
        """Return the folder of a chat; None if it is not exported.

        A deleted temporary chat cannot be restored, so it is never exported.
        """
        if chat.deleted_at is None:
            return self.live
        return self.deleted if self.has_deleted and not chat.temporary else None

    def write_attachments(self, chat: Chat, *, folder: ArchiveFolder) -> None:
        """Write the images and files of a chat that its folder lacks."""
        if self.form != "html":
            write_images(chat, archive=self.archive, under=folder.under, written=folder.images)
        originals.write_originals(
            chat,
            archive=self.archive,
            folder=f"{folder.under}{originals.FOLDER}",
            written=folder.files,
        )

    def list_contents(self) -> dict[str, Any]:
        """Return the lists of the chats and files that were written."""
        files = [*self.live.files.values(), *self.deleted.files.values()]
        deleted = {"deleted_chats": self.deleted.listed} if self.has_deleted else {}
        return {"chats": self.live.listed, **deleted, "files": files}


def write_chat_body(chat: Chat, *, form: str, into: IO[bytes], beside: str) -> None:
    if form == "ui":
        for part in Writer(chat, scope="all").lines():
            into.write(part)
    else:
        documents.write_document(chat, form=form, into=into, beside=beside)


def write_images(chat: Chat, *, archive: zipfile.ZipFile, under: str, written: set[str]) -> None:
    """Write the images of a chat that are not in `written` yet, and add their names to it."""
    for image in pictures.iterate_unique_images(Message.objects.filter(branch__chat=chat)):
        name = f"{under}{pictures.build_image_filename(image)}"
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
    """Return a user's profile, settings, folders, API keys and teams, without secrets.

    `folders` has the names only, for applications that read archives of older versions.
    """
    folders = Folder.objects.filter(owner=user)
    keys = ApiKey.objects.filter(owner=user).order_by("created_at")
    teams = Team.objects.filter(owner=user, deleted_at=None, current__isnull=False)
    return {
        "name": user.get_username(),
        "email": user.email,
        "joined_at": user.date_joined.isoformat(),
        "settings": build_settings_data(user),
        "folders": [folder.name for folder in folders],
        "folder_details": [
            {"id": str(row.pk), "name": row.name, "without_memory": row.without_memory}
            for row in folders
        ],
        "api_keys": [
            {"name": key.name, "prefix": key.prefix, "scopes": key.scopes} for key in keys
        ],
        "teams": [build_team_data(team) for team in teams.select_related("current")],
    }


def list_webhook_data(user: User) -> list[Mapping[str, Any]]:
    """Return a user's webhooks without their secrets, oldest first."""
    return [
        {
            "url": hook.url,
            "events": hook.events,
            "off": hook.off,
            "created_at": hook.created_at.isoformat(),
        }
        for hook in Webhook.objects.filter(owner=user).order_by("created_at", "pk")
    ]


def build_settings_data(user: User) -> Mapping[str, Any]:
    """Return a user's page settings. An empty value means the browser's setting, or UTC."""
    row = AccountSettings.objects.filter(owner=user).first() or AccountSettings()
    return {
        "time_zone": row.time_zone,
        "appearance": str(row.appearance),
        "language": row.language,
    }


def list_own_skills(user: User) -> QuerySet[Skill]:
    """Return the skills of a user's personal teams. Skills of groups belong to the group."""
    teams = Team.objects.filter(owner=user).values("pk")
    return Skill.objects.filter(team_id__in=teams).order_by("slug")


def build_skill_data(skill: Skill) -> Mapping[str, Any]:
    """Return the team and the state of a skill, which its `SKILL.md` does not contain."""
    return {
        "slug": skill.slug,
        "name": skill.name,
        "team": str(skill.team_id),
        "enabled": skill.enabled,
    }


def build_team_data(team: Team) -> Mapping[str, Any]:
    version = team.current
    agents = Agent.objects.filter(version=version).order_by("place")
    return {
        "id": str(team.pk),
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
