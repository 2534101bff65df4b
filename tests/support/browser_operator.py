"""Scripts that an operator runs on the installation of a browser test."""

import os

from tests.browser.product import Product
from tests.faults.programs import MANAGE, python, run

CREATE_AUDITOR = """
from django.contrib.auth.models import Group, User
reader = User.objects.create_user("audrey", password="correct horse battery", is_staff=True)
reader.groups.add(Group.objects.get(name="Auditor"))
"""


def run_operator_script(product: Product, script: str) -> None:
    """Run a script as an operator does."""
    command = python(MANAGE, "shell", "-c", script)
    run(command, env={**os.environ, **product.env})
