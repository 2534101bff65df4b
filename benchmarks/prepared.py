"""The tables of a program's database."""


def create_tables() -> None:
    """Create the tables as `manage.py setup` does: single migrations take ten times as long.

    Django must be set up, because it reads the environment of the program.
    """
    from django.core.management import call_command

    from project.tables import create_in_empty_database

    create_in_empty_database()
    # Sends `post_migrate` to the apps, as nothing is left to migrate.
    call_command("migrate", verbosity=0)
