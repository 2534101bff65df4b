"""Queue names. The module does not import Celery, so the launcher can use it.

Users wait only for tasks of the first queue, which is for replies. `CELERY_TASK_ROUTES` assigns
tasks to queues.
"""

REPLIES = "replies"
SUMMARIES = "summaries"
UPKEEP = "upkeep"
BACKGROUND = (SUMMARIES, UPKEEP)
EVERY = (REPLIES, *BACKGROUND)
