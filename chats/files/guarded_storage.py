"""The storage of files with one error for every outage, in place of those of each backend."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any, cast

from django.core.files.base import File
from django.core.files.storage import Storage
from django.utils.translation import gettext_noop

from chats.ground import databases
from chats.ground.refusals import Refusal

logger = logging.getLogger(__name__)


class FileStorageUnavailable(Refusal):
    """The file storage does not answer, or denies access. Send the request again later."""

    code = "file_storage_unavailable"
    status = 503
    sentence = gettext_noop(
        "The server cannot use its file storage at the moment. Nothing was changed. Try again in a "
        "minute. If it fails again, tell an operator."
    )
    retry_after = 30


@contextmanager
def convert_storage_errors() -> Iterator[None]:
    """Raise `FileStorageUnavailable` for an unknown error of a storage, and log the error.

    A missing file, a path that is taken and a full disk keep their errors.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError, Refusal):
        raise
    except Exception as error:  # each storage has its own errors
        if databases.is_full(error):
            raise
        logger.warning("the file storage failed", exc_info=error)
        raise FileStorageUnavailable from error


class GuardedFile(File[bytes]):
    """An open file of a storage. Reading raises the errors of `convert_storage_errors`."""

    def read(self, size: int = -1) -> bytes:
        with convert_storage_errors():
            return cast(IO[bytes], self.file).read(size)


class GuardedStorage(Storage):
    """A storage whose operations raise the errors of `convert_storage_errors`."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def open(self, name: str, mode: str = "rb") -> File[bytes]:
        with convert_storage_errors():
            file = GuardedFile(cast(IO[Any], self.storage.open(name, mode)))
            try:
                # A bucket loads the content now. A response that has begun could not be refused.
                file.read(0)
            except BaseException:
                file.close()
                raise
        return file

    def save(self, name: str | None, content: IO[Any], max_length: int | None = None) -> str:
        with convert_storage_errors():
            return self.storage.save(name, content, max_length=max_length)

    def exists(self, name: str) -> bool:
        with convert_storage_errors():
            return self.storage.exists(name)

    def delete(self, name: str) -> None:
        with convert_storage_errors():
            self.storage.delete(name)
