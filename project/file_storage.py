"""The storage of uploaded files: the data folder, or a bucket of an S3-compatible server."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from project import env

SECONDS = 10
MEMORY_BYTES = 1024 * 1024


def read_file_storage(folder: Path) -> dict[str, Any]:
    """Return the settings of Django's storage `files`.

    `folder` is used if no bucket is set. Raises Misconfigured if a bucket is set but its
    packages are not installed.
    """
    bucket = env.read_string("S3_BUCKET")
    if not bucket:
        return {
            "BACKEND": "django.core.files.storage.FileSystemStorage",
            "OPTIONS": {
                "location": folder,
                "base_url": None,
                "file_permissions_mode": 0o600,
                "directory_permissions_mode": 0o700,
            },
        }
    if find_spec("storages") is None or find_spec("boto3") is None:
        raise env.Misconfigured(
            "S3_BUCKET needs the packages for S3. Install them with make s3, or build the image"
            " with the argument S3=1."
        )
    from boto3.session import Config  # noqa: PLC0415  # an optional package

    return {
        "BACKEND": "storages.backends.s3.S3Storage",
        "OPTIONS": {
            "bucket_name": bucket,
            "location": env.read_string("S3_PREFIX"),
            "endpoint_url": env.read_string("S3_ENDPOINT") or None,
            "region_name": env.read_string("S3_REGION") or None,
            "access_key": env.read_string("S3_ACCESS_KEY") or None,
            "secret_key": env.read_string("S3_SECRET_KEY") or None,
            # Each path is used once. Clients never get addresses of the bucket.
            "file_overwrite": False,
            "default_acl": None,
            # Larger files are read through a temporary file without a name.
            "max_memory_size": MEMORY_BYTES,
            "client_config": Config(
                connect_timeout=SECONDS,
                read_timeout=SECONDS,
                retries={"total_max_attempts": 3, "mode": "standard"},
                # Servers other than Amazon's do not know the newer checksums or host names.
                request_checksum_calculation="when_required",
                response_checksum_validation="when_required",
                s3={
                    "addressing_style": env.read_choice(
                        "S3_ADDRESSING", ("auto", "path", "virtual"), default="auto"
                    )
                },
            ),
        },
    }
