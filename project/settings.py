"""Settings, all from the environment. With the defaults, the product runs on one laptop.

`PALIMPSEST_PUBLIC_URL` (https://chat.example.org) enables the settings that need TLS.
Apart from that, the code does not distinguish between a laptop and a server.
"""

import os
import secrets
import socket
from typing import NamedTuple
from urllib.parse import urlsplit

import django_stubs_ext
from kombu import Exchange, Queue

from chats.ground import queues, schedule
from project import data_folder, database_url, env, instance, logs, redis_url, release
from project.file_storage import read_file_storage

django_stubs_ext.monkeypatch()

BASE_DIR = instance.BASE_DIR
DATA_DIR = instance.DATA_DIR
VERSION = release.get_product_version()

# --- Access ----------------------------------------------------------------------------------
PUBLIC_URL = instance.PUBLIC_URL
BEHIND_TLS = instance.BEHIND_TLS
TRUSTED_PROXY = instance.TRUSTED_PROXY

DEBUG = False
SECRET_KEY = env.read_string("SECRET_KEY") or data_folder.load_or_create_key(
    DATA_DIR / "secret_key", make="token"
)
# Newest first; older keys can still decrypt. Stored outside the database on purpose.
ENCRYPTION_KEYS = data_folder.read_encryption_keys("ENCRYPTION_KEYS", DATA_DIR / "encryption_key")
_public_host = urlsplit(PUBLIC_URL).hostname
if _public_host and ":" in _public_host:
    _public_host = f"[{_public_host}]"
ALLOWED_HOSTS = env.read_list("ALLOWED_HOSTS") or (
    # The local names are always allowed, because probes inside a container use them.
    [*([_public_host] if _public_host else []), "localhost", "127.0.0.1", "[::1]"]
)
CSRF_FAILURE_VIEW = "project.middleware.csrf_failure"
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL] if BEHIND_TLS else []

# Tests may name a place where a process kills itself (`chats.ground.failpoints`).
TESTING = env.read_bool("PALIMPSEST_TESTING")
FAILPOINT = env.read_string("PALIMPSEST_FAILPOINT")
if FAILPOINT and not TESTING:
    raise env.Misconfigured("PALIMPSEST_FAILPOINT is for tests: it kills processes.")

# --- Apps ------------------------------------------------------------------------------------
INSTALLED_APPS = [
    "project",
    "replay",
    "contextpolicy",
    "chats",
    # Without autodiscovery: only the web process needs the admin, and `project.urls` imports it.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    # Templates of widgets, which the forms of pages render.
    "django.forms",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
]
MIDDLEWARE = [
    "project.middleware.RequestIdMiddleware",
    "project.middleware.SecurityHeadersMiddleware",
    "project.middleware.GatewayOriginsMiddleware",
    "project.middleware.CompressionMiddleware",
    "project.middleware.ForeseenErrorsMiddleware",
    "project.middleware.PageFormMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "project.middleware.WholeFilesMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "chats.web.account.signin.SessionLimitsMiddleware",
    "chats.web.languages.LanguageMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]
ROOT_URLCONF = "project.urls"
ASGI_APPLICATION = "project.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "OPTIONS": {
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    ["project.templates.Loader", "django.template.loaders.app_directories.Loader"],
                )
            ],
            # Every template is translated, so none has to load these tags.
            "builtins": ["django.templatetags.i18n"],
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "project.middleware.csp_nonce",
                "chats.web.auth.color_scheme",
                "chats.web.help_pages.add_help_address",
            ],
        },
    },
]

