"""Parses the XML entries of Office archives, and refuses document types in them."""

import lzma
import zipfile
import zlib
from typing import Any, Protocol
from xml.parsers import expat


class DocumentTypeFound(Exception):
    """The XML declares a document type, which can contain entities.

    Office programs never write document types.
    """


# The errors of an archive whose entry is damaged or encrypted, or is not the expected XML.
ENTRY_ERRORS = (
    DocumentTypeFound,
    expat.ExpatError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    OSError,
    EOFError,
    RuntimeError,
    LookupError,
    ValueError,
)


class TextHandler(Protocol):
    """Collects the text of an XML entry."""

    def start_element(self, name: str, attributes: dict[str, str]) -> None: ...

    def end_element(self, name: str) -> None: ...

    def add_text(self, text: str) -> None: ...


def create_parser(handler: TextHandler) -> expat.XMLParserType:
    """Return a parser that calls the handler. Parsing raises `ENTRY_ERRORS`."""
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = refuse_document_type
    parser.StartElementHandler = handler.start_element
    parser.EndElementHandler = handler.end_element
    parser.CharacterDataHandler = handler.add_text
    return parser


def refuse_document_type(*_declaration: Any) -> None:
    """Raise `DocumentTypeFound`, because a document type can define entities that expand."""
    raise DocumentTypeFound
