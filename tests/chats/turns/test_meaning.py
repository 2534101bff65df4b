"""Semantic search: embedded texts, results, and behaviour without the embedding model."""

import asyncio
import json
import re
import time
from datetime import datetime
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models.functions import Now
from django.test import Client

from chats.actions import erasure, marks
from chats.background import due_jobs
from chats.compaction import embedding, embedding_spaces, indexing, question_embedding
from chats.ground import breakers, leases, queue
from chats.memory.search import archive, nearest, vectors, words
from chats.models import (
    Branch,
    Chat,
    Folder,
    Message,
    SearchText,
    TextVector,
    TurnReference,
    VectorSpace,
)
from chats.providers import embedders
from chats.providers.base import ProviderError, Timeouts
from chats.providers.embedders import ServerEmbedder, check_vectors
from chats.providers.registry import ProviderAccountValue
from chats.turns import references
from contextpolicy.engine.policy.policy import PolicyValues
from contextpolicy.models import AuditEvent, ModelSpec
from tests.chats.providers.conftest import openai_server, running_openai
from tests.fakes.embedding import FakeEmbedder
from tests.fakes.fake_server import FakeServer
from tests.support.embedding_models import Embedders, embed_everything
from tests.support.retrieved_context import (
    Elsewhere,
    Say,
    find_retrieved_context,
    get_newest_receipt,
)

__all__ = ["openai_server", "running_openai"]
pytestmark = [
    pytest.mark.requirement("S1.2"),
    pytest.mark.usefixtures("built_again", "fresh_vectors", "no_breaker"),
]
CAT = "My kitten is called Zanzibar."
ABOUT = "What did I name the feline at home?"


@pytest.fixture
def chosen(models: Embedders, now: datetime) -> FakeEmbedder:
    """The first embedding model, selected."""
    embedding.choose_embedding_model("near-one", anew=False, actor="user:1", now=now)
    return models["one"]


def filled(elsewhere: Elsewhere) -> Chat:
    """A chat with the text about the kitten among other texts."""
    return elsewhere(
        CAT, "The fiscal office wrote.", "We rent a vessel.", "Two loaf pans.", "Rain all day."
    )


@pytest.fixture
def embedded(elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime) -> Chat:
    """The chat of `filled`, embedded by the selected model."""
    chat = filled(elsewhere)
    embed_everything(now)
    return chat


@pytest.mark.memory_case(43)
def test_a_question_without_a_shared_word_finds_its_answer(
    chat: Chat,
    govern_references: Any,
    elsewhere: Elsewhere,
    say: Say,
    chosen: FakeEmbedder,
    now: datetime,
) -> None:
    filled(elsewhere)
    govern_references()
    assert CAT not in find_retrieved_context(say(chat, ABOUT))
    embed_everything(now)

    request = say(chat, ABOUT)

    assert CAT in find_retrieved_context(request)
    assert "Rain" not in find_retrieved_context(request)
    assert [note for note in get_newest_receipt().notes if note.startswith("vectors")] == []


def test_a_greeting_still_brings_nothing(
    chat: Chat, govern_references: Any, say: Say, embedded: Chat
) -> None:
    govern_references()
    assert find_retrieved_context(say(chat, "Hi there!")) == ""


@pytest.mark.memory_case(21)
def test_a_folder_is_a_wall_for_meaning_too(
    chat: Chat,
    alice: User,
    govern_references: Any,
    elsewhere: Elsewhere,
    say: Say,
    chosen: FakeEmbedder,
    now: datetime,
) -> None:
    filed = filled(elsewhere)
    filed.folder = Folder.objects.create(owner=alice, name="Work")
    filed.save()
    embed_everything(now)
    govern_references()
    assert find_retrieved_context(say(chat, ABOUT)) == ""


@pytest.mark.memory_case(19)
def test_nobody_is_given_the_words_of_others(
    chat: Chat,
    bob: User,
    govern_references: Any,
    elsewhere: Elsewhere,
    say: Say,
    chosen: FakeEmbedder,
    now: datetime,
) -> None:
    other = filled(elsewhere)
    Chat.objects.filter(pk=other.pk).update(owner=bob)
    TextVector.objects.all().delete()
    embed_everything(now)
    assert set(TextVector.objects.values_list("owner", flat=True)) == {bob.pk}
    govern_references()
    assert find_retrieved_context(say(chat, ABOUT)) == ""


