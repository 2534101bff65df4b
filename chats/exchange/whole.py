"""Exports a person's account as one archive, chat by chat."""

import json
import tempfile
import zipfile
from collections.abc import Mapping
from datetime import datetime
from typing import IO, Any, cast

from django.contrib.auth.models import User
from django.db import transaction

from chats.exchange import documents, originals, pictures
from chats.exchange.writing import Writer
from chats.models import Agent, ApiKey, Chat, Folder, Message, Team
from contextpolicy import ledger

# Bytes held in memory; the rest is on disk until it is sent.
IN_MEMORY = 4 * 1024 * 1024


def build_account_archive(user: User, *, form: str, now: datetime) -> IO[bytes]:
    """Return an archive of a person's chats, files, profile, folders, API keys and teams, rewound.

    Deleted chats are left out. The ledger records the export. The caller closes the file.
    `form`: `ui`, which can be imported, or one of `documents.FORMS`.
    """
    with transaction.atomic():
        ledger.record_event(
            "chat.exported",
            actor=f"user:{user.pk}",
            now=now,
            data={"form": form, "scope": "everything"},
        )
    held = tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)  # noqa: SIM115  # the reader closes it
    chats = Chat.objects.filter(owner=user, deleted_at=None).select_related(
        "owner", "model", "folder"
    )
    listed: list[Mapping[str, Any]] = []
    images: set[str] = set()
    files: dict[str, Mapping[str, Any]] = {}
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for chat in chats.order_by("created_at", "pk").iterator(chunk_size=100):
            name = f"chats/{documents.build_export_filename(chat, form=form)}"
            with archive.open(name, "w", force_zip64=True) as entry:
                write_chat(chat, form=form, entry=entry)
            listed.append(build_chat_metadata(chat, name=name))
            if form != "html":
                write_images(chat, archive=archive, written=images)
            originals.write_originals(chat, archive=archive, written=files)
        told = {**build_person_data(user), "exported_at": now.isoformat(), "chats": listed}
        told["files"] = list(files.values())
        archive.writestr("account.json", json.dumps(told, ensure_ascii=False, indent=1))
    held.seek(0)
    return cast(IO[bytes], held)


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
        "model": chat.model.slug if chat.model else None,
        "created_at": chat.created_at.isoformat(),
        "updated_at": chat.updated_at.isoformat(),
    }


def build_person_data(user: User) -> Mapping[str, Any]:
    """Return a person's profile, folder names, API keys and teams, without secrets."""
    keys = ApiKey.objects.filter(owner=user).order_by("created_at")
    teams = Team.objects.filter(owner=user, deleted_at=None, current__isnull=False)
    return {
        "name": user.get_username(),
        "email": user.email,
        "joined_at": user.date_joined.isoformat(),
        "folders": list(Folder.objects.filter(owner=user).values_list("name", flat=True)),
        "api_keys": [
            {"name": key.name, "prefix": key.prefix, "scopes": key.scopes} for key in keys
        ],
        "teams": [build_team_data(team) for team in teams.select_related("current")],
    }


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
