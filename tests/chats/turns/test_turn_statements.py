"""A turn needs a bounded number of statements and transactions on each database.

The limits are those of a turn as shipped: *Long chats*, a message over REST, no tools.
"""

from dataclasses import dataclass

import pytest
from asgiref.sync import async_to_sync
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from pytest_django.fixtures import Settings

from chats.models import Chat, Turn
from chats.providers.base import Finished, TextDelta, UsageReport
from tests.support.scripted_worker import InlineWorker, ScriptedProvider

pytestmark = pytest.mark.django_db

# The accepting request with its session and person, and the worker. PostgreSQL also locks rows.
MOST_OF_WEB = {"sqlite": 19, "postgresql": 21}
MOST_OF_WORKER = {"sqlite": 29, "postgresql": 30}


@dataclass(frozen=True)
class Cost:
    """The statements of captured queries, and the transactions that contain most of them.

    The test's own transaction turns the product's transactions into savepoints.
    """

    statements: int
    transactions: int


def count_cost(captured: CaptureQueriesContext) -> Cost:
    """Count statements, without those of savepoints, and outermost savepoints."""
    statements = transactions = depth = 0
    for query in captured.captured_queries:
        if query["sql"].startswith("SAVEPOINT"):
            transactions += depth == 0
            depth += 1
        elif query["sql"].startswith("RELEASE SAVEPOINT"):
            depth -= 1
        else:
            statements += 1
    assert depth == 0
    return Cost(statements, transactions)


def send_message(client: Client, chat: Chat, *, number: int) -> None:
    """Send a message over REST."""
    response = client.post(
        f"/api/v1/chats/{chat.pk}/messages",
        {"text": f"Question {number}"},
        content_type="application/json",
        headers={"Idempotency-Key": f"question-{number}"},
    )
    assert response.status_code == 202, response.content


def run_worker(turn: Turn) -> None:
    """Process a turn with a short reply."""
    reply = [TextDelta("An "), TextDelta("answer."), UsageReport(20, 3, 0, 0), Finished("stop")]
    async_to_sync(InlineWorker(ScriptedProvider([reply])).turn)(turn.pk)


def test_a_turn_takes_few_statements_in_four_transactions(
    alice: User, chat: Chat, client: Client, settings: Settings
) -> None:
    settings.SPEED = True
    client.force_login(alice)
    queued = Turn.objects.filter(branch__chat=chat, status=Turn.Status.QUEUED)
    # The first turn stores the effective policy and the title.
    send_message(client, chat, number=1)
    run_worker(queued.get())
    with CaptureQueriesContext(connection) as accepting:
        send_message(client, chat, number=2)
    turn = queued.get()
    with CaptureQueriesContext(connection) as replying:
        run_worker(turn)
    turn.refresh_from_db()
    assert turn.status == Turn.Status.COMPLETED, turn.error_sentence
    web, worker = count_cost(accepting), count_cost(replying)
    assert web.statements <= MOST_OF_WEB[connection.vendor], accepting.captured_queries
    assert worker.statements <= MOST_OF_WORKER[connection.vendor], replying.captured_queries
    assert (web.transactions, worker.transactions) == (1, 3)
