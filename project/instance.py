"""Settings of this instance that both the launcher and the settings read from the environment.

It loads neither Django nor Celery.
"""

from pathlib import Path

from project import env

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = env.data_folder(BASE_DIR / "data")
PUBLIC_URL = env.public_url("PALIMPSEST_PUBLIC_URL")
BEHIND_TLS = bool(PUBLIC_URL)
TRUSTED_PROXY = env.proxies("TRUSTED_PROXY")
REDIS_URL = env.redis_url(DATA_DIR)
WORKER_DRAIN_SECONDS = env.seconds("WORKER_DRAIN_SECONDS", 8.0)
REPLIES_PER_WORKER = env.positive_int("REPLIES_PER_WORKER", 200)
LEDGER_LINES = env.text("LEDGER_LINES")
LOG_LEVEL = env.text("LOG_LEVEL", "INFO").upper()
