"""The conversation app. The path of a message, file by file:

    browser or client
      web/chat_pages.py or api/messages.py      takes the POST and makes one call
      turns/start.py                            one transaction: message, turn, ledger event
      tasks.py                                  the Celery task, which waits for the end
      turns/run.py                              claims the turn, calls the model, writes each step
      prompt/composition.py                     fetches the facts; the engine decides what is sent
      turns/steps.py                            every write of the turn, with its ledger events

The text of the reply is sent through `ground/live.py` to `streams/`, which pages and clients
follow.
When the turn has ended, `compaction/maintain.py` summarises old messages in the background.
`pyproject.toml` defines the packages, and the layers in which they may import each other.
`docs/architecture.md` describes the whole picture.
"""
