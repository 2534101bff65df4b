"""Settings, all from the environment; the defaults run the product on one laptop.

`PALIMPSEST_PUBLIC_URL` (https://chat.example.org) turns the TLS-bound settings on. Nothing
below `project/` asks which of the two ways the product runs in.
"""

import os
import secrets
import socket
from pathlib import Path
from urllib.parse import urlsplit

import django_stubs_ext
from django.core.exceptions import ImproperlyConfigured
from kombu import Exchange, Queue

from project import env

django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
DATA_DIR = env.data_folder(BASE_DIR / "data")

# --- Who may connect -------------------------------------------------------------------------
PUBLIC_URL = env.text("PALIMPSEST_PUBLIC_URL").rstrip("/")
_public = urlsplit(PUBLIC_URL)
if PUBLIC_URL and (_public.scheme != "https" or not _public.hostname):
    raise ImproperlyConfigured("PALIMPSEST_PUBLIC_URL must be an https:// address.")
BEHIND_TLS = bool(PUBLIC_URL)

DEBUG = False
SECRET_KEY = env.text("SECRET_KEY") or env.kept_key(DATA_DIR / "secret_key", make="token")
# Newest first; older keys still read what they wrote. Kept outside the database on purpose.
ENCRYPTION_KEYS = env.items("ENCRYPTION_KEYS") or [
    env.kept_key(DATA_DIR / "encryption_key", make="fernet")
]
ALLOWED_HOSTS = env.items("ALLOWED_HOSTS") or (
    # The local names stay: probes inside a container use them.
    [*([_public.hostname] if _public.hostname else []), "localhost", "127.0.0.1", "[::1]"]
)
CSRF_TRUSTED_ORIGINS = [PUBLIC_URL] if BEHIND_TLS else []

# Tests may name a place where a process kills itself (`chats.failpoints`).
TESTING = env.flag("PALIMPSEST_TESTING")
FAILPOINT = env.text("PALIMPSEST_FAILPOINT")
if FAILPOINT and not TESTING:
    raise ImproperlyConfigured("PALIMPSEST_FAILPOINT is for tests: it kills processes.")

# --- Parts -----------------------------------------------------------------------------------
INSTALLED_APPS = [
    "project",
    "contextpolicy",
    "chats",
    # Without autodiscovery: only the web process needs the admin, and `project.urls` imports it.
    "django.contrib.admin.apps.SimpleAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "django_htmx",
]
MIDDLEWARE = [
    "project.middleware.RequestIdMiddleware",
    "project.middleware.SecurityHeadersMiddleware",
    "project.middleware.ForeseenErrorsMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "chats.web.signin_views.SessionLimitsMiddleware",
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
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "project.middleware.csp_nonce",
            ],
        },
    },
]

# --- Stores ----------------------------------------------------------------------------------
DATABASES = {"default": env.database(DATA_DIR)}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
REDIS_URL = env.redis_url(DATA_DIR)
CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}

# --- Celery ----------------------------------------------------------------------------------
SWEEP_EVERY = env.seconds("SWEEP_EVERY", 10.0)
CELERY_BROKER_URL = env.broker_url(REDIS_URL)
# Three queues, so that no background work stands before a reply. The sweep is quick, and lost
# replies wait for it, so it goes with them.
CELERY_TASK_DEFAULT_QUEUE = "replies"
CELERY_TASK_QUEUES = [
    Queue(name, Exchange(name), routing_key=name) for name in ("replies", "summaries", "upkeep")
]
CELERY_TASK_ROUTES = {
    "chats.run_turn": {"queue": "replies"},
    "chats.sweep": {"queue": "replies"},
    "chats.maintain_chat": {"queue": "summaries"},
    "chats.*": {"queue": "upkeep"},
}
CELERY_TASK_SERIALIZER = "json"
CELERY_ACCEPT_CONTENT = ["json"]
CELERY_TASK_IGNORE_RESULT = True
CELERY_TIMEZONE = "UTC"
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_CANCEL_LONG_RUNNING_TASKS_ON_CONNECTION_LOSS = True
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_CONNECTION_MAX_RETRIES = None
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
# The sweep repairs what a lost publish leaves, so a request waits for the broker only once.
CELERY_TASK_PUBLISH_RETRY = False
CELERY_BROKER_TRANSPORT_OPTIONS = {
    # No copy of what was delivered stays in the broker: what dies with a worker is in the rows, and
    # the sweep finds it there within seconds, not after the hour in which a copy would be tried.
    "ack_emulation": False,
    "priority_steps": [0],
    "socket_connect_timeout": 2,
    "socket_timeout": 5,
    "max_retries": 0,
}
CELERY_BEAT_SCHEDULE = {
    "sweep": {
        "task": "chats.sweep",
        "schedule": SWEEP_EVERY,
        # A sweep that nobody fetched in time is replaced by the next one.
        "options": {"expires": SWEEP_EVERY},
    },
}

