"""Every code block of README.md and docs/ runs, or says why not and is only read."""

import doctest
import importlib
import inspect
import re
import shlex
import shutil
import subprocess
import sys
from glob import glob
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

import jat_graph
from jat_graph import ClusterGraph, JatConfig, PairGraph, StoneGraph
from tests.commands import known_options

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(
    r"(?:^<!-- not run: (?P<reason>[^\n]+) -->\n+)?"
    r"^```(?P<language>[\w{}-]*)[^\n]*\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
PYTHON = ("python", "{code-cell}")  # cells are those of notebooks
RUN = (*PYTHON, "bash", "{doctest}")
LAUNCHERS = ("accelerate", "sbatch", "srun", "torchrun")  # of commands of ours
SHOWN = ("", "text", "json", "{eval-rst}", "{include}", "{toctree}")  # output, and directives


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int  # the first of its code
    language: str
    code: str
    reason: str | None  # why it is not run

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def _blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page,
            text.count("\n", 0, found.start("code")) + 1,
            found["language"],
            re.sub(r"^%", "# %", found["code"], flags=re.MULTILINE),  # for a notebook alone
            found["reason"],
        )
        for found in FENCE.finditer(text)
    ]


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_block_is_found_and_of_a_known_kind_and_its_commands_exist(page: Path) -> None:
    blocks = _blocks(page)
    fences = re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) == 2 * len(blocks)
    for block in blocks:
        assert block.language in (*RUN, *SHOWN), block.place
        if block.language in PYTHON:
            compile(block.code, block.place, "exec")
        elif block.language == "bash":
            for words in _commands(block.code):
                _check_command(words)


def _is_run(page: Path) -> bool:
    """Tell whether the next test runs a page; .ci/run runs notebooks, a later test the gallery."""
    if page.parent.name == "notebooks" or page.name == "gallery.md":
        return False
    return any(block.language in RUN and not block.reason for block in _blocks(page))


@pytest.mark.slow
@pytest.mark.usefixtures("minilm_path")
# PEFT asks the model whether it checkpoints by the older of two names.
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")
# torch says once that its CSR tensors are in beta, and once that it does not check their indices.
@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("page", [page for page in PAGES if _is_run(page)], ids=_name)
def test_the_blocks_of_a_page_run_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: dict[str, Any] = {}  # Sphinx runs these on their own
    for block in _blocks(page):
        if block.reason is None and block.language in PYTHON:
            padding = "\n" * (block.line - 1)  # so that a traceback names the page's own line
            exec(compile(padding + block.code, str(page), "exec"), names)
        elif block.reason is None and block.language == "bash":
            for words in _commands(block.code):
                _run_command(words, monkeypatch)
        elif block.language == "{doctest}":
            _run_doctest(block, shown)


@pytest.mark.slow
@pytest.mark.usefixtures("minilm_path", "loaded_smollm2")
def test_the_gallery_shows_what_its_blocks_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from matplotlib.testing.compare import compare_images

    page = ROOT / "docs" / "gallery.md"
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in _blocks(page):
        if block.language == "python":
            exec(compile(block.code, str(page), "exec"), names)
    drawn = {path.name: path for path in tmp_path.glob("*.png") if path.name != "few.png"}
    assert set(drawn) == {
        "head.png", "stone_head.png", "clusters.png", "sentence_graph.png", "descent.png",
    }  # fmt: skip
    for name, path in drawn.items():
        assert f"](pictures/{name})" in page.read_text(encoding="utf-8")
        committed = shutil.copy(ROOT / "docs" / "pictures" / name, tmp_path / f"committed_{name}")
        assert compare_images(str(committed), str(path), tol=12) is None


