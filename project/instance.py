"""Settings of this instance that both the launcher and the settings read from the environment.

It loads neither Django nor Celery.
"""

from pathlib import Path

from project import data_folder, env, logs, redis_url

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = data_folder.prepare_data_folder(BASE_DIR / "data")
PUBLIC_URL = env.read_public_url("PALIMPSEST_PUBLIC_URL")
BEHIND_TLS = bool(PUBLIC_URL)
TRUSTED_PROXY = env.read_proxy_count("TRUSTED_PROXY")
REDIS_URL = redis_url.resolve_redis_url(DATA_DIR)
WORKER_DRAIN_SECONDS = env.read_seconds("WORKER_DRAIN_SECONDS", 8.0)
REPLIES_PER_WORKER = env.read_positive_int("REPLIES_PER_WORKER", 200)
LEDGER_LINES = env.read_string("LEDGER_LINES")
LOG_FORMAT = env.read_choice("LOG_FORMAT", logs.FORMS, default="line")
LOG_LEVEL = env.read_choice("LOG_LEVEL", logs.LEVELS, default="INFO")
