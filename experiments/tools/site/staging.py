"""Copies the pages of the site into one folder for Sphinx: guide, results, notebooks, changelog.

Links between files of the repository become links between pages; a linked file that is not a page becomes a download.
The command that shows the results becomes a link to the page that it writes.
"""

import json
import os
import pathlib
import pkgutil
import re
import shutil
import urllib.parse

import fedwin

from ...reproduction.page import TITLES

ROOT = pathlib.Path(__file__).resolve().parents[3]
GUIDE = ROOT / "experiments" / "guide"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
# The section of index.md that pages are added to if it does not name them, and that of the generated reference.
REST, REFERENCE = "How-to guides", "Reference"
# Of a link in Markdown.
TARGET, ANCHOR = r"[^()\s#]+", r"(?:#[^()\s]*)?\)"
GALLERY = "gallery/index.rst"
# The command whose page is part of the site, the page, and the frame in which the pages of the results show it.
COMMAND, VIEWER = "`fedwin view --results`", "results/viewer.html"
# Fenced blocks, which stay as they are, links, and the command.
PIECE = re.compile(
    rf"^(?P<fence>```+|~~~+|:::+).*?^(?P=fence)\s*$|{COMMAND}|(?P<before>\]\()(?P<link>{TARGET})(?P<after>{ANCHOR})",
    re.MULTILINE | re.DOTALL,
)
FRAME = """```{{raw}} html
<p>All curves and numbers, to filter and compare (<a href="{address}">in a page of their own</a>):</p>
<iframe class="viewer" src="{address}" title="results viewer" loading="lazy" allow="clipboard-write"></iframe>
```
"""
API = """API reference
=============

Generated from the docstrings, one page per package. :doc:`What is public <../public>` names what programs may rely on.

.. autosummary::

   {names}

.. toctree::
   :hidden:

   {names}
"""
# Sphinx has a page `search` of its own.
RENAMED = {"search.md": "searches.md"}


def pages() -> dict[pathlib.Path, str]:
    """Returns file of the repository -> place in the site, of every page that is copied."""
    found = {path: RENAMED.get(path.name, path.name) for path in sorted(GUIDE.glob("*.md"))}
    found |= {path: f"notebooks/{path.name}" for path in sorted(ROOT.glob("experiments/notebooks/*.ipynb"))}
    found |= {path: f"results/{path.name}" for path in sorted(ROOT.glob("experiments/results/*.md"))}
    found |= {ROOT / "experiments" / "RESULTS.md": "results/index.md", ROOT / "README.md": "readme.md"}
    return found | {ROOT / "CHANGELOG.md": "changelog.md", ROOT / "BUILD_NOTES.md": "build_notes.md"}


def reference() -> dict[str, str]:
    """Returns place in the site -> text, of a page per package that documents its modules, and of their list."""
    found: dict[str, list[str]] = {"fedwin": ["fedwin"]}
    for module in pkgutil.walk_packages(fedwin.__path__, "fedwin."):
        package = ".".join(module.name.split(".")[:2])
        if package != "fedwin.experiments" and not module.name.rpartition(".")[2].startswith("_"):
            found.setdefault(package, []).append(module.name)
    sections = lambda names: (
        f"{name}\n{('-' if number else '=') * len(name)}\n\n.. automodule:: {name}\n   :members:\n"
        for number, name in enumerate(names)
    )
    pages = {f"reference/{package}.rst": "\n".join(sections(names)) for package, names in found.items()}
    return pages | {"reference/index.rst": API.format(names="\n   ".join(found))}


