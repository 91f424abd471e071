"""Checks of the pages: their commands run or exist, their code runs, their links and paths exist.

What takes long (`make demo`, installing, benchmarks) is only checked to exist, options included. The language's
reference has tests of its own (tests/pattern/test_pattern_readme.py), and so has the example of a user's kernel.
"""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
import typer
import yaml

import hlo_dispatch
import pages
from hlo_dispatch.cli.application import app
from hlo_dispatch.jax_plugin.serializing import serialized_executable
from hlo_dispatch.pattern import load_tables
from hlo_dispatch.vendor.kernels import registrations
from pages import PAGES, ROOT, WITH_COMMANDS, Block, Command
from test_architecture import ORDER

PACKAGE = ROOT / "dispatch" / "hlo_dispatch"
MOST_BYTES = 8192
"""Of the README: what one reads before deciding to try."""
SECTIONS = [
    "Speed", "What stays as it is", "Limits", "Enable it in code", "Freeze", "Explain", "Read on", "Develop",
]  # fmt: skip
COMMANDS = [command for page in PAGES for command in pages.commands(page)]
OWN = [command for command in COMMANDS if Path(command.words[0]).name == "hlo-dispatch"]
QUICK = {("doctor",), ("explain",), ("rewrite",), ("tune", "--validate-only"), ("patterns",), ("cache",)}
"""Commands that are run as they are written, on modules called dump.hlo, before.hlo and model.mlir and a table called
mine.yaml."""
NAMED_ONLY = {"git", "cd", "cmake", "g++", "python", "pre-commit"}
"""Of the rest, what may be named without being looked into."""
PATH = re.compile(r"[\w.*<>-]+(/[\w.*<>-]*)+")
FILE = re.compile(r"\w+\.(py|cc|h)")
BETWEEN_OURSELVES = {"HLO_DISPATCH_COLLECT"}
"""Variables by which one process of ours tells another what to do."""


def name_of(value: Any) -> str:
    return value.name if isinstance(value, Command | Block) else pages.place(value)


# --- the README -----------------------------------------------------------------------------------------------------


def test_the_readme_is_short_and_in_order() -> None:
    text = (ROOT / "README.md").read_bytes()
    assert len(text) <= MOST_BYTES
    assert re.findall(r"^## (.*)$", text.decode(), re.MULTILINE) == SECTIONS


# --- where pages lead -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in pages.links(page):
        path, _, part = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert not part or part in pages.headings(target), link


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_paths_exist(page: Path) -> None:
    for span in pages.spans(page):
        if FILE.fullmatch(span):
            assert span in file_names(), span
        elif PATH.fullmatch(span):
            pattern = re.sub(r"<\w+>", "*", span).rstrip("/")
            roots = (ROOT, page.parent, ROOT / "bench", ROOT / "kernels", PACKAGE)
            assert any(any(root.glob(pattern)) for root in roots), span


@lru_cache(maxsize=1)
def file_names() -> set[str]:
    folders = (PACKAGE, ROOT / "kernels", ROOT / "bench", ROOT / "tests", ROOT / "patterns")
    return {path.name for folder in folders for path in folder.rglob("*") if FILE.fullmatch(path.name)}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_public_names_exist(page: Path) -> None:
    """`hlo_dispatch.install(…)` is something that a program can write, or a custom-call's target."""
    targets = registrations().targets
    text = " ".join([*pages.spans(page), *(block.text for block in pages.blocks(page, "python"))])
    for dotted in set(re.findall(r"(?<![\w/.])hlo_dispatch\.([a-z]\w*(?:\.[a-z]\w*)*)", text)):
        is_target = any(target.startswith(f"hlo_dispatch.{dotted}") for target in targets)
        assert is_target or has(hlo_dispatch, dotted), f"hlo_dispatch.{dotted}"


def has(module: Any, dotted: str) -> bool:
    first, _, rest = dotted.partition(".")
    if not hasattr(module, first):
        name = f"{getattr(module, '__name__', '')}.{first}"
        if not hasattr(module, "__path__") or importlib.util.find_spec(name) is None:
            return False
        importlib.import_module(name)
    return not rest or has(getattr(module, first), rest)


