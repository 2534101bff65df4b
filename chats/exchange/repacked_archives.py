"""Reads archives that were unpacked and packed again, as file managers do.

They put the content into folders, and add their own entries for folders and files. macOS unpacks
downloaded archives automatically, so users often have only the folder. Older tools for Windows
write paths with backslashes.
"""

import zipfile
from collections.abc import Collection

from contextpolicy.engine.text import names

# Entries that only archives of this product have: of an account, and of a bundle with its `META`.
ACCOUNT, BUNDLE, META = "account.json", "history.jsonl", "meta.json"
# Maximum characters of an entry's name, of its folder and its file's name, and of an ending.
LONGEST_NAME = 300
LONGEST_PART = 130
LONGEST_ENDING = 10
# Files that macOS and Windows add to folders.
OF_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")


class SeveralAccounts(ValueError):
    """The archive contains several archives of accounts in different folders."""


def ignore_repacking(archive: zipfile.ZipFile) -> None:
    """Hide folders and operating systems' files in an archive, and folders around its content.

    If a folder contains an archive of this product, only its entries remain. The entries of the
    open archive get other names. Its file does not change. The paths must be safe. Raises
    `SeveralAccounts`.
    """
    for entry in archive.filelist:
        entry.filename = entry.filename.replace("\\", "/")
    entries = [entry for entry in archive.filelist if not is_added(entry)]
    root = find_root([entry.filename for entry in entries])
    entries = [entry for entry in entries if entry.filename.startswith(root)]
    for entry in entries:
        entry.filename = entry.filename.removeprefix(root)
    archive.filelist = entries
    archive.NameToInfo = {entry.filename: entry for entry in entries}


def give_allowed_names(archive: zipfile.ZipFile) -> None:
    """Rename entries whose names are too long or contain characters that cannot be shown.

    The names must be unique. They stay unique.
    """
    taken = set(archive.namelist())
    for number, entry in enumerate(archive.filelist):
        name = entry.filename
        if len(name) <= LONGEST_NAME and names.is_allowed_name(name):
            continue
        short = shorten_entry_name(name)
        if short in taken:
            short = shorten_entry_name(name, mark=f"~{number}")
        taken.add(short)
        entry.filename = short
    archive.NameToInfo = {entry.filename: entry for entry in archive.filelist}


def shorten_entry_name(name: str, *, mark: str = "") -> str:
    """Return the name of an entry without forbidden characters, and short enough to be shown.

    The beginning of the file's name and its ending stay, because they show its kind. `mark` is
    put before the ending.
    """
    folder, slash, file = names.replace_forbidden_characters(name).rpartition("/")
    stem, dot, ending = file.rpartition(".")
    if not stem or len(ending) > LONGEST_ENDING:
        stem, dot, ending = file, "", ""
    stem = stem if stem.strip() else "_"
    return f"{folder[:LONGEST_PART]}{slash}{stem[:LONGEST_PART]}{mark}{dot}{ending}"


def find_root(listed: Collection[str]) -> str:
    """Return the folder that contains an archive of this product, with its slash.

    Empty if it is at the top, or if there is none. Raises `SeveralAccounts`.
    """
    accounts = list_folders_with(ACCOUNT, listed)
    if accounts:
        fewest = min(folder.count("/") for folder in accounts)
        nearest = [folder for folder in accounts if folder.count("/") == fewest]
        if len(nearest) > 1:
            raise SeveralAccounts
        return nearest[0]
    known = set(listed)
    bundles = [
        folder
        for folder in list_folders_with(BUNDLE, listed)
        if folder + META in known or all(name.startswith(folder) for name in listed)
    ]
    return bundles[0] if len(bundles) == 1 else ""


def list_folders_with(mark: str, listed: Collection[str]) -> list[str]:
    """Return the folders with an entry of this name, with their slashes."""
    return [name.removesuffix(mark) for name in listed if f"/{name}".endswith(f"/{mark}")]


def is_added(entry: zipfile.ZipInfo) -> bool:
    """Return True for a folder, and for a file that macOS or Windows adds."""
    folder, _, name = entry.filename.rpartition("/")
    is_of_macos = "__MACOSX" in folder.split("/") or name.startswith("._")
    return not name or is_of_macos or name in OF_SYSTEMS
