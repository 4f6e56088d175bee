"""Extension of griffe: lays out for the site what it does not know of docstrings.

Of the sections, `Args`, `Attributes` and `Raises` are lists that griffe reads. Of the others `Call`
becomes a list, `Example` code, `Returns`, `Source` and `Differs` paragraphs, each under its title.
Formulas, plain text in a docstring, become MathML, from their TeX in docs/reference/formulas.yaml.
Names that `--help` lists in place of `{losses}` and the like are linked.
"""

import pathlib
import re
import textwrap

import griffe
import yaml
from latex2mathml.converter import convert

FORMULAS = pathlib.Path(__file__).parents[1] / "docs" / "reference" / "formulas.yaml"
PROSE = ("Returns", "Call", "Source", "Differs")
SECTION = re.compile(r"^(\w+):\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
LIST = re.compile(r"^(\S.* \S.*:)\n((?: {4}\w+: .*\n(?: {8}.*\n)*)+)", re.MULTILINE)
ITEM = re.compile(r"^(\w+(?:, \w+)*): ", re.MULTILINE)
INDENTED = re.compile(r"^ {4}.+\n(?:\n*(?: {4}.+\n))*", re.MULTILINE)

LISTED = {  # what `--help` fills in
    "{losses}": "one of the [objectives](../objectives.md)",
    "{datasets}": "one of the [datasets](../cookbook/data.md)",
    "{backbones}": "one of the [backbones](models.md)",
    "{neighbours}": "those that suit the task",
}


class SiteDocstrings(griffe.Extension):
    """Rewrites every docstring before it is parsed."""

    def __init__(self):
        self.formulas = yaml.safe_load(FORMULAS.read_text(encoding="utf-8"))

    def on_instance(self, *, obj, **kwargs):
        if obj.docstring is not None:
            text = obj.docstring.value
            if obj.name in self.formulas:
                text = with_formulas(text, self.formulas[obj.name])
            obj.docstring.value = laid_out(text)


def with_formulas(docstring, formulas):
    """The docstring with the indented blocks before its first section as formulas."""
    head, args, rest = docstring.partition("Args:\n")
    blocks = INDENTED.findall(head)
    for block, tex in zip(blocks, formulas, strict=True):
        head = head.replace(block, convert(tex, display="block") + "\n")
    return head + args + rest


def laid_out(docstring):
    """The docstring with its sections in the order given, as griffe and Markdown read them."""
    for names, link in LISTED.items():
        docstring = docstring.replace(names, link)
    docstring = re.sub(r"^Example:$", "Examples:", docstring, flags=re.MULTILINE)
    docstring = re.sub(r"^Differs: ", "\n**Differs:** ", docstring, flags=re.MULTILINE)
    docstring = re.sub(r"^( +)> ", r"\1\\> ", docstring, flags=re.MULTILINE)  # no quotation
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
