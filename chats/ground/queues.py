"""Queue names, in a module that does not import Celery, for the launcher.

Users wait only for tasks of the first queue, which is for replies. `CELERY_TASK_ROUTES` assigns
tasks to queues.
"""

REPLIES = "replies"
SUMMARIES = "summaries"
UPKEEP = "upkeep"
BACKGROUND = (SUMMARIES, UPKEEP)
EVERY = (REPLIES, *BACKGROUND)
