"""The names of the queues, apart from Celery: the launcher knows them and loads no Celery.

A person waits for what is in the first one, a reply; nobody waits for a summary, an index, a
verification. `CELERY_TASK_ROUTES` says which task goes where.
"""

REPLIES = "replies"
SUMMARIES = "summaries"
UPKEEP = "upkeep"
BACKGROUND = (SUMMARIES, UPKEEP)
EVERY = (REPLIES, *BACKGROUND)
