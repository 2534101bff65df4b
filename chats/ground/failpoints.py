"""Marks places where a test may kill the process. In production each of them does nothing."""

import os
import signal

from django.conf import settings


def failpoint(name: str) -> None:
    """Kill the process here, once, if `PALIMPSEST_FAILPOINT=name@/path/of/a/marker` asks for it.

    The marker file is made by the first process that dies, so that its successor lives.
    Settings refuse the variable outside tests.
    """
    wanted, _, marker = settings.FAILPOINT.partition("@")
    if wanted != name:
        return
    try:
        os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