@pytest.mark.memory_case(43)
def test_a_new_model_of_the_same_length_is_a_space_of_its_own(
    models: Embedders, now: datetime, embedded: Chat
) -> None:
    embedding.choose_embedding_model("near-two", anew=False, actor="user:1", now=now)
    embed_everything(now)

    (space,) = VectorSpace.objects.all()
    assert (space.state, space.model and space.model.name) == ("serving", "two")
    assert set(TextVector.objects.values_list("space", flat=True)) == {space.pk}
    assert space.key != vectors.build_space_key(
        ModelSpec.objects.get(slug="near-one"), base_url="x"
    )


def test_the_key_names_all_that_a_vector_depends_on(models: Embedders) -> None:
    model = ModelSpec.objects.get(slug="near-one")
    keys = {vectors.build_space_key(model, base_url=address) for address in ("a", "b")}
    for name in ("other", "multilingual-e5-small"):
        model.name = name
        keys.add(vectors.build_space_key(model, base_url="a"))
    assert len(keys) == 4
    assert vectors.get_embedding_prefixes("multilingual-e5-small") == ("query: ", "passage: ")


@pytest.mark.memory_case(44)
def test_the_old_space_answers_until_the_new_one_is_complete(
    chat: Chat, govern_references: Any, say: Say, models: Embedders, now: datetime, embedded: Chat
) -> None:
    govern_references()
    models["two"].fault = ProviderError("provider_unavailable")
    embedding.choose_embedding_model("near-two", anew=False, actor="user:1", now=now)
    embed_everything(now)

    states = dict(VectorSpace.objects.values_list("model__name", "state"))
    assert states == {"one": "serving", "two": "building"}
    assert CAT in find_retrieved_context(say(chat, ABOUT))
    new = VectorSpace.objects.get(state="building")
    assert (new.fault, vectors.measure_space_progress(new).done) == ("provider_unavailable", 0)

    models["two"].fault = None
    embed_everything(now)
    assert [space.model and space.model.name for space in VectorSpace.objects.all()] == ["two"]
    assert CAT in find_retrieved_context(say(chat, ABOUT))