# --- The reply pipeline (seconds unless named otherwise) ----------------------------------------
LEASE_SECONDS = env.seconds("LEASE_SECONDS", 30.0)
HEARTBEAT_EVERY = env.seconds("HEARTBEAT_EVERY", 10.0)
REQUEUE_AFTER = env.seconds("REQUEUE_AFTER", 10.0)
MAX_ATTEMPTS = env.positive_int("MAX_ATTEMPTS", 3)
CHECKPOINT_EVERY = env.seconds("CHECKPOINT_EVERY", 1.0)
COALESCE_SECONDS = env.seconds("COALESCE_SECONDS", 0.05)
WORKER_DRAIN_SECONDS = env.seconds("WORKER_DRAIN_SECONDS", 8.0)
REPLIES_PER_WORKER = env.positive_int("REPLIES_PER_WORKER", 200)
# Leases name the worker that holds them.
WORKER_NAME = env.text("PALIMPSEST_WORKER") or (
    f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
)
PROVIDER_TIMEOUTS = {
    "connect": env.seconds("PROVIDER_CONNECT_TIMEOUT", 5.0),
    "first_token": env.seconds("PROVIDER_FIRST_TOKEN_TIMEOUT", 60.0),
    "gap": env.seconds("PROVIDER_GAP_TIMEOUT", 30.0),
    "total": env.seconds("PROVIDER_TOTAL_TIMEOUT", 600.0),
}
PROVIDER_CALLS = env.positive_int("PROVIDER_CALLS", 3)
PROVIDER_BACKOFF_MAX = env.seconds("PROVIDER_BACKOFF_MAX", 30.0)
# How long a provider that refused its key is left alone, unless an operator acts.
BREAKER_SECONDS = env.seconds("BREAKER_SECONDS", 900.0)
# A summariser gets this long in all; nobody waits for it.
SUMMARY_SECONDS = env.seconds("SUMMARY_SECONDS", 120.0)
# Of one person at once, over all workers: a hundred chats of one delay no summary of another.
SUMMARIES_PER_USER = env.positive_int("SUMMARIES_PER_USER", 4)
# The state of a chat has to be there before its reply, which waits this long at most.
STATE_SECONDS = env.seconds("STATE_SECONDS", 20.0)
MAX_STEPS = env.positive_int("MAX_STEPS", 25)
DEMO_TOKEN_DELAY = env.seconds("DEMO_TOKEN_DELAY", 0.015)
ALLOWED_PRIVATE_PROVIDERS = env.items(
    "ALLOWED_PRIVATE_PROVIDERS",
    ""
    if BEHIND_TLS
    else "localhost:11434,127.0.0.1:11434,localhost:1234,127.0.0.1:1234,"
    "localhost:8080,127.0.0.1:8080,localhost:8000,127.0.0.1:8000",
)

# A first provider from the environment, as OpenAI's own tools read it; see `project.seed`.
OPENAI_API_KEY = env.text("OPENAI_API_KEY")
OPENAI_BASE_URL = env.text("OPENAI_BASE_URL") or "https://api.openai.com/v1"
if env.text("OPENAI_BASE_URL"):
    # Whoever sets the environment of the server may also name a server in its own network.
    ALLOWED_PRIVATE_PROVIDERS.append(env.host_and_port(OPENAI_BASE_URL))