def relinked(text: str, path: pathlib.Path, places: dict[pathlib.Path, str], files: dict[str, pathlib.Path]) -> str:
    """Returns a page whose relative links are those of the site.

    Args:
      files: place in the site -> file of the repository; linked files that are not pages are added.
    """
    above = pathlib.PurePosixPath(places[path]).parent
    viewer = f'<a href="{os.path.relpath(VIEWER, above)}">{COMMAND}</a>'

    def changed(match: re.Match) -> str:
        if (link := match["link"]) is None:
            return match[0] if match["fence"] else viewer
        target = (path.parent / link).resolve()
        if ":" in link or not target.exists() or target.is_dir() and target != GUIDE / "gallery":
            return match[0]  # a link that leads nowhere is Sphinx's error
        if target.is_dir():
            return f"{match['before']}{os.path.relpath(GALLERY, above)}{match['after']}"
        if target not in places and target.is_relative_to(path.parent) and path.parent.name == "results":
            place = above / target.relative_to(path.parent).as_posix()  # pictures and tables of the results
        else:
            place = pathlib.PurePosixPath(places.get(target) or f"files/{target.relative_to(ROOT).as_posix()}")
        if target not in places:
            files[str(place)] = target
        return f"{match['before']}{os.path.relpath(place, above)}{match['after']}"

    return PIECE.sub(changed, text)


def with_contents(index: str, names: list[str]) -> str:
    """Returns index.md with a table of contents per section, which the site's sidebar shows.

    Args:
      index: text of index.md, which links to its pages in sections.
      names: names of all pages of the guide; those that index.md does not name are added to the how-to guides.
    """
    _, *parts = SECTION.split(index)
    targets = lambda body: dict.fromkeys(re.findall(rf"\]\(({TARGET}){ANCHOR}", body))
    listed = {title: [to for to in targets(body) if ":" not in to] for title, body in zip(parts[::2], parts[1::2])}
    if not {REST, REFERENCE} <= listed.keys():
        raise ValueError(f"index.md needs the sections '{REST}' and '{REFERENCE}'")
    named = {entry for entries in listed.values() for entry in entries}
    listed[REST] += [name for name in names if name not in named | {"index.md"}]
    listed[REFERENCE].append("reference/index.rst")
    trees = []
    for title, entries in listed.items():
        documents = [re.sub(r"\.(md|ipynb|rst)$", "", entry) for entry in entries]
        trees.append("\n".join(["```{toctree}", ":hidden:", f":caption: {title}", "", *documents, "```"]))
    return "\n\n".join([index.rstrip(), *trees]) + "\n"


def with_viewer(page: str, paper: str) -> str:
    """Returns a page of the results with the viewer below its introduction.

    Args:
      paper: paper whose tables the viewer opens with; '' for any.
    """
    address = pathlib.PurePosixPath(VIEWER).name
    address += f"#{urllib.parse.quote(json.dumps({'group': paper}))}" if paper else ""
    introduction, *sections = re.split(r"^(?=## )", page, maxsplit=1, flags=re.MULTILINE)
    return "\n".join([introduction + FRAME.format(address=address), *sections])


def write(path: pathlib.Path, content: str | bytes) -> None:
    """Writes a file unless it has that content: Sphinx reads changed files again."""
    data = content.encode() if isinstance(content, str) else content
    if not path.is_file() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def stage(folder: pathlib.Path) -> None:
    """Writes all sources of the site to `folder`/source, and the gallery's examples to `folder`/examples."""
    source, places = folder / "source", pages()
    files: dict[str, pathlib.Path] = {}
    contents: dict[str, str | bytes] = dict(reference())
    for path, place in places.items():
        text = path.read_text()
        contents[place] = text if path.suffix == ".ipynb" else relinked(text, path, places, files)
        if place.startswith("results/"):
            paper = path.stem if path.stem in TITLES else ""
            contents[place] = with_viewer(str(contents[place]), paper)
    contents["index.md"] = with_contents(
        str(contents["index.md"]), [place for path, place in places.items() if path.parent == GUIDE]
    )
    contents |= {place: path.read_bytes() for place, path in files.items()}
    contents |= {f"drawn/{path.name}": path.read_bytes() for path in (GUIDE / "drawn").glob("*.svg")}
    for place, content in contents.items():
        write(source / place, content)
    kept = {source / place for place in contents}
    for path in source.rglob("*"):
        if path.is_file() and path not in kept and not path.is_relative_to(source / "gallery"):
            path.unlink()
    examples = {path.name: path.read_bytes() for path in (GUIDE / "gallery").iterdir() if path.is_file()}
    shutil.rmtree(folder / "examples" / "runs", ignore_errors=True)
    for path in (folder / "examples").glob("*.*"):
        if path.name not in examples:
            path.unlink()
    for name, data in examples.items():
        write(folder / "examples" / name, data)
