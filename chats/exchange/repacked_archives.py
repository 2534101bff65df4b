"""Reads archives that were unpacked and packed again, as file managers do.

They put the content into a folder, and add their own entries for folders and files. macOS
unpacks downloaded archives automatically, so users often have only the folder.
"""

import zipfile

# Entries that only archives of this product have, at the top.
MARKS = ("account.json", "history.jsonl")
# Files that macOS and Windows add to folders.
OF_SYSTEMS = (".DS_Store", "Thumbs.db", "desktop.ini")


def ignore_repacking(archive: zipfile.ZipFile) -> None:
    """Hide folders and operating systems' files in an archive, and the folder around its content.

    The entries of the open archive get other names. Its file does not change.
    """
    entries = [entry for entry in archive.filelist if not is_added(entry)]
    folder = entries[0].filename.partition("/")[0] + "/" if entries else ""
    names = {entry.filename for entry in entries}
    has_ours = any(folder + mark in names for mark in MARKS)
    if has_ours and all(name.startswith(folder) for name in names):
        for entry in entries:
            entry.filename = entry.filename.removeprefix(folder)
    archive.filelist = entries
    archive.NameToInfo = {entry.filename: entry for entry in entries}


def is_added(entry: zipfile.ZipInfo) -> bool:
    """Return True for a folder, and for a file that macOS or Windows adds."""
    folder, _, name = entry.filename.rpartition("/")
    is_of_macos = folder.partition("/")[0] == "__MACOSX" or name.startswith("._")
    return entry.is_dir() or is_of_macos or name in OF_SYSTEMS
