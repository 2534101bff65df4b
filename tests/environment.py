"""Sets the test environment before Django's settings load: data goes to a temporary folder."""

import atexit
import os
import shutil
import tempfile

_folder = tempfile.mkdtemp(prefix="palimpsest-test-")
atexit.register(shutil.rmtree, _folder, ignore_errors=True)

os.environ["PALIMPSEST_DATA"] = _folder
os.environ["PALIMPSEST_TESTING"] = "1"
os.environ.setdefault("LOG_LEVEL", "WARNING")
# No server listens there: a test that needs a broker starts one.
os.environ["REDIS_URL"] = f"unix://{_folder}/no-broker.sock"
# Run the same tests on PostgreSQL: name a server on which a test database can be created.
_database = os.environ.pop("PALIMPSEST_TEST_DATABASE_URL", "")
for _name in (
    "DATABASE_URL",
    "SECRET_KEY",
    "PALIMPSEST_PUBLIC_URL",
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
):
    os.environ.pop(_name, None)
if _database:
    os.environ["DATABASE_URL"] = _database
