"""Base serializers of the API. Each field is listed, so that a new column never leaks."""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from rest_framework import serializers


class ErrorOut(serializers.Serializer[Mapping[str, Any]]):
    """An error. Clients should check `code`, which is stable; `message` is for people."""

    message = serializers.CharField(
        help_text="Human-readable message in the language of the request."
    )
    type = serializers.CharField(
        help_text=(
            "`server_error` for status codes of 500 or higher, otherwise `invalid_request_error`."
        )
    )
    param = serializers.CharField(
        allow_null=True,
        help_text=(
            "Name of the field or parameter that caused the error; a nested field has a path such "
            "as `agents.0.name`. Null: none."
        ),
    )
    code = serializers.CharField(help_text="Stable error code.")
    request_id = serializers.CharField(
        help_text="Id of the request, as in the `X-Request-ID` header and in the server log."
    )
    details = serializers.ListField(
        child=serializers.DictField(),
        required=False,
        help_text=(
            "Only for refused policies: each problem with `code`, `fields` and `message`, or "
            "each field that another version changed."
        ),
    )


class ErrorBody(serializers.Serializer[Mapping[str, Any]]):
    """The body of every error response."""

    error = ErrorOut()


def build_page_serializer(
    kind: type[serializers.Serializer[Any]],
) -> type[serializers.Serializer[Any]]:
    """Return a serializer of `{data, next_cursor}`, with items of this kind."""
    fields = {
        "data": kind(many=True),
        "next_cursor": serializers.CharField(
            allow_null=True, help_text="Cursor of the next page. Null on the last page."
        ),
    }
    return type(f"{kind.__name__.removesuffix('Out')}Page", (serializers.Serializer,), fields)


def serialize_row(kind: type[serializers.Serializer[Any]], row: object) -> dict[str, Any]:
    answered: dict[str, Any] = _get_serializer(kind).to_representation(row)
    return answered


@cache
def _get_serializer(kind: type[serializers.Serializer[Any]]) -> serializers.Serializer[Any]:
    """Return a cached serializer, because creating one copies its fields. It stores no row."""
    return kind()


def serialize_rows(kind: type[serializers.Serializer[Any]], rows: Iterable[object]) -> list[Any]:
    return [serialize_row(kind, row) for row in rows]