def _run_command(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a command in this process, which has torch already; stars are filled in as by a shell."""
    words = [path for word in words for path in sorted(glob(word)) or [word]]
    if words[0] == "jat-graph":
        module, arguments = "jat_graph.looking.cli", words[1:]
    else:
        assert words[:2] == ["python", "-m"]
        module, arguments = words[2], words[3:]
    monkeypatch.setattr(sys, "argv", [module, *arguments])
    try:
        importlib.import_module(module).main()
    except SystemExit as end:
        assert not end.code, words


def _run_doctest(block: Block, names: dict[str, Any]) -> None:
    example = doctest.DocTestParser().get_doctest(
        block.code, {}, block.place, str(block.page), block.line
    )
    example.globs = names
    report: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=report.append, clear_globs=False)
    assert not report, "".join(report)


def test_the_links_of_the_readme_hold() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#]+)", text)
    ours = [link for link in links if not link.startswith("http")]
    assert ours and not [link for link in ours if not (ROOT / link).exists()]


def test_each_notebook_is_in_the_clone_as_its_page_says(tmp_path: Path) -> None:
    folder = ROOT / "docs" / "notebooks"
    subprocess.run([sys.executable, folder / "write.py", tmp_path], check=True)
    written = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert len(written) == len(list(folder.glob("*.md"))) > 2
    there = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.ipynb")}
    assert there == written, "run python docs/notebooks/write.py"


def test_the_files_that_the_walk_names_are_there() -> None:
    page = (ROOT / "docs" / "rooms.md").read_text(encoding="utf-8")
    paths = set(re.findall(r"`([\w/]+(?:\.py|\.md|\.json|/))`", page))
    assert len(paths) > 30
    folders = (".", "jat_graph", "jat_graph/jumps", "jat_graph/looking", "tests/oracles")
    assert not [p for p in paths if not any((ROOT / own / p).exists() for own in folders)]
    rooms = {f"{path.parent.name}/" for path in (ROOT / "jat_graph").glob("*/__init__.py")}
    assert not rooms - paths


def test_every_setting_is_explained() -> None:
    page = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z]\w*)` \|", page, re.MULTILINE)
    assert sorted(rows) == sorted(JatConfig.field_names())
    for settings in (JatConfig, PairGraph, StoneGraph, ClusterGraph):
        row = re.search(rf"^\| `{settings.__name__}` \|(.*)$", page, re.MULTILINE)
        assert row and re.findall(r"`(\w+)`", row[1]) == list(settings.names())


def _commands(script: str) -> list[list[str]]:
    """Split a script into the words of its commands; comments and line breaks are gone."""
    lines = script.replace("\\\n", " ").splitlines()
    commands = (shlex.split(line, comments=True) for line in lines)
    return [words for words in commands if words]


def _check_command(words: list[str]) -> None:
    program, *arguments = words
    if program == "jat-graph":
        _check_our_command(arguments)
    elif program == "make":
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        for target in (word for word in arguments if "=" not in word):
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"no target {target}"
    elif program == "pip":
        _check_install(arguments)
    elif program in LAUNCHERS:
        if "--wrap" in arguments:
            _check_command(shlex.split(arguments[arguments.index("--wrap") + 1]))
        scripts = [word for word in arguments if word.endswith(".sh")]
        assert all((ROOT / script).is_file() for script in scripts)
    else:
        assert program in ("cat", "cd", "echo", "git", "head", "ls", "python", "sphinx-build")
    for index, word in enumerate(words):
        if word.startswith("examples."):
            given = {own.partition("=")[0] for own in words[index + 1 :] if own.startswith("--")}
            unknown = given - known_options(word)
            assert not unknown, f"{word} has no {sorted(unknown)}"


def _check_our_command(arguments: list[str]) -> None:
    """Let the command line read its options, and run nothing."""
    from jat_graph.looking.cli.app import app

    group: Any = typer.main.get_command(app)
    name, *rest = arguments
    if not name.startswith("-"):
        group.commands[name].make_context(name, rest)


def _check_install(arguments: list[str]) -> None:
    described = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert arguments[0] == "install"
    for extras in re.findall(r"\[([\w,]+)\]", " ".join(arguments)):
        for extra in extras.split(","):
            assert re.search(rf"^{extra} = \[", described, re.MULTILINE), f"no extra {extra}"


# What users type most: each shows how in its docstring.
TYPED = """
    JatConfig JatConfig.clustered JatConfig.paper JatConfig.released JatConfig.stones
    attach attention_graph calibrate clustered_attention data.AttentionGraphs detach disabled
    fidelity from_pretrained hf.register_clustered inspection.inspect_text jump_attention
    jump_operator nn.JumpConv nn.JumpSelfAttention nn.StoneConv probes.view stone_graph summary
    training.parameter_groups using_graphs
""".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", TYPED)
def test_the_example_of_a_docstring_runs(name: str) -> None:
    described = inspect.unwrap(attrgetter(name)(jat_graph))
    path, line = Path(inspect.getfile(described)), inspect.getsourcelines(described)[1]
    text = inspect.getdoc(described)
    assert "Example:\n    >>> " in text
    _run_doctest(Block(path, line, "{doctest}", text, None), {})
