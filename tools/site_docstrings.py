"""Extension of griffe: lays out for the site the sections of docstrings that it does not know.

`Args`, `Attributes` and `Raises` are lists that griffe reads. Of the others `Call` becomes a list,
`Example` code, `Returns`, `Source` and `Differs` paragraphs, each under its title.
"""

import re
import textwrap

import griffe

PROSE = ("Returns", "Call", "Source", "Differs")
SECTION = re.compile(r"^(\w+):\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
LIST = re.compile(r"^(\S.* \S.*:)\n((?: {4}\w+: .*\n(?: {8}.*\n)*)+)", re.MULTILINE)
ITEM = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)


class SiteDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def on_instance(self, *, obj, **kwargs):
        if obj.docstring is not None:
            obj.docstring.value = laid_out(obj.docstring.value)


def laid_out(docstring):
    """The docstring with its sections in the order given, as griffe and Markdown read them."""
    docstring = re.sub(r"^Example:$", "Examples:", docstring, flags=re.MULTILINE)
    docstring = re.sub(r"^Differs: ", "\n**Differs:** ", docstring, flags=re.MULTILINE)
    docstring = LIST.sub(_as_list, docstring + "\n")
    return SECTION.sub(_as_markdown, docstring).rstrip()


def _as_list(found):
    return f"{found[1]}\n" + ITEM.sub(r"\n* `\1`: ", textwrap.dedent(found[2]))


def _as_markdown(section):
    title, text = section[1], textwrap.dedent(section[2]).strip()
    if title not in PROSE:
        return section[0]
    text = re.sub(r"^Differs: ", "\n**Differs:** ", text, flags=re.MULTILINE)
    if title == "Call":
        text = re.sub(r"^Returns ", "\nReturns ", ITEM.sub(r"\n* `\1`: ", text), flags=re.MULTILINE)
    return f'\n<p><span class="doc-section-title">{title}:</span></p>\n\n{text}\n\n'
