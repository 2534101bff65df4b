"""Extends Django's `makemessages` to find plurals that are marked with `ngettext_noop`."""

from django.core.management.commands import makemessages


class Command(makemessages.Command):
    """Extracts the messages of the engine's `ngettext_noop` in addition to Django's."""

    xgettext_options = [  # noqa: RUF012 - Django's attribute
        *makemessages.Command.xgettext_options,
        "--keyword=ngettext_noop:1,2",
    ]
