"""Write the notebooks of this folder as .ipynb beside their text: `python docs/notebooks/write.py`.

Jupyter knows no roles of Sphinx: links between pages become links to their files, names of
functions become code, and that the page can be downloaded is left out.
"""

import re
import sys
from pathlib import Path

import nbformat
from myst_nb.core.read import read_myst_markdown_notebook

HERE = Path(__file__).resolve().parent


def write_notebooks(folder: Path) -> None:
    """Write each page of this folder, all of which are notebooks."""
    for page in sorted(HERE.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        text = re.sub(r"It is a notebook [^.]*\{nb-download\}`[^`]*`\.\s", "", text)
        text = re.sub(r"\{doc\}`([^`]+)`", _link, text)
        text = re.sub(r"\{(?:func|class)\}`~?([^`]+)`", r"`\1`", text)
        notebook = read_myst_markdown_notebook(text)
        notebook.metadata.pop("file_format")  # that of the text
        for number, cell in enumerate(notebook.cells):
            cell.id = f"cell-{number}"  # the same whenever it is written
        target = folder / f"{page.stem}.ipynb"
        target.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def _link(role: re.Match[str]) -> str:
    page = role[1]
    text = (HERE / f"{page}.md").read_text(encoding="utf-8")
    title = text.split("# ", 1)[1].partition("\n")[0]
    return f"[{title}]({page}.{'md' if '/' in page else 'ipynb'})"


if __name__ == "__main__":
    write_notebooks(Path(sys.argv[1]) if sys.argv[1:] else HERE)