# --- Stores ----------------------------------------------------------------------------------
DATABASE_PGBOUNCER = env.read_bool("DATABASE_PGBOUNCER")
DATABASES = {"default": database_url.build_database_settings(DATA_DIR)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = instance.REDIS_URL
# The broker through which the web processes of several hosts share rate limits. The launcher's own
# broker, behind a local socket, has only one web process.
RATES_URL = "" if REDIS_URL.startswith("unix:") else REDIS_URL
# The storage of uploaded files. Database rows name their paths, so any Django storage can be used.
STORAGES = {
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
    "files": read_file_storage(DATA_DIR / "files"),
}
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# --- Celery ----------------------------------------------------------------------------------
SWEEP_EVERY = env.read_seconds("SWEEP_EVERY", 10.0)
# Touched while the schedule sends its entries; the health check of `beat` checks its age.
SCHEDULE_FILE = env.read_string("SCHEDULE_FILE") or str(DATA_DIR / "schedule")
CELERY_BROKER_URL = redis_url.format_broker_url(REDIS_URL)
# Three queues, so that background work never delays a reply. Due jobs are short, and one recovers
# lost replies, so they share the queue of replies.
CELERY_TASK_DEFAULT_QUEUE = queues.REPLIES
CELERY_TASK_QUEUES = [Queue(name, Exchange(name), routing_key=name) for name in queues.EVERY]
CELERY_TASK_ROUTES = {
    "chats.run_turn": {"queue": queues.REPLIES},
    "chats.sweep": {"queue": queues.REPLIES},
    "chats.due.*": {"queue": queues.REPLIES},
    "chats.maintain_chat": {"queue": queues.SUMMARIES},
    "chats.*": {"queue": queues.UPKEEP},
}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TIMEZONE = "UTC"
# A task stays in the broker until a worker has a free thread, so that another worker can take it.
CELERY_WORKER_DISABLE_PREFETCH = True
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# Due jobs recover tasks that were not published, so a request tries the broker only once.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # The broker keeps no copy of a delivered task. If a worker dies, its work is in the database,
    # and a due job finds it within seconds; a copy would be redelivered after an hour.
    "ack_emulation": False,
    "priority_steps": [0],
    "socket_connect_timeout": 2,
    "socket_timeout": 5,
    "max_retries": 0,
}
CELERY_BEAT_SCHEDULE = {
    entry: {
        "task": schedule.name_task(entry),
        "schedule": SWEEP_EVERY * periods,
        "options": {
            # An entry that no worker took in time is replaced by the next one.
            "expires": SWEEP_EVERY * periods,
            # Only monitors show these, and creating them takes time.
            "argsrepr": "",
            "kwargsrepr": "",
        },
    }
    for entry, periods in schedule.PERIODS.items()
}

# --- The reply pipeline (seconds unless named otherwise) ----------------------------------------
LEASE_SECONDS = env.read_seconds("LEASE_SECONDS", 30.0)
HEARTBEAT_EVERY = env.read_seconds("HEARTBEAT_EVERY", 10.0)
REQUEUE_AFTER = env.read_seconds("REQUEUE_AFTER", 10.0)
MAX_ATTEMPTS = env.read_positive_int("MAX_ATTEMPTS", 3)
CHECKPOINT_EVERY = env.read_seconds("CHECKPOINT_EVERY", 1.0)
COALESCE_SECONDS = env.read_seconds("COALESCE_SECONDS", 0.05)
WORKER_DRAIN_SECONDS = instance.WORKER_DRAIN_SECONDS


class ProcessSettings(NamedTuple):
    """The settings that differ between the processes of one launcher."""

    # Leases name the worker that holds them.
    WORKER_NAME: str
    # Leases of workers with this name prefix are released when this worker starts, because those
    # workers have ended.
    TAKES_OVER: str
    # This process also runs the schedule. In a deployment with several hosts, `celery beat` does.
    KEEPS_SCHEDULE: bool


def read_process_settings() -> ProcessSettings:
    """Read the settings that differ between the processes of one launcher.

    A fork of a loaded process reads them again.
    """
    unique = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
    return ProcessSettings(
        env.read_string("PALIMPSEST_WORKER") or unique,
        env.read_string("PALIMPSEST_TAKES_OVER"),
        env.read_bool("PALIMPSEST_KEEPS_SCHEDULE"),
    )


