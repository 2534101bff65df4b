"""The conversation app. The way of a message, file by file:

    browser or program
      web/chat_pages.py or api/messages.py      takes the POST and makes one call
      turns/start.py                            one transaction: message, turn, ledger event
      tasks.py                                  Celery's task, which waits until the turn is over
      turns/run.py                              claims the turn, calls the model, writes each step
      prompt/composition.py                     fetches the facts; the engine decides what is sent
      turns/steps.py                            every write of the turn, with its ledger events

The words of the reply go over `ground/live.py` to `streams/`, which page and programs follow. When
the turn is over, `compaction/maintain.py` folds old messages in the background. The rooms and the
layers in which they may import each other stand in `pyproject.toml`; `docs/architecture.md` has
the whole picture.
"""
