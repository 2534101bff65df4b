"""Reads archives that were unpacked and packed again, as file managers do.

They put the content into folders, and add their own entries for folders and files. macOS unpacks
downloaded archives automatically, so users often have only the folder. Older tools for Windows
write paths with backslashes.
"""

import lzma
import re
import zipfile
import zlib
from collections.abc import Collection, Mapping

from contextpolicy.engine.text import names

# Entries that only archives of this product have: of an account, and of a bundle with its `META`.
ACCOUNT, BUNDLE, META = "account.json", "history.jsonl", "meta.json"
# The folder with the chats of an account.
CHATS = "chats/"
# Names of the files with the chats of another product.
CHATS_NAME = re.compile(r"(?:conversations(?:-\d{1,6})?|prod-grok-backend)\.json")
# Content of the entries of this product that others of the same name hardly have.
OF_ACCOUNT = re.compile(rb'"chats"\s{0,20}:\s{0,20}\[')
OF_META = re.compile(rb'"version"\s{0,20}:\s{0,20}1[^\d.]')
OF_HISTORY = re.compile(rb'"parts"\s{0,20}:\s{0,20}\[')
# Maximum bytes of the entries that are searched for it, and the size of a piece.
SEARCHED_BYTES = 64 * 1024 * 1024
PIECE = 64 * 1024
# Longer than each searched pattern.
OVERLAP = 64
# The errors of `zipfile` for a damaged entry; NotImplementedError: for an unknown compression.
UNREADABLE = (
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)
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

    If a folder contains an archive of this product, and no chats of another product are outside
    it, only its entries remain. The entries of the open archive get other names. Its file does not
    change. The paths of the entries that remain must be safe. Raises `SeveralAccounts`.
    """
    for entry in archive.filelist:
        entry.filename = entry.filename.replace("\\", "/")
    entries = [entry for entry in archive.filelist if not is_added(entry.filename)]
    root = RootFinder(archive, entries).find_root()
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


class RootFinder:
    """Finds the folder with an archive of this product among the entries of an archive."""

    def __init__(self, archive: zipfile.ZipFile, entries: Collection[zipfile.ZipInfo]) -> None:
        self.archive = archive
        self.entries: Mapping[str, zipfile.ZipInfo] = {entry.filename: entry for entry in entries}
        self.left = SEARCHED_BYTES

    def find_root(self) -> str:
        """Return the folder that contains an archive of this product, with its slash.

        Empty if it is at the top, if there is none, or if chats of another product are outside it.
        Raises `SeveralAccounts`.
        """
        accounts = list_folders_with(ACCOUNT, self.entries)
        if "" in accounts:
            return ""
        accounts = [folder for folder in accounts if self.is_account(folder)]
        if accounts and not self.has_chats_outside(accounts):
            fewest = min(folder.count("/") for folder in accounts)
            nearest = [folder for folder in accounts if folder.count("/") == fewest]
            if len(nearest) > 1:
                raise SeveralAccounts
            return nearest[0]
        bundles = [f for f in list_folders_with(BUNDLE, self.entries) if self.is_bundle(f)]
        is_only = len(bundles) == 1 and not self.has_chats_outside(bundles)
        return bundles[0] if is_only else ""

    def is_account(self, folder: str) -> bool:
        """Return True if a folder with an account list contains the archive of an account."""
        has_chats = any(name.startswith(folder + CHATS) for name in self.entries)
        return has_chats or self.contains(folder + ACCOUNT, OF_ACCOUNT)

    def is_bundle(self, folder: str) -> bool:
        """Return True if a folder with a history contains a bundle."""
        if folder + META in self.entries:
            return self.contains(folder + META, OF_META)
        is_whole = all(name.startswith(folder) for name in self.entries)
        return is_whole and self.contains(folder + BUNDLE, OF_HISTORY)

    def has_chats_outside(self, folders: Collection[str]) -> bool:
        """Return True if the archive has a file with another product's chats in no such folder."""
        return any(
            CHATS_NAME.fullmatch(name.rpartition("/")[2]) and not name.startswith(tuple(folders))
            for name in self.entries
        )

    def contains(self, name: str, wanted: re.Pattern[bytes]) -> bool:
        """Return True if an entry contains this, or cannot be read. Searches up to a limit."""
        end = b""
        try:
            with self.archive.open(self.entries[name]) as file:
                while self.left > 0 and (piece := file.read(PIECE)):
                    self.left -= len(piece)
                    if wanted.search(end + piece):
                        return True
                    end = piece[-OVERLAP:]
        except UNREADABLE:
            # The import names the entry.
            return True
        return False


def list_folders_with(mark: str, listed: Collection[str]) -> list[str]:
    """Return the folders with an entry of this name, with their slashes."""
    return [name.removesuffix(mark) for name in listed if f"/{name}".endswith(f"/{mark}")]


def is_added(path: str) -> bool:
    """Return True for a folder, and for a file that macOS or Windows adds."""
    folder, _, name = path.replace("\\", "/").rpartition("/")
    is_of_macos = "__MACOSX" in folder.split("/") or name.startswith("._")
    return not name or is_of_macos or name in OF_SYSTEMS