WORKER_NAME, TAKES_OVER, KEEPS_SCHEDULE = read_process_settings()
PROVIDER_TIMEOUTS = {
    "connect": env.read_seconds("PROVIDER_CONNECT_TIMEOUT", 5.0),
    "first_token": env.read_seconds("PROVIDER_FIRST_TOKEN_TIMEOUT", 60.0),
    "gap": env.read_seconds("PROVIDER_GAP_TIMEOUT", 30.0),
    "total": env.read_seconds("PROVIDER_TOTAL_TIMEOUT", 600.0),
}
PROVIDER_CALLS = env.read_positive_int("PROVIDER_CALLS", 3)
PROVIDER_BACKOFF_MAX = env.read_seconds("PROVIDER_BACKOFF_MAX", 30.0)
# A provider that rejected its key is not called for this time, unless an operator intervenes.
BREAKER_SECONDS = env.read_seconds("BREAKER_SECONDS", 900.0)
# The total time for a summary. No reply waits for it.
SUMMARY_SECONDS = env.read_seconds("SUMMARY_SECONDS", 120.0)
# Per user, over all workers: one user's hundred chats must not delay other people's summaries.
SUMMARIES_PER_USER = env.read_positive_int("SUMMARIES_PER_USER", 4)
# A reply waits at most this long for the state of its chat.
STATE_SECONDS = env.read_seconds("STATE_SECONDS", 20.0)
# A reply waits at most this long for retrieved context (`chats.turns.references`).
REFERENCES_SECONDS = env.read_seconds("REFERENCES_SECONDS", 1.0)
# The time that a model server gets for a cache warm-up.
WARM_UP_SECONDS = env.read_seconds("WARM_UP_SECONDS", 60.0)
# Whether the summary model of a policy writes the titles of new chats.
TITLES_BY_MODEL = env.read_bool("TITLES_BY_MODEL", default=True)
# A chat that was idle for this time gets another cache warm-up when the user starts typing.
WARM_UP_REST_SECONDS = env.read_seconds("WARM_UP_REST_SECONDS", 60.0)
MAX_STEPS = env.read_positive_int("MAX_STEPS", 25)
DEMO_TOKEN_DELAY = env.read_seconds("DEMO_TOKEN_DELAY", 0.015)
ALLOWED_PRIVATE_PROVIDERS = env.read_list(
    "ALLOWED_PRIVATE_PROVIDERS",
    ""
    if BEHIND_TLS
    else "localhost:11434,127.0.0.1:11434,localhost:1234,127.0.0.1:1234,"
    "localhost:8080,127.0.0.1:8080,localhost:8000,127.0.0.1:8000",
)
# Hosts as host:port. Webhooks to these hosts may use private networks or plain http.
ALLOWED_PRIVATE_WEBHOOKS = env.read_list("ALLOWED_PRIVATE_WEBHOOKS", "")

# A first provider from the environment, with the variables of OpenAI's tools; see `project.seed`.
OPENAI_API_KEY = env.read_string("OPENAI_API_KEY")
OPENAI_BASE_URL = env.read_string("OPENAI_BASE_URL") or "https://api.openai.com/v1"
if env.read_string("OPENAI_BASE_URL"):
    # A user who controls the server's environment may also use a server in its network.
    ALLOWED_PRIVATE_PROVIDERS.append(env.extract_host_port(OPENAI_BASE_URL))

# The small model that the launcher runs (`project.small_model`): only this address is allowed.
SMALL_MODEL_PORT = env.read_positive_int("SMALL_MODEL_PORT", 0)
SMALL_MODEL_URL = f"http://127.0.0.1:{SMALL_MODEL_PORT}/v1" if SMALL_MODEL_PORT else ""
if SMALL_MODEL_PORT:
    ALLOWED_PRIVATE_PROVIDERS.append(f"127.0.0.1:{SMALL_MODEL_PORT}")

# --- Limits ------------------------------------------------------------------------------------
HISTORY_WINDOW = env.read_history_window()
MAX_CHARS_PER_MESSAGE = env.read_positive_int("MAX_CHARS_PER_MESSAGE", 4000)
MESSAGES_PER_CHAT = env.read_positive_int("MESSAGES_PER_CHAT", 200_000)
CHATS_PER_USER = env.read_positive_int("CHATS_PER_USER", 20_000)
FOLDERS_PER_USER = env.read_positive_int("FOLDERS_PER_USER", 200)
# The name in the signatures of ledger checkpoints, and the file with the last checkpoint.
LEDGER_ORIGIN = env.read_string("LEDGER_ORIGIN") or f"{_public_host or 'localhost'}/ledger"
if set(LEDGER_ORIGIN) & set("+ \t\n"):
    raise env.Misconfigured("LEDGER_ORIGIN must not contain a space or a plus sign.")
LEDGER_CHECKPOINT_FILE = env.read_string("LEDGER_CHECKPOINT_FILE") or str(
    DATA_DIR / "ledger_checkpoint"
)
# External anchors, off by default: a file to which every checkpoint is appended, and the URL of a
# time-stamping authority (RFC 3161).
LEDGER_CHECKPOINT_LIST = env.read_string("LEDGER_CHECKPOINT_LIST")
LEDGER_TSA_URL = env.read_string("LEDGER_TSA_URL")
LEDGER_TSA_HOST = env.extract_host_port(LEDGER_TSA_URL) if LEDGER_TSA_URL else ""
# Write each ledger event as a line of JSON to the standard output of the maintenance worker, in the
# native form (`own`) or as OCSF (`ocsf`); empty: off.
LEDGER_LINES = instance.LEDGER_LINES
if LEDGER_LINES not in {"", "own", "ocsf"}:
    raise env.Misconfigured("LEDGER_LINES must be own, ocsf or empty.")
