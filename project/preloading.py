"""Loads the code that all processes of a launcher share, before it forks them.

It opens no connections, because forks would share them. It starts no threads, because
forks would lose them.
"""

from collections.abc import Callable
from importlib import import_module

import django
from django.conf import settings
from django.urls import get_resolver

from chats.prompt import tokenizer
from project.settings import read_process_settings
from speed.forks import share_loaded_memory

# Modules of the programs, including those that they import at their start.
MODULES = (
    "project.celery",
    "chats.tasks",
    "project.asgi",
    "project.management.commands.web",
    "project.management.commands.setup",
    "celery.apps.worker",
    "celery.bin.worker",
    "celery.concurrency.thread",
    "kombu.transport.redis",
    "uvicorn.lifespan.off",
    "uvicorn.loops.uvloop",
    "uvicorn.protocols.http.httptools_impl",
    "uvicorn.protocols.websockets.auto",
    "django.core.cache.backends.locmem",
    "django.core.management.commands.migrate",
    "chats.providers.openai",
)


def load_shared_code() -> Callable[[], None]:
    """Load Django, our code and the tokenizer's vocabulary.

    Returns the function that each fork calls first. Raises `Misconfigured`.
    """
    django.setup()
    for name in MODULES:
        import_module(name)
    # The views are imported with the first use of the addresses.
    _ = get_resolver().url_patterns
    tokenizer.load_encoding()
    share_loaded_memory()
    return apply_process_settings


def apply_process_settings() -> None:
    """Set the settings to the values from the environment of this process."""
    for name, value in read_process_settings()._asdict().items():
        setattr(settings, name, value)
