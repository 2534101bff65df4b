"""Points in the code at which a test can kill the process. In production they have no effect."""

import os
import signal

from django.conf import settings


def failpoint(name: str) -> None:
    """Kill the process here, once, if `PALIMPSEST_FAILPOINT=name@/path/of/a/marker` is set.

    The first process that dies creates the marker file, so that its successor survives. Settings
    reject the variable outside of tests.
    """
    wanted, _, marker = settings.FAILPOINT.partition("@")
    if wanted != name:
        return
    try:
        os.close(os.open(marker, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)