@pytest.mark.memory_case(44)
def test_a_pass_that_was_killed_goes_on_and_doubles_nothing(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(elsewhere)
    monkeypatch.setattr(embedding, "PAGE", 2)
    space = VectorSpace.objects.get()
    assert embedding.claim_space(space)
    assert embedding.process_embedding_pages(space, now=now, give_up=time.monotonic())
    dead = VectorSpace.objects.get()
    assert embedding.claim_space(dead)
    texts = SearchText.objects.order_by("pk")[:2]
    keys = [text.pk for text in texts]
    embedding.embed_texts(
        dead,
        SearchText.objects.filter(pk__in=keys),
        embedder=embedding_spaces.get_space_embedder(dead),
    )
    # The worker died. Another one continues after its lease expires, without repeated calls.
    asked = list(chosen.asked)
    assert not embedding.claim_space(VectorSpace.objects.get())
    VectorSpace.objects.update(lease_until=leases.compute_expired_end())
    embed_everything(now)

    assert VectorSpace.objects.get().state == "serving"
    again = chosen.asked[len(asked) :]
    assert set(again) & set(asked) == {"Noted."}, "each reply is a text of its own"
    assert TextVector.objects.count() == SearchText.objects.filter(message__isnull=False).count()


@pytest.mark.memory_case(45)
def test_the_longest_texts_are_tried_in_halves(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime
) -> None:
    long = " ".join(f"word{number}" for number in range(100))
    elsewhere(long, "Short one.")
    chosen.refuses = 300
    embed_everything(now)

    text = SearchText.objects.get(message__seq=1)
    rows = TextVector.objects.filter(text=text.pk)
    assert rows.count() == 4
    assert {row.fault for row in rows} == {""}


@pytest.mark.memory_case(45)
def test_texts_without_a_vector_are_counted_and_shown(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime, operators_page: Client
) -> None:
    elsewhere("This is refused, however short it is made, for it has an odd word in it: lighthouse")
    chosen.refuses = 10
    embed_everything(now)

    progress = vectors.measure_space_progress(VectorSpace.objects.get())
    assert (progress.texts, progress.done, progress.refused) == (2, 1, 1)
    page = operators_page.get("/setup/search-model").content.decode()
    assert "1 of 2" in page
    assert 'data-note="messages-refused"' in page


@pytest.mark.parametrize(
    "refusal",
    [
        ProviderError("provider_protocol"),
        ProviderError("content_filtered"),
        ProviderError("provider_unavailable", status=500),
    ],
    ids=["protocol", "filter", "status"],
)
def test_a_text_whose_vector_cannot_be_used_holds_up_no_other(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime, refusal: ProviderError
) -> None:
    """A zero or NaN vector fails for this text only.

    Such a vector is invalid (`provider_protocol`), or its server cannot write it as JSON (500).
    """
    elsewhere("An odd word that breaks the model: lighthouse", CAT)
    chosen.refuses, chosen.refusal = 32, refusal
    embed_everything(now)
    space = VectorSpace.objects.get()
    progress = vectors.measure_space_progress(space)
    assert (space.state, space.fault, progress.refused) == ("serving", "", 1)
    assert progress.done == progress.texts - 1


@pytest.mark.parametrize("is_late", [False, True])
def test_a_text_whose_vector_has_another_length_holds_up_no_other(
    elsewhere: Elsewhere,
    chosen: FakeEmbedder,
    now: datetime,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_late: bool,
) -> None:
    usual = chosen.of
    odd = "An odd word that breaks the model: lighthouse"
    monkeypatch.setattr(
        chosen, "of", lambda text: [*usual(text), *([0.5] if "lighthouse" in text else [])]
    )
    elsewhere(CAT, *([] if is_late else [odd]))
    embed_everything(now)
    if is_late:
        elsewhere(odd)
        embedding.reschedule_pass(VectorSpace.objects.get(), code="", now=now)
        embed_everything(now)
    space = VectorSpace.objects.get()
    progress = vectors.measure_space_progress(space)
    assert (space.state, space.fault, progress.refused) == ("serving", "", 1)
    assert (space.dimensions, progress.done) == (chosen.size, progress.texts - 1)


@pytest.mark.parametrize("vector", [[1e39], [1e-30], [10**400]])
def test_a_vector_outside_of_single_precision_is_none(vector: list[Any]) -> None:
    with pytest.raises(ProviderError, match="provider_protocol"):
        embedders.check_vectors([embedders.decode_embedding({"embedding": vector})])


def test_a_model_that_refuses_everything_has_refused_no_text(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime
) -> None:
    elsewhere(CAT)
    chosen.fault = ProviderError("provider_rejected")
    embed_everything(now)
    space = VectorSpace.objects.get()
    assert (space.state, space.fault) == ("building", "provider_rejected")
    assert not TextVector.objects.exists()
    chosen.fault = None
    embed_everything(now)
    assert vectors.measure_space_progress(VectorSpace.objects.get()).missing == 0
    # A rejected text is one text without a vector.
    assert vectors.Progress(texts=5, done=3, refused=1).missing == 2


def test_a_long_text_is_found_by_any_of_its_passages(
    chat: Chat,
    govern_references: Any,
    elsewhere: Elsewhere,
    say: Say,
    chosen: FakeEmbedder,
    now: datetime,
) -> None:
    filled(elsewhere)
    long = " ".join(["nothing"] * 200) + " the ship"
    elsewhere(long)
    embed_everything(now)
    text = SearchText.objects.get(message__parts__0__text=long)
    assert TextVector.objects.filter(text=text.pk).count() == 3
    govern_references(reference_tokens=4_000)
    assert "nothing" in find_retrieved_context(say(chat, "Which boat was it?"))


@pytest.mark.parametrize(
    ("fault", "note"),
    [
        (ProviderError("provider_unavailable"), "vectors:down"),
        (ProviderError("provider_protocol"), "vectors:down"),
        (ProviderError("provider_timeout"), "vectors:late"),
    ],
)
@pytest.mark.memory_case(26)
def test_without_the_model_words_alone_decide_and_the_receipt_says_so(
    chat: Chat,
    govern_references: Any,
    say: Say,
    chosen: FakeEmbedder,
    fault: ProviderError,
    note: str,
    embedded: Chat,
) -> None:
    govern_references()
    chosen.fault = fault
    assert CAT in find_retrieved_context(say(chat, "What about the kitten called Zanzibar?"))
    assert note in get_newest_receipt().notes
    for _ in range(breakers.MISSES):
        say(chat, ABOUT)
    asked = len(chosen.asked)
    say(chat, ABOUT)
    assert "vectors:breaker" in get_newest_receipt().notes
    # New texts are embedded, but not the question.
    assert len(chosen.asked) == asked


@pytest.mark.memory_case(26)
def test_a_slow_model_holds_no_reply_up(
    chat: Chat,
    govern_references: Any,
    say: Say,
    chosen: FakeEmbedder,
    settings: Any,
    embedded: Chat,
) -> None:
    govern_references()
    settings.REFERENCES_SECONDS = 2.0
    chosen.wait = 30
    began = time.monotonic()
    request = say(chat, "What about the kitten called Zanzibar?")
    assert time.monotonic() - began < 5
    assert CAT in find_retrieved_context(request)
    assert "vectors:late" in get_newest_receipt().notes


def test_a_model_that_answers_otherwise_than_before_is_not_compared(
    chat: Chat,
    govern_references: Any,
    elsewhere: Elsewhere,
    say: Say,
    chosen: FakeEmbedder,
    now: datetime,
    embedded: Chat,
) -> None:
    govern_references()
    chosen.size = 32
    say(chat, ABOUT)
    assert "vectors:other_dimensions" in get_newest_receipt().notes
    elsewhere("One more text.")
    embed_everything(now)
    assert VectorSpace.objects.get().fault == "other_dimensions"
    embedding.choose_embedding_model("near-one", anew=True, actor="user:1", now=now)
    embed_everything(now)
    (space,) = VectorSpace.objects.all()
    assert (space.dimensions, space.revision, space.fault) == (32, 2, "")


@pytest.mark.parametrize(
    "vector", [[[float("nan")]], [[float("inf")]], [[0.0, 0.0]], [[1.0], [1.0, 2.0]], [[]]]
)
def test_what_is_no_vector_is_an_error(vector: list[list[float]]) -> None:
    with pytest.raises(ProviderError) as raised:
        check_vectors(vector)
    assert raised.value.code == "provider_protocol"


def test_a_server_is_asked_by_its_embeddings(openai_server: FakeServer, settings: Any) -> None:
    settings.ALLOWED_PRIVATE_PROVIDERS = frozenset({openai_server.host})
    account = ProviderAccountValue("near", "openai", openai_server.base_url, "")
    embedder = ServerEmbedder(account, model="text-embedding-3")

    found = asyncio.run(embedder.vectors(["a", "bbb"], timeouts=Timeouts()))

    assert [len(vector) for vector in found] == [4, 4]
    assert found[1][0] == 3 * found[0][0]


def test_what_is_said_is_embedded_with_its_words(
    elsewhere: Elsewhere,
    chosen: FakeEmbedder,
    now: datetime,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    embed_everything(now)
    other = elsewhere(CAT)
    with django_capture_on_commit_callbacks(execute=True):
        indexing.update_chat_index(chat_id=other.pk)
    assert (queue.EMBED_CHAT, {"chat_id": str(other.pk)}) in sent
    embedding.embed_chat(other.pk, now=now)
    embedding.embed_chat(other.pk, now=now)
    assert TextVector.objects.count() == 2
    assert len(chosen.asked) == 2


def test_what_a_server_missed_is_made_up_for_by_itself(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime
) -> None:
    embed_everything(now)
    other = elsewhere(CAT)
    chosen.fault = ProviderError("provider_unavailable")
    embedding.embed_chat(other.pk, now=now)
    space = VectorSpace.objects.get()
    assert (space.fault, space.state) == ("provider_unavailable", "serving")
    chosen.fault = None
    embed_everything(now)
    space.refresh_from_db()
    assert (space.fault, vectors.measure_space_progress(space).missing) == ("", 0)


@pytest.mark.parametrize("way", ["message", "chat", "excluded"])
@pytest.mark.memory_case(15)
def test_an_erasure_reaches_the_vectors_in_its_transaction(
    alice: User, elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime, way: str
) -> None:
    other = elsewhere(CAT, "We rent a vessel.")
    embed_everything(now)
    before = TextVector.objects.count()
    message = Message.objects.select_related("branch__chat").get(branch__chat=other, seq=1)

    class Taken(Exception):
        """Rolls back the transaction."""

    def erase() -> None:
        if way == "chat":
            erasure.erase_chat(user=alice, chat=other, now=now)
        elif way == "message":
            erasure.erase_message(user=alice, message=message, now=now)
        else:
            marks.exclude_message(message=message, actor="user:1", now=now)

    def take_back() -> None:
        with transaction.atomic():
            erase()
            assert TextVector.objects.count() < before
            raise Taken

    with pytest.raises(Taken):
        take_back()
    assert TextVector.objects.count() == before
    erase()
    assert not TextVector.objects.filter(message=message.pk).exists()


@pytest.mark.memory_case(15)
def test_what_was_erased_during_a_call_gets_no_vector(
    alice: User, elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime
) -> None:
    other = elsewhere(CAT)
    text = SearchText.objects.get(message__seq=1)
    message = Message.objects.select_related("branch__chat").get(branch__chat=other, seq=1)
    made = {text.pk: [nearest.pack_vector(chosen.of(CAT))]}
    erasure.erase_message(user=alice, message=message, now=now)
    assert vectors.store_vectors(VectorSpace.objects.get(), made) == 0
    assert not TextVector.objects.exists()


def test_what_is_only_indexed_anew_keeps_its_vectors(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = elsewhere(CAT)
    embed_everything(now)
    kept = set(TextVector.objects.values_list("pk", flat=True))
    monkeypatch.setattr(archive, "VERSION", words.VERSION + 1)
    archive.index_branch(Branch.objects.select_related("chat").get(chat=other))
    assert set(TextVector.objects.values_list("pk", flat=True)) == kept


@pytest.mark.memory_case(20)
@pytest.mark.parametrize("who", ["chat", "folder", "policy", "temporary"])
def test_words_that_a_provider_may_not_have_are_not_embedded(
    alice: User,
    govern_references: Any,
    elsewhere: Elsewhere,
    chosen: FakeEmbedder,
    now: datetime,
    who: str,
) -> None:
    other = elsewhere(CAT)
    if who == "folder":
        other.folder = Folder.objects.create(owner=alice, name="Work", without_memory=True)
    other.without_memory, other.temporary = who == "chat", who == "temporary"
    other.save()
    if who == "policy":
        govern_references(memory_providers=["elsewhere"])
    embed_everything(now)
    assert chosen.asked == []
    assert VectorSpace.objects.get().state == "serving"


@pytest.mark.memory_case(20)
@pytest.mark.parametrize("who", ["chat", "folder", "policy"])
def test_vectors_that_a_provider_may_no_longer_have_made_go_with_the_next_pass(
    alice: User,
    govern_references: Any,
    elsewhere: Elsewhere,
    chosen: FakeEmbedder,
    now: datetime,
    who: str,
) -> None:
    other, open_one = elsewhere(CAT), elsewhere("We rent a vessel.")
    embed_everything(now)
    of_other = TextVector.objects.filter(message__branch__chat=other)
    assert of_other.exists()
    if who == "policy":
        govern_references(memory_providers=["elsewhere"])
    elif who == "folder":
        folder = Folder.objects.create(owner=alice, name="Work", without_memory=True)
        Chat.objects.filter(pk=other.pk).update(folder=folder)
    else:
        Chat.objects.filter(pk=other.pk).update(without_memory=True)
    embed_everything(now)
    assert not of_other.exists()
    left = TextVector.objects.filter(message__branch__chat=open_one)
    assert left.exists() is (who != "policy")
    assert SearchText.objects.filter(message__branch__chat=open_one).exists()


def test_vectors_stay_while_no_model_can_be_chosen_or_a_chat_waits_to_be_restored(
    elsewhere: Elsewhere, chosen: FakeEmbedder, now: datetime
) -> None:
    other = elsewhere(CAT)
    embed_everything(now)
    kept = set(TextVector.objects.values_list("pk", flat=True))
    assert kept
    ModelSpec.objects.filter(embeds=False).update(enabled=False)
    embed_everything(now)
    ModelSpec.objects.filter(embeds=False).update(enabled=True)
    Chat.objects.filter(pk=other.pk).update(deleted_at=now)
    embed_everything(now)
    assert set(TextVector.objects.values_list("pk", flat=True)) == kept


def test_a_question_that_the_provider_may_not_have_is_not_embedded(
    chat: Chat, govern_references: Any, say: Say, chosen: FakeEmbedder, embedded: Chat
) -> None:
    asked = len(chosen.asked)
    govern_references(memory_providers=["demo"])
    say(chat, ABOUT)
    assert len(chosen.asked) == asked
    assert "vectors:provider" in get_newest_receipt().notes


def test_without_numpy_there_are_no_vectors_and_setup_says_so(
    chat: Chat,
    govern_references: Any,
    say: Say,
    chosen: FakeEmbedder,
    monkeypatch: pytest.MonkeyPatch,
    operators_page: Client,
    embedded: Chat,
) -> None:
    govern_references()
    asked = len(chosen.asked)
    monkeypatch.setattr(nearest, "is_numpy_installed", lambda: False)
    assert CAT in find_retrieved_context(say(chat, "What about the kitten called Zanzibar?"))
    assert "vectors:not_installed" in get_newest_receipt().notes
    assert len(chosen.asked) == asked
    assert "make semantic" in operators_page.get("/setup/search-model").content.decode()
    refused = operators_page.post("/setup/search-model", {"model": "near-two"})
    assert refused.status_code == 409
    assert '<option value="near-two" selected>' in refused.content.decode()


@pytest.fixture
def operators_page(alice: User, client: Client) -> Client:
    """The browser of an operator."""
    alice.is_superuser = alice.is_staff = True
    alice.save()
    client.force_login(alice)
    return client


def test_an_operator_chooses_builds_anew_and_ends_it(
    operators_page: Client, models: Embedders, now: datetime
) -> None:
    page = operators_page.get("/setup/search-model").content.decode()
    assert re.search(r'name="model"[^>]*>\s*<option value="">', page)
    assert not VectorSpace.objects.exists()

    operators_page.post("/setup/search-model", {"model": "near-one"})
    assert VectorSpace.objects.get().state == "building"
    operators_page.post("/setup/search-model", {"model": "near-one"})
    assert VectorSpace.objects.count() == 1
    embed_everything(now)
    assert "In use" in operators_page.get("/setup/search-model").content.decode()
    operators_page.post("/setup/search-model", {"model": "near-one", "act": "anew"})
    assert VectorSpace.objects.filter(state="building", revision=2).exists()
    operators_page.post("/setup/search-model", {"model": ""})
    embed_everything(now)

    assert not VectorSpace.objects.exists()
    assert not TextVector.objects.exists()
    told = AuditEvent.objects.filter(type="search.model_chosen").order_by("pk")
    assert [event.data["model"] for event in told] == ["near-one"] * 3 + [""]
    assert operators_page.post("/setup/search-model", {"model": "nowhere"}).status_code == 404


def test_who_is_no_operator_may_not(client: Client, charlie: User, models: Embedders) -> None:
    client.force_login(charlie)
    assert client.post("/setup/search-model", {"model": "near-one"}).status_code == 403
    assert client.get("/setup/search-model").status_code == 403
    assert "/setup/search-model" not in client.get("/setup/").content.decode()
    assert not VectorSpace.objects.exists()


def test_what_cannot_be_read_in_time_is_read_on_with_the_next_question(
    alice: User,
    elsewhere: Elsewhere,
    chosen: FakeEmbedder,
    now: datetime,
    monkeypatch: Any,
    embedded: Chat,
) -> None:
    monkeypatch.setattr(nearest, "BLOCK", 2)
    space = VectorSpace.objects.get()
    given: dict[str, Any] = {
        "space_id": space.pk,
        "owner_id": alice.pk,
        "places": None,
        "without": (),
    }
    number = TextVector.objects.count()
    late = 0
    while (
        found := nearest.compare_question_texts(chosen.of(ABOUT), give_up=time.monotonic(), **given)
    ) is None:
        late += 1
    assert late == number // 2
    text = SearchText.objects.get(message__parts__0__text=CAT)
    assert next(iter(found.nearest)) == text.pk
    # New vectors are read in addition. Deleted vectors are not compared any more.
    TextVector.objects.filter(text=text.pk).delete()
    elsewhere("One kitten more.")
    embed_everything(now)
    found = nearest.compare_question_texts(chosen.of(ABOUT), give_up=time.monotonic() + 9, **given)
    assert found is not None
    assert text.pk in found.nearest, "the pass has made it again"
    TextVector.objects.filter(text=text.pk).delete()
    found = nearest.compare_question_texts(chosen.of(ABOUT), give_up=time.monotonic() + 9, **given)
    assert found is not None
    assert text.pk not in found.nearest
    assert (
        nearest.compare_question_texts(chosen.of(ABOUT), give_up=0, **{**given, "owner_id": 0})
        is not None
    )


def test_only_so_many_vectors_are_kept(
    alice: User, chosen: FakeEmbedder, monkeypatch: Any, embedded: Chat
) -> None:
    monkeypatch.setattr(nearest, "BLOCK", 2)
    monkeypatch.setattr(nearest, "MOST_VECTORS", 4)
    space = VectorSpace.objects.get()
    given: dict[str, Any] = {
        "space_id": space.pk,
        "owner_id": alice.pk,
        "places": None,
        "without": (),
    }
    found = nearest.compare_question_texts(chosen.of(ABOUT), give_up=time.monotonic() + 9, **given)
    assert found is not None
    newest = SearchText.objects.order_by("-pk").values_list("pk", flat=True)[:4]
    assert set(found.nearest) == set(newest)


def test_the_sweep_goes_on_with_what_is_due(
    chosen: FakeEmbedder,
    sent: list[tuple[str, dict[str, str]]],
    django_capture_on_commit_callbacks: Any,
) -> None:
    VectorSpace.objects.update(due_at=Now())
    with django_capture_on_commit_callbacks(execute=True):
        due_jobs.run_all_due_jobs(now=VectorSpace.objects.get().created_at)
    assert queue.EMBED in [task for task, _ in sent]


def test_the_ledger_has_no_vector_and_no_word(embedded: Chat) -> None:
    told = AuditEvent.objects.get(type="search.model_chosen").data
    assert json.dumps(told) == json.dumps({"model": "near-one", "revision": 1})


def test_references_by_meaning_are_rows_as_the_others(
    chat: Chat,
    govern_references: Any,
    elsewhere: Elsewhere,
    say: Say,
    chosen: FakeEmbedder,
    now: datetime,
) -> None:
    other = filled(elsewhere)
    embed_everything(now)
    govern_references()
    say(chat, ABOUT)
    assert {row.message.branch.chat_id for row in TurnReference.objects.all()} == {other.pk}


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("  \n ", 0),
        ("one", 1),
        ("word " * 240, 2),
        ("字" * 2_000, 3),
    ],
)
def test_texts_are_divided_and_nothing_is_lost(text: str, number: int) -> None:
    found = vectors.split_into_chunks(text)
    assert len(found) == number
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(len(part) <= vectors.CHUNK_CHARACTERS for part in found)


def test_own_load_does_not_make_the_embedding_server_unavailable(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.REFERENCES_SECONDS = 0.4
    server = FakeEmbedder(size=16)
    server.wait = 0.01
    by = question_embedding.QuestionEmbedder(1, 16, server, "", "p")
    monkeypatch.setattr(question_embedding, "get_question_embedder", lambda: by)

    async def wait_for_thread(function: Any, **given: Any) -> Any:
        await asyncio.sleep(0.1)
        return function(**given)

    for _ in range(4):
        found = asyncio.run(
            references.embed_text(
                lambda: "text",
                values=PolicyValues(),
                aside=wait_for_thread,
                began=time.monotonic(),
            )
        )
        assert found.note == "late"
    assert server.asked == []
    assert not references.BREAKER.is_open()
    assert not question_embedding.BREAKER.is_open()
