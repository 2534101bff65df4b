"""Django's `makemessages`, which also finds plurals that are marked without Django."""

from django.core.management.commands import makemessages


class Command(makemessages.Command):
    """Extracts the messages of the engine's `ngettext_noop` too."""

    xgettext_options = [  # noqa: RUF012 - Django's attribute
        *makemessages.Command.xgettext_options,
        "--keyword=ngettext_noop:1,2",
    ]
