"""Loaded before Django's settings: tests keep their data in a folder of their own."""

import atexit
import os
import shutil
import tempfile

_folder = tempfile.mkdtemp(prefix="palimpsest-test-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)

os.environ["PALIMPSEST_DATA"] = _folder
os.environ["PALIMPSEST_TESTING"] = "1"
os.environ.setdefault("LOG_LEVEL", "WARNING")
# Nothing listens there: a test that needs a broker starts its own.
os.environ["REDIS_URL"] = f"unix://{_folder}/no-broker.sock"
for _name in (
    "DATABASE_URL",
    "SECRET_KEY",
    "PALIMPSEST_PUBLIC_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
):
    os.environ.pop(_name, None)
