"""Texts that take a Markdown renderer the longest time."""

SIZE = 32_000


def repeat_pattern(pattern: str) -> str:
    """Repeat the pattern up to `SIZE` characters."""
    return (pattern * (SIZE // len(pattern) + 1))[:SIZE]


WORST_TEXTS = {
    "a list below a long paragraph": "a\n" * (SIZE // 4) + "- b\n\n" * (SIZE // 10),
    "open brackets": repeat_pattern("["),
    "open links": repeat_pattern("[a]("),
    "open images": repeat_pattern("!["),
    "images": repeat_pattern("![a](http://x.y/)"),
    "nested brackets": "[" * (SIZE // 2) + "]" * (SIZE // 2),
    "emphasis": repeat_pattern("*a_ "),
    "stars": repeat_pattern("*"),
    "mixed stars": repeat_pattern("a**b" + "c* "),
    "tildes": repeat_pattern("~~a"),
    "ticks of all lengths": repeat_pattern("".join("`" * n + " " for n in range(1, 250))),
    "less-than signs": repeat_pattern("<"),
    "half a tag": repeat_pattern('<a href="'),
    "autolinks": repeat_pattern("<http://a.b>"),
    "bare addresses": repeat_pattern("https://a.b "),
    "addresses of brackets": repeat_pattern("https://a.b/" + "(" * 980 + " "),
    "addresses of marks": repeat_pattern("*a https://a.b/" + "a*b**c***d" * 190 + " "),
    "short addresses of marks": repeat_pattern("*a https://a.b?[c*d "),
    "addresses of square brackets": repeat_pattern("https://a.b/?" + "[a[b]" * 390 + " "),
    "entities": repeat_pattern("&amp;"),
    "backslashes": repeat_pattern("\\"),
    "quotes": repeat_pattern("> a\n"),
    "nested quotes": repeat_pattern("> " * 19 + "a\n"),
    "quote signs": repeat_pattern(">"),
    "nested lists": repeat_pattern("".join("  " * n + "- a\n" for n in range(120))),
    "list signs": repeat_pattern("- "),
    "wide tables": repeat_pattern(
        "|a" * 99 + "|\n" + "|-" * 99 + "|\n" + ("|a" * 99 + "|\n") * 150
    ),
    "long tables": repeat_pattern("a|b\n-|-\n" + "|\n" * 16_000),
    "references": repeat_pattern("".join(f"[a{n}]: x\n" for n in range(4000))),
    "uses of one reference": "[a]: https://x.y\n" + repeat_pattern("[a]"),
    "headings": repeat_pattern("# a\n"),
    "underlined headings": repeat_pattern("a\n=\n"),
    "lines": repeat_pattern("a\n"),
    "line ends": repeat_pattern("\n"),
    "spaces": repeat_pattern(" "),
    "dollars": repeat_pattern("$"),
    "open formulas": repeat_pattern("\\("),
    "open displayed formulas": repeat_pattern("$$a\n"),
    "open environments": repeat_pattern("\\begin{align}\n"),
    "short formulas": repeat_pattern("$x$ "),
    "formulas that grow": repeat_pattern("$x" + "'" * 1900 + "$ "),
    "deep formulas": repeat_pattern("$" + "x^{" * 400 + "x" + "}" * 400 + "$ "),
    "wide formulas": repeat_pattern("\\[" + "x&" * 900 + "\\]\n"),
    "formulas that define": repeat_pattern(r"$\def\a{\a\a}\a$ "),
    "escaped dollars": "$a" + repeat_pattern("\\$"),
    "tasks": repeat_pattern("- [ ] a\n"),
    "tasks in tasks": repeat_pattern("".join("  " * n + "- [x] a\n" for n in range(18))),
    "open footnotes": "[^a]: b\n\n" + repeat_pattern("[^"),
    "footnotes": repeat_pattern("".join(f"[^{n}] [^{n}]: a\n[^{n}]: b\n" for n in range(2000))),
    "one footnote": "[^a]: b\n\n" + repeat_pattern("[^a]"),
    "footnotes in footnotes": repeat_pattern("[^a]: "),
    "code of brackets": "```python\n" + repeat_pattern("(" * 499 + "\n") + "\n```",
    "many blocks of code": repeat_pattern("```js\n" + '"\\' * 200 + "\n```\n"),
}