def test_the_package_table_has_every_package_in_import_order() -> None:
    (table,) = re.findall(r"^\| package \|.*?\n\n", pages.prose(ROOT / "ARCHITECTURE.md"), re.MULTILINE | re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \|", table, re.MULTILINE)
    packages = [re.split(r"[/.]", name)[0] for row in rows for name in re.findall(r"`(.*?)`", row)]
    assert list(dict.fromkeys(packages)) == ORDER


def test_every_variable_is_described() -> None:
    """In the table of dispatch/README.md; and no page names one that nobody reads."""
    read = {
        name
        for path in (*PACKAGE.rglob("*.py"), *(ROOT / "kernels" / "pjrt").glob("*.cc"))
        for name in re.findall(r"""["'](HLO_DISPATCH(?:_[A-Z]+)*)["']""", path.read_text())
    }
    assert set(re.findall(r"^\| `(HLO_DISPATCH\w*)", (ROOT / "dispatch/README.md").read_text(), re.MULTILINE)) == (
        read - BETWEEN_OURSELVES
    )
    for page in PAGES:
        named = set(re.findall(r"\bHLO_DISPATCH(?:_[A-Z]+)*\b(?!_)", page.read_text()))
        assert named <= read, pages.place(page)


# --- code -----------------------------------------------------------------------------------------------------------


X = jnp.ones((64, 64))


def f(x: Any) -> Any:
    return jnp.tanh(x @ x)


def lowered() -> Any:
    return jax.jit(f).lower(X)


@pytest.fixture
def _stock_afterwards() -> Iterator[None]:
    yield
    hlo_dispatch.uninstall()


@pytest.mark.usefixtures("_stock_afterwards")
@pytest.mark.parametrize("page", [page for page in WITH_COMMANDS if pages.blocks(page, "python")], ids=name_of)
def test_code_runs(
    page: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its blocks one after the other, as somebody would type them who has jax, a function and its argument."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.xla").write_bytes(serialized_executable(hlo_dispatch.optimize(lowered().as_text())))
    names = {"jax": jax, "f": f, "x": X}
    for block in pages.blocks(page, "python"):
        exec(compile(block.text, block.name, "exec"), names)
    capsys.readouterr()


RECIPES: dict[str, list[Block]] = {}
"""Library of language models, or none → the blocks of docs/generate.md that are one program."""
for _block in pages.blocks(ROOT / "docs/generate.md", "python"):
    _library = re.search(r"^(?:from|import) (keras_hub|transformers)", _block.text, re.MULTILINE)
    RECIPES.setdefault(_library[1] if _library else "", []).append(_block)


@pytest.mark.parametrize("library", RECIPES)
def test_recipes_run(library: str, capsys: pytest.CaptureFixture[str]) -> None:
    if library:
        pytest.importorskip(library)
    names: dict[str, Any] = {}
    for block in RECIPES[library]:
        exec(compile(block.text, block.name, "exec"), names)
    assert capsys.readouterr().out
    if not library:
        prompts = [[5, 9, 2], [*range(1, 21)]]
        together = names["generate"](prompts, 8)
        assert [list(row) for row in together] == [list(names["generate"]([prompt], 8)[0]) for prompt in prompts]


TABLES = [block for page in WITH_COMMANDS for block in pages.blocks(page, "yaml") if "version: 1" in block.text]


@pytest.mark.parametrize(
    "block", TABLES, ids=lambda block: f"{name_of(block.page)}: {list(yaml.safe_load(block.text))}"
)
def test_tables_load(block: Block, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(block.text)
    for library in re.findall(r"library: \./(\S+?)[,\s]", block.text):
        (tmp_path / library).touch()
    assert load_tables([tmp_path / "mine.yaml"]).fingerprint != load_tables().fingerprint


# --- commands -------------------------------------------------------------------------------------------------------


def test_every_page_that_has_commands_is_read() -> None:
    assert len(COMMANDS) > 50
    assert {"README.md", "dispatch/README.md", "bench/README.md", "CONTRIBUTING.md"} <= {
        pages.place(command.page) for command in COMMANDS
    }


@pytest.mark.parametrize("command", OWN, ids=name_of)
def test_own_commands_exist(command: Command) -> None:
    """The subcommand, and every option; without placeholders the arguments are read as they would be."""
    found, rest = own_command(list(command.words[1:]))
    if command.is_usage:
        options = {name for parameter in found.params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert {word for word in rest if word.startswith("-")} <= options | {"--help"}
    else:
        found.make_context("hlo-dispatch", [word for word in rest if word != "--help"])


def own_command(words: list[str]) -> tuple[Any, list[str]]:
    """The command that is meant, and the words behind its name."""
    found: Any = typer.main.get_command(app)
    while hasattr(found, "commands"):
        if words and words[0] in found.commands:
            found = found.commands[words.pop(0)]
        elif not words or words[0] == "--help":
            return found if found.name != "bench" else found.commands["patterns"], []
        else:
            assert found.name == "bench", f"there is no command {words[0]!r}"
            found = found.commands["patterns"]
    return found, words


@pytest.mark.parametrize(
    "command", [c for c in OWN if not c.is_usage and not QUICK.isdisjoint({c.words[1:2], c.words[1:3]})], ids=name_of
)
def test_quick_commands_run(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    shutil.copy(ROOT / "tests/golden/gelu_tanh/jax_nn.before.hlo", tmp_path / "dump.hlo")
    (tmp_path / "model.mlir").write_text(lowered().as_text())
    (tmp_path / "before.hlo").write_text(lowered().as_text(dialect="hlo"))
    (tmp_path / "mine.yaml").write_text(TABLES[0].text)
    monkeypatch.chdir(tmp_path)
    if command.reads:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO((tmp_path / command.reads).read_bytes())))
    assert not app(list(command.words[1:]), prog_name="hlo-dispatch", standalone_mode=False)
    assert capfdbinary.readouterr().out or (tmp_path / command.words[-1]).stat().st_size


def test_every_own_command_is_described() -> None:
    text = (ROOT / "dispatch/README.md").read_text()
    for name in typer.main.get_command(app).commands:
        assert f"| `hlo-dispatch {name}" in text, name


@pytest.mark.parametrize("command", [command for command in COMMANDS if command not in OWN], ids=name_of)
def test_other_commands_exist(command: Command, request: pytest.FixtureRequest) -> None:
    first, *rest = command.words
    if first.endswith("python") and rest[:1] == ["-m"]:
        first, *rest = rest[1:]
    if first == "make":
        check_make([*command.environment, *rest])
    elif first == "pytest":
        check_pytest(rest, request.config)
    elif first == "pip":
        check_pip(rest)
    elif first.startswith("bench."):
        check_bench(first, rest)
    else:
        assert Path(first).name in NAMED_ONLY, command.text


def check_make(words: list[str]) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for word in words:
        variable, is_assignment, value = word.partition("=")
        if variable == "TESTS":
            assert (ROOT / value).exists(), word
        elif is_assignment:
            assert re.search(rf"^{variable} \S?=", (ROOT / "Makefile").read_text(), re.MULTILINE), word
        else:
            assert word in targets, word


def check_pytest(words: list[str], config: pytest.Config) -> None:
    for word in words:
        if word.startswith("--"):
            option = word.partition("=")[0]
            name = option.removeprefix("--").replace("-", "_")
            assert name in vars(config.option) or f'"{option}"' in (ROOT / "bench/conftest.py").read_text(), word
        elif "/" in word and not word.startswith("-"):
            assert (ROOT / word).exists(), word


def check_pip(words: list[str]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        for extra in re.findall(r"^\.\[(.*)\]$", word):
            assert set(extra.split(",")) <= set(extras), word


def check_bench(module: str, words: list[str]) -> None:
    folder = ROOT / module.replace(".", "/")
    source = (folder / "__main__.py" if folder.is_dir() else folder.with_suffix(".py")).read_text()
    for word in words:
        assert not word.startswith("--") or f'"{word}"' in source, word


# --- before a commit ------------------------------------------------------------------------------------------------


def test_hooks_are_what_lint_runs() -> None:
    """The same tools of .venv as `make lint`, on the same folders; nothing is fetched."""
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert repository["repo"] == "local"
    makefile = (ROOT / "Makefile").read_text()
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        tool = hook["entry"].removeprefix(".venv/bin/").split()
        assert f"{tool[0]} {tool[1]}" in makefile, hook["entry"]
        folders = re.findall(r"\w+", hook.get("files", ""))
        assert " ".join(folders) in makefile, hook["files"]
