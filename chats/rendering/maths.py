r"""Renders formulas of untrusted LaTeX as MathML: `$…$`, `$$…$$`, `\(…\)`, `\[…\]`, environments.

A formula contains no blank line, so a part of a stream has the same formulas as the whole text.
Invalid LaTeX, and formulas that are too long, too deep or too large, are shown as source code.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from django.utils.html import escape
from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from math_core import LatexError, LatexToMathML

# Limits: characters of LaTeX, lines of a displayed formula, depth of elements.
LONGEST_FORMULA = 2_000
MOST_LINES = 100
DEEPEST = 60
# Characters of MathML per message. One character of LaTeX makes up to fifty of them.
MOST_MATHML = 400_000
# A longer formula may be wider than a phone. Its box scrolls, so it must be focusable.
WIDE = 20

# Environments that need no surrounding mark.
OUTERMOST = r"align|alignat|equation|gather|multline|flalign|eqnarray"
OPENING = re.compile(rf"\$\$|\\\[|\\begin\{{(?:{OUTERMOST})\*?\}}")
DISPLAY_ENDS = {"$$": "$$", r"\[": r"\]"}
INLINE_ENDS = {**DISPLAY_ENDS, "$": "$", r"\(": r"\)"}

# Text between these dollars is money ("5 and 6"), not a formula.
MONEY = re.compile(r"\d[\d.,]*\s+[^\W\d_]{2}")
# Must not follow a closing dollar: "$5-$6", "$HOME:$PATH", "${a}/${b}", "$(a).b($(c))".
AFTER_DOLLAR = re.compile(r"[0-9A-Z_{(]")

# The text between two shell variables, when a letter follows the second dollar: "$src/$dst",
# "$user@$host", "$first$second". A longer name may be followed by other separators. Names of one
# letter are formulas ("$k$s", "$x,$and"), also with an index ("$x_1$s").
BETWEEN_VARIABLES = re.compile(
    r"""([a-z]|[A-Z][A-Z0-9_]*)["']?[/:@]([^\s\\^=<>]*[/:@.,"'-])?
    |(?![a-z]_)[a-z_]\w+(->|=>|["']?[/:@.,;|?&+\[(-]([^\s\\^=<>]*[^\s\\^=<>\w)\]}!|])?)
    |(?![a-z]_)[a-z_][a-z0-9_]{2,}""",
    re.VERBOSE,
)

# Custom commands are not expanded, so a formula cannot be larger than its source.
CONVERTER = LatexToMathML(max_expansions=0, fancy_error=False, allow_unreliable_rendering=True)
# Formulas in messages have no automatic numbers, only those set with \tag.
NUMBERED = re.compile(r"\\(begin|end)\{(align|alignat|equation|gather|multline|flalign)\}")
LABEL = re.compile(r"\\label\{[^{}]*\}")
ELEMENT = re.compile(r"<(/?)[a-z][^<>]*?(/?)>")
STYLE = re.compile(r' style="([^"]*)"')
# The converter lays out tables with inline styles, which the pages' CSP forbids.
CLASS_OF = {
    "text-align:right": "math-end",
    "text-align:left": "math-start",
    "padding-left:0": "math-joined-start",
    "padding-right:0": "math-joined-end",
    "border-left:0.05emsolidcurrentcolor": "math-line-start",
    "border-right:0.05emsolidcurrentcolor": "math-line-end",
    "border-top:0.05emsolidcurrentcolor": "math-line-top",
    "border-bottom:0.05emsolidcurrentcolor": "math-line-bottom",
    "width:50%": "math-margin",
}
RUN = re.compile(r"`+")
ESCAPED_OR_RUN = re.compile(r"\\.|`+", re.DOTALL)
# Code fences, which no formula contains.
FENCES = ("```", "~~~")


def install_formula_rules(md: MarkdownIt) -> None:
    interrupts = ["paragraph", "reference", "blockquote", "list"]
    md.block.ruler.before("fence", "formula_block", parse_displayed_formula, {"alt": interrupts})
    md.inline.ruler.before("escape", "formula", parse_inline_formula)
    md.add_render_rule("formula", render_formula)
    md.add_render_rule("formula_block", render_formula)


def parse_displayed_formula(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls rules by position
    """Parse the lines from an opening mark to the line that ends with its closing mark."""
    if state.is_code_block(start):
        return False
    first = strip_line_marks(state, start)
    opening = OPENING.match(first)
    if opening is None:
        return False
    mark = opening[0]
    closing = DISPLAY_ENDS.get(mark) or mark.replace("begin", "end")
    lines: list[str] = []
    for line in range(start, min(end, start + MOST_LINES)):
        if state.isEmpty(line) or state.sCount[line] < state.blkIndent:
            return False
        words = strip_line_marks(state, line)
        # A code fence starts here (`blocks.find_closed_offset` does the same).
        if words.startswith(FENCES):
            return False
        before, found, after = words[0 if lines else len(mark) :].partition(closing)
        lines.append(before)
        if found:
            latex = "\n".join(lines)
            # With text after it, the formula is part of a paragraph.
            is_formula = bool(latex.strip()) and not after.strip()
            if is_formula and not silent:
                state.line = line + 1
                push_formula_block(state, start, mark=mark, closing=closing, latex=latex)
            return is_formula
    return False


def strip_line_marks(state: StateBlock, line: int) -> str:
    """Return a line without its indentation and list or quote marks."""
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def push_formula_block(
    state: StateBlock, start: int, *, mark: str, closing: str, latex: str
) -> None:
    """Add the token of a displayed formula."""
    token = state.push("formula_block", "math", 0)
    token.block, token.map = True, [start, state.line]
    # An environment is part of the formula, a mark is not.
    is_mark = mark in DISPLAY_ENDS
    token.content = latex if is_mark else f"{mark}{latex}{closing}"
    token.info = "display"
    token.markup = f"{mark}{latex}{closing}"


def parse_inline_formula(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - markdown-it calls rules by position
    """Parse a formula within a paragraph. A dollar sign for money starts no formula."""
    mark = next((m for m in INLINE_ENDS if state.src.startswith(m, state.pos)), None)
    if mark is None:
        return False
    closing, start = INLINE_ENDS[mark], state.pos + len(mark)
    most = min(state.posMax, start + LONGEST_FORMULA)
    stop = (
        find_next_dollar(state.src, start, most)
        if mark == "$"
        else state.src.find(closing, start, most)
    )
    latex = state.src[start:stop]
    if stop < 0 or not latex.strip() or has_code_span(state, start, stop):
        return False
    if mark == "$" and not is_between_dollars(state.src, start, stop):
        return False
    if not silent:
        token = state.push("formula", "math", 0)
        token.content = latex
        token.info = "display" if mark in DISPLAY_ENDS else ""
        token.markup = f"{mark}{latex}{closing}"
    state.pos = stop + len(closing)
    return True


def has_code_span(state: StateInline, start: int, stop: int) -> bool:
    """Return True if a code span starts between two positions."""
    if "`" not in state.src[start:stop]:
        return False
    known = state.env.get("code_spans")
    if known is None or known[0] is not state.src:
        known = state.env["code_spans"] = (state.src, find_code_spans(state.src))
    spans = known[1]
    at = bisect_left(spans, start)
    return at < len(spans) and spans[at] < stop


def find_code_spans(text: str) -> list[int]:
    """Return the start positions of the code spans in the text, in order."""
    places: dict[int, list[int]] = {}
    for run in RUN.finditer(text):
        places.setdefault(len(run[0]), []).append(run.start())
    found = []
    end = 0
    for run in ESCAPED_OR_RUN.finditer(text):
        if run.start() < end or not run[0].startswith("`"):
            continue
        same = places.get(len(run[0]), [])
        at = bisect_right(same, run.start())
        if at < len(same):
            found.append(run.start())
            end = same[at] + len(run[0])
    return found


def find_next_dollar(text: str, start: int, most: int) -> int:
    r"""Return the position of the next dollar that is not escaped as \$, or -1."""
    place = text.find("$", start, most)
    while place > start and text[place - 1] == "\\":
        place = text.find("$", place + 1, most)
    return place


def is_between_dollars(text: str, start: int, stop: int) -> bool:
    """Return True if the text between two single dollar signs is a formula.

    In Chinese and Japanese, a formula may follow a character without a space. There, text that
    contains wide characters between two dollar signs is taken for words between two prices.
    """
    if text[start].isspace() or text[stop - 1].isspace() or MONEY.match(text, start, stop):
        return False
    after = text[stop + 1 : stop + 2]
    if after.isascii() and after.isalpha() and BETWEEN_VARIABLES.fullmatch(text, start, stop):
        return False
    before = text[start - 2] if start > 1 else ""
    if is_wide_character(before):
        return not any(map(is_wide_character, text[start:stop])) and not AFTER_DOLLAR.match(
            text, stop + 1
        )
    return not before.isalnum() and not AFTER_DOLLAR.match(text, stop + 1)


def is_wide_character(char: str) -> bool:
    """Return True for a Chinese, Japanese or Korean character, and for wide punctuation."""
    return char != "" and unicodedata.east_asian_width(char) in "WF"


def render_formula(
    _renderer: RendererHTML,
    tokens: Sequence[Token],
    index: int,
    _options: OptionsDict,
    env: EnvType,
) -> str:
    """Render a formula in a scrollable box, or its source as code."""
    token = tokens[index]
    is_display, is_block = token.info == "display", token.type == "formula_block"
    mathml = render_mathml(token.content, is_display=is_display)
    used = env.get("mathml", 0) + len(mathml)
    if not mathml or used > MOST_MATHML:
        code = f'<code class="math__source">{escape(token.markup)}</code>'
        return f"<p>{code}</p>\n" if is_block else code
    env["mathml"] = used
    reached = ' tabindex="0" role="group" aria-label="Formula"'
    if is_block:
        return f'<div class="math"{reached}>{mathml}</div>\n'
    kind = "math" if is_display else "math math--inline"
    return (
        f'<span class="{kind}"{reached if is_display or len(token.content) > WIDE else ""}>'
        f"{mathml}</span>"
    )


def render_mathml(latex: str, *, is_display: bool) -> str:
    """Return a formula's MathML. Empty if the source must be shown instead."""
    if len(latex) > LONGEST_FORMULA:
        return ""
    try:
        made = CONVERTER.convert_with_local_state(
            strip_equation_numbers(latex), displaystyle=is_display
        )
    except LatexError:
        return ""
    return STYLE.sub(build_class_attribute, made) if is_shallow(made) else ""


def strip_equation_numbers(latex: str) -> str:
    """Return the LaTeX without equation numbers and their labels."""
    latex = latex.strip().replace("{split}", "{aligned}")
    return latex if r"\tag" in latex else LABEL.sub("", NUMBERED.sub(r"\\\1{\2*}", latex))


def is_shallow(mathml: str) -> bool:
    """Return True if the element depth is within the limit that browsers lay out quickly."""
    depth = 0
    for closing, empty in ELEMENT.findall(mathml):
        depth += -1 if closing else not empty
        if depth > DEEPEST:
            return False
    return True


def build_class_attribute(style: re.Match[str]) -> str:
    """Return the classes for a style. Unknown declarations are left out."""
    said = (declaration.replace(" ", "") for declaration in style[1].split(";"))
    classes = [CLASS_OF[declaration] for declaration in said if declaration in CLASS_OF]
    return f' class="{" ".join(classes)}"' if classes else ""
