"""The product's settings with the pseudo-locale as a language, for processes that tests start."""

from project.settings import *  # noqa: F403  # Django reads every name of the module
from project.settings import LANGUAGES as PRODUCT_LANGUAGES
from tests import pseudo

LANGUAGES = [*PRODUCT_LANGUAGES, (pseudo.CODE, "Pseudo")]
pseudo.install()