# --- Limits ------------------------------------------------------------------------------------
HISTORY_WINDOW = env.history_window()
MAX_CHARS_PER_MESSAGE = env.positive_int("MAX_CHARS_PER_MESSAGE", 4000)
MESSAGES_PER_CHAT = env.positive_int("MESSAGES_PER_CHAT", 200_000)
CHATS_PER_USER = env.positive_int("CHATS_PER_USER", 20_000)
RUNS_PER_USER = env.positive_int("RUNS_PER_USER", 4)
RUNS_PER_KEY = env.positive_int("RUNS_PER_KEY", 8)
WAITING_PER_CHAT = env.positive_int("WAITING_PER_CHAT", 20)
REPLY_CHARS = env.positive_int("REPLY_CHARS", 400_000)
TOOL_CALLS_PER_STEP = env.positive_int("TOOL_CALLS_PER_STEP", 64)
STREAMS_PER_USER = env.positive_int("STREAMS_PER_USER", 20)
STREAMS_PER_INSTANCE = env.positive_int("STREAMS_PER_INSTANCE", 2000)
STREAM_SECONDS = env.seconds("STREAM_SECONDS", 900.0)
STREAM_RECHECK_SECONDS = env.seconds("STREAM_RECHECK_SECONDS", 60.0)
MESSAGES_PER_MINUTE = env.positive_int("MESSAGES_PER_MINUTE", 30)
API_REQUESTS_PER_MINUTE = env.positive_int("API_REQUESTS_PER_MINUTE", 300)
DATA_UPLOAD_MAX_MEMORY_SIZE = 2_621_440
DATA_UPLOAD_MAX_NUMBER_FIELDS = 200
# Path with query, one header, all headers.
ADDRESS_BYTES = env.positive_int("ADDRESS_BYTES", 4096)
HEADER_BYTES = env.positive_int("HEADER_BYTES", 8192)
HEADERS_BYTES = env.positive_int("HEADERS_BYTES", 32_768)

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
LOGIN_FAILURES_PER_IP = env.positive_int("LOGIN_FAILURES_PER_IP", 10)
LOGIN_FAILURES_PER_ACCOUNT = env.positive_int("LOGIN_FAILURES_PER_ACCOUNT", 5)

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
    SECURE_HSTS_INCLUDE_SUBDOMAINS = True
    SECURE_HSTS_PRELOAD = True
    SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$"]
if env.flag("TRUSTED_PROXY"):
    SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
TRUSTED_PROXY = env.flag("TRUSTED_PROXY")

# --- Files and words ----------------------------------------------------------------------------
STATIC_URL = "/static/"
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
WHITENOISE_MAX_AGE = 3600
LANGUAGE_CODE = "en"
USE_TZ = True
# Django hands TZ to child processes, so anything else would move the broker's log times.
TIME_ZONE = "UTC"

REST_FRAMEWORK = {
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["chats.api.parsing.StrictJSONParser"],
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "chats.api.authentication.KeyAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "EXCEPTION_HANDLER": "chats.api.errors.handle",
    "UNAUTHENTICATED_USER": "django.contrib.auth.models.AnonymousUser",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Palimpsest",
    "DESCRIPTION": "Chats whose context a policy governs.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "REDOC_DIST": "SIDECAR",
}

# --- Logs: never content ------------------------------------------------------------------------
LOG_LEVEL = env.text("LOG_LEVEL", "INFO").upper()
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {
            "()": "project.logs.OneLineFormatter",
            "format": "{asctime} {levelname} {name} {request_id} {message}",
            "style": "{",
        },
    },
    "filters": {"without_stack": {"()": "project.logs.WithoutStack"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        "project": {"level": LOG_LEVEL},
        "chats": {"level": LOG_LEVEL},
        "contextpolicy": {"level": LOG_LEVEL},
        "celery": {"level": "WARNING"},
        "django.request": {"level": "ERROR"},
        # What a stranger sends is no fault of ours: a line, no stack.
        "django.security.DisallowedHost": {"filters": ["without_stack"]},
        "uvicorn.error": {"level": "WARNING"},
    },
}