# Whether policies for other people need a second person (`contextpolicy/two_persons.py`).
TWO_PERSONS = env.read_bool("TWO_PERSONS")
# Whether owners see who read their chats. Readers of the ledger always see it.
OWNERS_SEE_READINGS = env.read_bool("OWNERS_SEE_READINGS", default=True)
# The share of active chats that a policy may change before all of them must be counted
# (`contextpolicy/blast.py`); None: no counts.
BLAST_RADIUS_LIMIT = env.read_percentage("BLAST_RADIUS_LIMIT")
# A deleted chat can be restored for this time; then a due job erases it.
DELETED_CHAT_DAYS = env.read_days("DELETED_CHAT_DAYS", 7)
# A temporary chat is erased this long after its last message, or when the user signs out.
TEMPORARY_CHAT_HOURS = env.read_hours("TEMPORARY_CHAT_HOURS", 24)
# If off, plain Django replaces the package `speed`. For comparing and for debugging.
SPEED = env.read_bool("SPEED", default=True)
TURNS_PER_USER = env.read_positive_int("TURNS_PER_USER", 4)
TURNS_PER_KEY = env.read_positive_int("TURNS_PER_KEY", 8)
WAITING_PER_CHAT = env.read_positive_int("WAITING_PER_CHAT", 20)
REPLY_CHARS = env.read_positive_int("REPLY_CHARS", 400_000)
# Limits of calls to tool servers: seconds and result bytes of one call.
TOOL_SECONDS = env.read_seconds("TOOL_SECONDS", 60.0)
TOOL_RESULT_BYTES = env.read_positive_int("TOOL_RESULT_BYTES", 4 * 1024 * 1024)
# Local tool servers that an administrator may connect: command lines by name.
TOOL_COMMANDS = env.read_commands("TOOL_COMMANDS")
# Hours after which an unanswered request for consent counts as denied.
TOOL_CONSENT_HOURS = env.read_hours("TOOL_CONSENT_HOURS", 24)
TOOL_CALLS_PER_TURN = env.read_positive_int("TOOL_CALLS_PER_TURN", 50)
TOOL_CALLS_PER_STEP = env.read_positive_int("TOOL_CALLS_PER_STEP", 64)
STREAMS_PER_USER = env.read_positive_int("STREAMS_PER_USER", 20)
STREAMS_PER_INSTANCE = env.read_positive_int("STREAMS_PER_INSTANCE", 2000)
STREAM_SECONDS = env.read_seconds("STREAM_SECONDS", 900.0)
STREAM_RECHECK_SECONDS = env.read_seconds("STREAM_RECHECK_SECONDS", 60.0)
MESSAGES_PER_MINUTE = env.read_positive_int("MESSAGES_PER_MINUTE", 30)
METER_UPDATES_PER_MINUTE = env.read_positive_int("METER_UPDATES_PER_MINUTE", 60)
WARM_UPS_PER_MINUTE = env.read_positive_int("WARM_UPS_PER_MINUTE", 30)
API_REQUESTS_PER_MINUTE = env.read_positive_int("API_REQUESTS_PER_MINUTE", 300)
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
# A longer request body is on disk while it arrives. With Django's 2.5 MiB, 200 parallel uploads
# took half a gigabyte of memory.
FILE_UPLOAD_MAX_MEMORY_SIZE = 512 * 1024
FILE_UPLOAD_HANDLERS = [
    "django.core.files.uploadhandler.MemoryFileUploadHandler",
    "project.upload_handlers.UnnamedFileUploadHandler",
]
# Each ticked option is a field: policies and users can list thousands of models, tools or users.
# The bytes of a body are limited too. A form with this many fields takes about 20 ms to parse.
DATA_UPLOAD_MAX_NUMBER_FIELDS = 10_000
# The maximum bytes of a body with all messages of a chat: a team's snapshot, a `useChat` request.
SNAPSHOT_BYTES = 16 * 1024 * 1024
# Limits of /v1: bytes of a request, which contains its whole conversation; then concurrent replies
# and requests per minute of a key.
GATEWAY_BYTES = env.read_positive_int("GATEWAY_BYTES", 40 * 1024 * 1024)
GATEWAY_TURNS_PER_KEY = env.read_positive_int("GATEWAY_TURNS_PER_KEY", 100)
GATEWAY_REQUESTS_PER_MINUTE = env.read_positive_int("GATEWAY_REQUESTS_PER_MINUTE", 1200)
# The maximum bytes of the log probabilities of a reply. 20 for each token take about 1.6 kB.
GATEWAY_LOGPROB_BYTES = env.read_positive_int("GATEWAY_LOGPROB_BYTES", 8 * 1024 * 1024)
# Origins whose scripts may use /v1 from a browser, such as https://chat.example.org.
GATEWAY_ORIGINS = env.read_origins("GATEWAY_ORIGINS")
# The maximum bytes of an image, and the tokens that it counts. Providers count images by pixels,
# which this server does not inspect.
GATEWAY_IMAGE_BYTES = env.read_positive_int("GATEWAY_IMAGE_BYTES", 5 * 1024 * 1024)
GATEWAY_IMAGE_TOKENS = min(env.read_positive_int("GATEWAY_IMAGE_TOKENS", 1000), 999_999)
# A chat with only one request from a client is erased after this many hours.
GATEWAY_PROVISIONAL_HOURS = env.read_hours("GATEWAY_PROVISIONAL_HOURS", 24)
# Limits of imported files: bytes of the upload, bytes and entries of an archive, bytes of one chat.
# Then: concurrent imports per user, and days until an import report is deleted.
IMPORT_FILE_BYTES = env.read_positive_int("IMPORT_FILE_BYTES", 512 * 1024 * 1024)
IMPORT_UNPACKED_BYTES = env.read_positive_int("IMPORT_UNPACKED_BYTES", 2 * 1024 * 1024 * 1024)
IMPORT_ENTRIES = env.read_positive_int("IMPORT_ENTRIES", 20_000)
IMPORT_CHAT_BYTES = env.read_positive_int("IMPORT_CHAT_BYTES", 64 * 1024 * 1024)
# Larger files are imported in a separate process, which frees its memory when it ends.
IMPORT_APART_BYTES = env.read_positive_int("IMPORT_APART_BYTES", 4 * 1024 * 1024)
IMPORTS_PER_USER = env.read_positive_int("IMPORTS_PER_USER", 2)
IMPORT_REPORT_DAYS = env.read_days("IMPORT_REPORT_DAYS", 30)
# False: no files can be uploaded, or attached to new messages.
FILE_UPLOADS = env.read_bool("FILE_UPLOADS", default=True)
# Limits of uploaded files: bytes of a file, bytes of a user's files, and hours until a file that
# no message uses is deleted.
FILE_BYTES = env.read_positive_int("FILE_BYTES", 25 * 1024 * 1024)
FILES_PER_USER_BYTES = env.read_positive_int("FILES_PER_USER_BYTES", 2 * 1024 * 1024 * 1024)
# Maximum files of one message, and their bytes.
FILES_PER_MESSAGE = env.read_positive_int("FILES_PER_MESSAGE", 20)
MESSAGE_FILES_BYTES = env.read_positive_int("MESSAGE_FILES_BYTES", 100 * 1024 * 1024)
# A command, or the address of a ClamAV daemon, that can refuse files; empty: none is asked.
FILE_SCAN = env.read_command("PALIMPSEST_FILE_SCAN")
# New files are stored encrypted, with keys that the first of ENCRYPTION_KEYS encrypts.
FILE_ENCRYPTION = env.read_bool("FILE_ENCRYPTION", default=False)
UNUSED_FILE_HOURS = env.read_hours("UNUSED_FILE_HOURS", 24)
# Maximum bytes: path with query, one header, all headers.
ADDRESS_BYTES = env.read_positive_int("ADDRESS_BYTES", 4096)
HEADER_BYTES = env.read_positive_int("HEADER_BYTES", 8192)
HEADERS_BYTES = env.read_positive_int("HEADERS_BYTES", 32_768)

