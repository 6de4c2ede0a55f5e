"""The pages of the documentation: their blocks of code, links and headings."""

from __future__ import annotations

import dataclasses
import functools
import re
import textwrap
from pathlib import Path

from tests.root import ROOT

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
# The first line of a block that is a file.
_FILE = re.compile(r"# ([\w/-]+\.(?:yaml|py))\n")


@dataclasses.dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int

    @property
    def file(self) -> str:
        match = _FILE.match(self.text)
        return match[1] if match else ""


@dataclasses.dataclass(frozen=True)
class Page:
    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @functools.cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @functools.cached_property
    def blocks(self) -> list[Block]:
        found = []
        for match in _BLOCK.finditer(self.text):
            line = self.text[: match.start()].count("\n") + 2
            found.append(Block(match[2], textwrap.dedent(match[3]), line))
        return found

    def of(self, *languages: str) -> list[Block]:
        return [block for block in self.blocks if block.language in languages]

    @functools.cached_property
    def prose(self) -> str:
        """The text outside of blocks."""
        return _BLOCK.sub("", self.text)

    @functools.cached_property
    def spans(self) -> list[str]:
        """Code within the prose."""
        return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", self.prose)]

    @functools.cached_property
    def links(self) -> list[str]:
        """The targets of its links."""
        return re.findall(r"\]\(([^)\s]+)\)", self.prose)

    @functools.cached_property
    def anchors(self) -> set[str]:
        """The anchors that GitHub derives from its headings."""
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    @property
    def files(self) -> dict[str, str]:
        """The contents of its files, by name."""
        return {block.file: block.text for block in self.blocks if block.file}


README = Page(ROOT / "README.md")
PAGES = [README, *map(Page, [ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))])]
