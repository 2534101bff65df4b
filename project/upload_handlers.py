"""Receives large uploads in temporary files without a name."""

import tempfile
from typing import Any

from django.conf import settings
from django.core.files.uploadedfile import UploadedFile
from django.core.files.uploadhandler import FileUploadHandler


class UnnamedFileUploadHandler(FileUploadHandler):
    """Writes an upload to a temporary file that the system deletes when its process ends.

    The named files of Django's handler stay on the disk if the process is killed.
    """

    file: "UploadedFile[Any]"

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Open a temporary file."""
        super().new_file(*args, **kwargs)
        held = tempfile.TemporaryFile(dir=settings.FILE_UPLOAD_TEMP_DIR)  # noqa: SIM115  # the request closes it
        self.file = UploadedFile(
            held, self.file_name, self.content_type, 0, self.charset, self.content_type_extra
        )

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Write a piece of the upload."""
        self.file.write(raw_data)

    def file_complete(self, file_size: int) -> "UploadedFile[Any]":
        """Return the file with its size, positioned at its start."""
        self.file.seek(0)
        self.file.size = file_size
        return self.file

    def upload_interrupted(self) -> None:
        """Close the file, which deletes it."""
        if hasattr(self, "file"):
            self.file.close()