# --- People --------------------------------------------------------------------------------------
LOGIN_URL = "/login/"
LOGIN_REDIRECT_URL = "/"
LOGOUT_REDIRECT_URL = "/login/"
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {
        "NAME": "django.contrib.auth.password_validation.MinimumLengthValidator",
        "OPTIONS": {"min_length": 12},
    },
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
SESSION_COOKIE_AGE = 14 * 24 * 3600
STAFF_IDLE_SECONDS = 24 * 3600
LOGIN_LINK_SECONDS = 3600
LOGIN_FAILURES_PER_IP = env.read_positive_int("LOGIN_FAILURES_PER_IP", 10)
LOGIN_FAILURES_PER_ACCOUNT = env.read_positive_int("LOGIN_FAILURES_PER_ACCOUNT", 5)

# --- Transport -----------------------------------------------------------------------------------
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
CSRF_COOKIE_SAMESITE = "Lax"
SECURE_CONTENT_TYPE_NOSNIFF = True
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_SECURE = BEHIND_TLS
CSRF_COOKIE_SECURE = BEHIND_TLS
SECURE_SSL_REDIRECT = BEHIND_TLS
if BEHIND_TLS:
    SESSION_COOKIE_NAME = "__Host-sid"
    CSRF_COOKIE_NAME = "__Host-csrf"
    SECURE_HSTS_SECONDS = 31_536_000
    # Other names below this host may not support https.
    SECURE_HSTS_INCLUDE_SUBDOMAINS = env.read_bool("HSTS_SUBDOMAINS")
    SECURE_HSTS_PRELOAD = env.read_bool("HSTS_PRELOAD")
    # Django recommends both settings to every site.
    SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
