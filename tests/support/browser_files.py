"""Files in the message box of the browser."""

from playwright.sync_api import FilePayload

from tests.browser.desk import Person


def build_file_payload(name: str, data: bytes) -> FilePayload:
    """A file for the picker. Its stated type is ignored by the product."""
    return {"name": name, "mimeType": "application/octet-stream", "buffer": data}


def attach_files(person: Person, *files: FilePayload) -> None:
    """Choose files with the picker."""
    with person.page.expect_file_chooser() as chosen:
        person.page.get_by_role("button", name="Attach files").click()
    chosen.value.set_files(list(files))
