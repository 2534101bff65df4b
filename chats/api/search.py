"""The search in one's own chats."""

from typing import Any, ClassVar

from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from chats.actions.searching import Hit, search_chats
from chats.api.endpoint import Endpoint, person
from chats.api.inputs import SearchQuery
from chats.api.outputs import items
from chats.api.schema import READ_ERRORS, answers
from chats.memory.recall import Scope
from chats.record import access


class TitleOut(serializers.Serializer[Any]):
    """A chat whose title fits."""

    id = serializers.UUIDField()
    title = serializers.CharField()
    updated_at = serializers.DateTimeField()


class HitOut(serializers.Serializer[Any]):
    """A message or a summary that was found; exactly one of both ids is set."""

    message = serializers.UUIDField(source="passage.message_id", allow_null=True)
    summary = serializers.UUIDField(source="passage.summary_id", allow_null=True)
    chat = serializers.UUIDField(source="passage.chat_id")
    chat_title = serializers.CharField(source="passage.chat_title")
    branch = serializers.UUIDField(source="passage.branch_id")
    seq = serializers.IntegerField(source="passage.seq")
    role = serializers.CharField(
        source="passage.role", help_text="`user`, `assistant` or `summary`."
    )
    speaker = serializers.CharField(source="passage.speaker")
    written_at = serializers.DateTimeField(source="passage.written_at")
    excerpt = serializers.SerializerMethodField()
    marks = serializers.SerializerMethodField(
        help_text="The places of the words in the excerpt: [first, after the last]."
    )
    why = serializers.ListField(
        source="passage.why",
        child=serializers.CharField(),
        help_text="The words of the question that stand in it.",
    )
    score = serializers.FloatField(source="passage.score")
    on_open_branch = serializers.SerializerMethodField(
        help_text="False: another branch than the one that is open has to be chosen to read on."
    )

    def get_excerpt(self, hit: Hit) -> str:
        """Return the part of the text around the first words that match."""
        return hit.passage.text[hit.passage.start : hit.passage.end]

    def get_marks(self, hit: Hit) -> list[list[int]]:
        """Return the places of the words within the excerpt."""
        start, end = hit.passage.start, hit.passage.end
        inside = [(max(a, start), min(b, end)) for a, b in hit.passage.marks]
        return [[a - start, b - start] for a, b in inside if a < b]

    def get_on_open_branch(self, hit: Hit) -> bool:
        """Tell whether it stands on the branch that is open in its chat."""
        return not hit.is_beside


class SearchOut(serializers.Serializer[Any]):
    """A page of what was found."""

    titles = TitleOut(many=True, help_text="Chats whose titles fit, on the first page.")
    data = HitOut(many=True)  # type: ignore[assignment]  # the base class has another of its own
    has_more = serializers.BooleanField(help_text="The next page has more; 10 pages at most.")
    ignored = serializers.ListField(
        child=serializers.CharField(), help_text="Words after the first 32, which are not read."
    )
    indexed_share = serializers.FloatField(
        help_text="The share of the messages that can be searched by now, from 0 to 1."
    )


class ChatSearch(Endpoint):
    """The search in titles, messages, originals and summaries of the person's own chats."""

    scopes: ClassVar = {"GET": "chats:read"}

    @extend_schema(
        operation_id="search",
        parameters=[SearchQuery],
        responses=answers({200: SearchOut}, errors=(*READ_ERRORS, 422)),
    )
    def get(self, request: Request) -> Response:
        """Find by words, best first, 20 a page; what was excluded or erased is not found.

        The page of the search finds the same. Raises `NotFound` for a chat or folder that is not
        one's own, and `SearchTooLong`.
        """
        query = SearchQuery.read(request.query_params.dict())
        asking = person(request)
        if query.get("chat") is not None:
            access.chat_for(user=asking, chat_id=query["chat"])
        if query.get("folder") is not None:
            access.folder_for(user=asking, folder_id=query["folder"])
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
            user=asking,
            question=query["q"],
            scope=scope,
            at=timezone.now(),
            page=query["page"],
        )
        return Response(
            {
                "titles": items(TitleOut, found.chats),
                "data": items(HitOut, found.hits),
                "has_more": found.has_more,
                "ignored": list(found.ignored),
                "indexed_share": round(found.indexed_share, 4),
            }
        )