if TRUSTED_PROXY:
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")

# --- Files and languages ------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 3600
LANGUAGE_CODE = "en"
# The names of the languages in the languages themselves. Each has a complete catalogue (`make
# messages`).
LANGUAGES = [("en", "English"), ("zh-hans", "简体中文")]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = "project.formats"
USE_TZ = True
# Django passes TZ to child processes; another zone would change the times in the broker's log.
TIME_ZONE = "UTC"

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "chats.api.core.schema.EndpointSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["chats.api.core.strict_json.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "chats.api.core.authentication.KeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "EXCEPTION_HANDLER": "chats.api.core.errors.handle_api_error",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Palimpsest",
    "DESCRIPTION": (
        "REST API for chats, context policies and the audit log. In addition to the responses "
        "listed, any request can get 400 `bad_request` (an unknown host name), 405 "
        "`method_not_allowed`, 406 `not_acceptable`, 414 `address_too_long`, 431 "
        "`headers_too_large`, 503 `database_busy` and 507 `storage_full`. In these cases, nothing "
        "was changed."
    ),
    "VERSION": VERSION,
    "SERVE_INCLUDE_SCHEMA": False,
    # The schema lists the values of a choice anyway.
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "chats.api.describe_responses.describe_refusals",
    ],
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
    # Needed because warnings also have a `level`.
    "ENUM_NAME_OVERRIDES": {
        "StatusEnum": "chats.models.turns.Turn.Status",
        "DeliveryStatusEnum": "chats.models.webhooks.WebhookDelivery.Status",
        "FileStateEnum": "chats.models.files.StoredFile.State",
        "ImportStateEnum": "chats.models.exchange.FileImport.State",
        "StateEnum": ["draft", "active", "retired"],
        "RadiusStateEnum": "contextpolicy.models.radius.BlastRadius.State",
        "OutcomeEnum": "chats.models.turns.Receipt.Outcome",
        "EvaluatedOutcomeEnum": "contextpolicy.models.evaluations.EvaluatedTurn.Outcome",
        "EvaluationStateEnum": "contextpolicy.models.evaluations.Evaluation.State",
        "RadiusPlaceEnum": "contextpolicy.models.radius.BlastRadius.Place",
        "EvaluationPlaceEnum": "contextpolicy.models.radius.BlastRadius.APPLIED",
        "FormEnum": ["sent", "messages", "text"],
        "LedgerFormEnum": ["jsonl", "csv"],
        "AssignmentLevelEnum": "contextpolicy.models.policies.PolicyAssignment.Level",
    },
}

# --- Metrics: off unless a client is permitted -------------------------------------------------
METRICS_TOKEN = env.read_string("METRICS_TOKEN")
METRICS_ADDRESSES = env.read_networks("METRICS_ADDRESSES")

# --- Traces and error reports: never content ---------------------------------------------------
OTEL_EXPORTER_OTLP_ENDPOINT = env.read_string("OTEL_EXPORTER_OTLP_ENDPOINT")
SENTRY_DSN = env.read_string("SENTRY_DSN")

# --- Logs: never content ------------------------------------------------------------------------
LOGGING = logs.build_logging_config(instance.LOG_LEVEL, instance.LOG_FORMAT)
