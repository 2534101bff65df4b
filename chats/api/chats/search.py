"""Search of a user's chats."""

from typing import Any

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions.searching import Hit, search_chats
from chats.api.chats.chat_inputs import SearchQuery
from chats.api.core.base import Endpoint
from chats.api.core.outputs import serialize_rows
from chats.memory.search.recall_scope import Scope
from chats.record import access


class TitleOut(serializers.Serializer[Any]):
    """A chat whose title matches the query."""

    id = serializers.UUIDField(help_text="Id of the chat.")
    title = serializers.CharField()
    updated_at = serializers.DateTimeField(help_text="Time of the last use of the chat.")


class HitOut(serializers.Serializer[Any]):
    """A matching message or summary. Exactly one of `message` and `summary` is set."""

    message = serializers.UUIDField(
        source="excerpt.message_id",
        allow_null=True,
        help_text="Id of the message. Null: the result is a summary.",
    )
    summary = serializers.UUIDField(
        source="excerpt.summary_id",
        allow_null=True,
        help_text="Id of the compaction. Null: the result is a message.",
    )
    chat = serializers.UUIDField(source="excerpt.chat_id", help_text="Id of the chat.")
    chat_title = serializers.CharField(source="excerpt.chat_title")
    branch = serializers.UUIDField(source="excerpt.branch_id", help_text="Id of the branch.")
    seq = serializers.IntegerField(
        source="excerpt.seq",
        help_text=(
            "Sequence number of the message. For a summary: sequence number of the last message "
            "that it covers."
        ),
    )
    role = serializers.CharField(
        source="excerpt.role", help_text="`user`, `assistant` or `summary`."
    )
    speaker = serializers.CharField(
        source="excerpt.speaker",
        help_text=(
            "Display name of the author: the name of a team role, `You` or `Assistant`. Empty: "
            "the result is a summary."
        ),
    )
    written_at = serializers.DateTimeField(
        source="excerpt.written_at", help_text="Time of the message or summary."
    )
    undated = serializers.BooleanField(
        source="excerpt.undated",
        help_text=(
            "True: the time of the message is unknown, so `written_at` only determines its order."
        ),
    )
    excerpt = serializers.SerializerMethodField()
    marks = serializers.SerializerMethodField(
        help_text=(
            "Positions of the matching words in `excerpt`, in code points, as [start, end) pairs."
        )
    )
    why = serializers.ListField(
        source="excerpt.why",
        child=serializers.CharField(),
        help_text="Words of the query that this result, or a summary line that cites it, contains.",
    )
    score = serializers.FloatField(
        source="excerpt.score",
        help_text="Relevance, higher is better. Comparable only within one search.",
    )
    on_open_branch = serializers.SerializerMethodField(
        help_text="True: the result is on the chat's active branch."
    )

    def get_excerpt(self, hit: Hit) -> str:
        """Part of the text around the first matching words."""
        return hit.excerpt.text[hit.excerpt.start : hit.excerpt.end]

    def get_marks(self, hit: Hit) -> list[list[int]]:
        """Positions of the matching words in the excerpt."""
        start, end = hit.excerpt.start, hit.excerpt.end
        inside = [(max(a, start), min(b, end)) for a, b in hit.excerpt.marks]
        return [[a - start, b - start] for a, b in inside if a < b]

    def get_on_open_branch(self, hit: Hit) -> bool:
        """True: the result is on the chat's active branch."""
        return not hit.is_beside


class SearchOut(serializers.Serializer[Any]):
    """A page of search results, with the titles that match."""

    titles = TitleOut(
        many=True,
        help_text=(
            "Up to 10 chats whose title contains the words of the query. Empty after the first "
            "page, and with `role`, `speaker`, `after` or `before`."
        ),
    )
    data = HitOut(many=True)  # type: ignore[assignment]  # overrides `Serializer.data`
    has_more = serializers.BooleanField(
        help_text="True: there is another page. There are at most 10 pages."
    )
    ignored = serializers.ListField(
        child=serializers.CharField(),
        help_text="Words after the 32nd word of the query, which are ignored.",
    )
    indexed_share = serializers.FloatField(
        help_text=(
            "Share of your messages that is indexed, 0 to 1. Below 1, recent messages may be "
            "missing."
        )
    )


class SearchViewSet(Endpoint):
    """Search of titles, messages and summaries in the user's chats."""

    serializer_class = SearchOut

    @extend_schema(operation_id="search", summary="Search chats", parameters=[SearchQuery])
    def retrieve(self, request: Request) -> Response:
        """Search your chats by keywords, best match first, 20 results per page.

        Excluded messages, erased messages and temporary chats are not searched. If a chat's policy
        does not allow searching its originals, messages that a summary replaced are not found
        either. Raises `NotFound` for a chat or folder that is not yours, and `SearchTooLong`.
        """
        query = SearchQuery.read(request.query_params.dict())
        if query.get("chat") is not None:
            access.get_chat(user=self.user, chat_id=query["chat"])
        if query.get("folder") is not None:
            access.get_folder(user=self.user, folder_id=query["folder"])
        scope = Scope(
            kind="folder" if query.get("folder") else "person",
            id=query.get("folder"),
            role=query.get("role", ""),
            speaker=query["speaker"],
            chat=query.get("chat"),
            before=query.get("before"),
            after=query.get("after"),
        )
        found = search_chats(
            user=self.user, question=query["q"], scope=scope, at=timezone.now(), page=query["page"]
        )
        return Response(
            {
                "titles": serialize_rows(TitleOut, found.chats),
                "data": serialize_rows(HitOut, found.hits),
                "has_more": found.has_more,
                "ignored": list(found.ignored),
                "indexed_share": round(found.indexed_share, 4),
            }
        )
