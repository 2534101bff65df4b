"""Queue names, separate from Celery so that the launcher need not import it.

Users wait only for tasks of the first queue, the one for replies. `CELERY_TASK_ROUTES`
assigns tasks to queues.
"""

REPLIES = "replies"
SUMMARIES = "summaries"
UPKEEP = "upkeep"
BACKGROUND = (SUMMARIES, UPKEEP)
EVERY = (REPLIES, *BACKGROUND)
