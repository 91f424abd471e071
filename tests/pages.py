"""Parser of the repository's pages: fenced blocks, inline code, links, headings, and commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
WITH_COMMANDS = tuple(
    ROOT / name
    for name in (
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "dispatch/README.md",
        "patterns/README.md",
        "bench/README.md",
    )
)
PAGES = (
    *WITH_COMMANDS,
    *(
        ROOT / name
        for name in (
            "dispatch/compile-on-a-run-on-b.md",
            "kernels/README.md",
            "kernels/hosts.md",
            "patterns/examples/README.md",
            "bench/results/README.md",
            "docs/generate.md",
        )
    ),
)
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
_COMMANDS = ("hlo-dispatch ", "make ", "python -m ", "pytest ", "pip ", "pre-commit ")
_USAGE = re.compile(r"[\[\]…|]|\b[A-Z]{3,}\b| --\w+$")
_NAME = re.compile(r"[a-z -]+")
_ASSIGNMENT = re.compile(r"[A-Z_]+=\S*")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: Path
    language: str
    text: str

    @property
    def name(self) -> str:
        return f"{place(self.page)}: {self.text.strip().splitlines()[0][:60]}"


@dataclass(frozen=True)
class Command:
    """A command line of a page, taken apart."""

    page: Path
    text: str
    words: tuple[str, ...]
    environment: tuple[str, ...] = ()
    """Assignments in front of it."""
    reads: str = ""
    """The file that standard input is, if one is named."""
    is_usage: bool = False
    """Whether it has placeholders, `hlo-dispatch rewrite FILE [-o OUT]`, or only says what a command is called."""

    @property
    def name(self) -> str:
        return f"{place(self.page)}: {self.text}"


def place(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, *languages: str) -> list[Block]:
    """Its fenced blocks in these languages; all of them where none is named."""
    found = [Block(page, match["language"], match["text"]) for match in _FENCE.finditer(page.read_text())]
    return [block for block in found if not languages or block.language in languages]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", page.read_text())


def spans(page: Path) -> list[str]:
    """The inline code of a page."""
    return [" ".join(span.split()).replace(r"\|", "|") for span in re.findall(r"`([^`]+)`", prose(page))]


def links(page: Path) -> list[str]:
    """The targets of links and images that are in the repository."""
    return [target for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)) if "://" not in target]


def headings(page: Path) -> set[str]:
    """What a link to a part of the page may say behind its #."""
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def commands(page: Path) -> Iterator[Command]:
    """Every command line, of blocks and inline."""
    for block in blocks(page, "sh", "console", "bash"):
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words:
                end = words.index("&&") if "&&" in words else len(words)
                yield _command(page, words[:end], is_usage=False)
                words = words[end + 1 :]
    for span in spans(page):
        bare = " ".join(word for word in span.split() if not _ASSIGNMENT.fullmatch(word))
        if bare.startswith(_COMMANDS):
            is_usage = not bare.startswith("pip ") and bool(_USAGE.search(bare) or _NAME.fullmatch(bare))
            text = re.sub(r"[\[\]]|\.\.\.", "", span) if is_usage else span
            yield _command(page, shlex.split(text), is_usage=is_usage)


def _command(page: Path, words: list[str], *, is_usage: bool) -> Command:
    text, reads, left = shlex.join(words), "", list(words)
    for sign in ("<", ">"):
        if sign in left:
            at = left.index(sign)
            reads = left[at + 1] if sign == "<" else reads
            del left[at : at + 2]
    environment: list[str] = []
    while left and _ASSIGNMENT.fullmatch(left[0]):
        environment.append(left.pop(0))
    return Command(page, text, tuple(left), tuple(environment), reads, is_usage)
