"""MkDocs' hook: adds the generated pages, and the repository's files that pages link to; shows the version."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files, InclusionLevel

ROOT = Path(__file__).resolve().parents[2]
GENERATED = ROOT / "build" / "docs"
_LINK = re.compile(r"(?<=\]\()(?!\w+:|#)([^)\s#]+)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".sh": "sh", ".ipynb": "", "": "text"}
_FIGURES = {
    "terminal.svg": "![The terminal](terminal.svg)\n\nThe terminal of a run, recorded when this site was built.",
    "report.png": "[![The report](report.png)](report.html)\n\nThe beginning of that run's [report](report.html).",
}


def on_config(config: Any) -> Any:
    """Appends the version to the site's name."""
    (version,) = re.findall(
        r'^__version__ = "(.+)"$', (ROOT / "src/tfx_estimator/__init__.py").read_text(), re.MULTILINE
    )
    config.site_name += f" {version}"
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the generated pages and pictures, and then each file of the repository that a page links to."""
    generated = {
        str(path.relative_to(GENERATED)): path for path in sorted([*GENERATED.glob("*.*"), *GENERATED.glob("*/*.md")])
    }
    for place, path in {**generated, "iframe-worker.js": ROOT / "docs/site/iframe-worker.js"}.items():
        files.append(File.generated(config, place, abs_src_path=str(path)))
    found = [ROOT / "CHANGELOG.md", ROOT / "README.md", ROOT / "CONTRIBUTING.md", *Path(config.docs_dir).glob("*.md")]
    for path in found:
        if (place := place_of(path)).startswith("project/"):
            in_nav = path.parent in (ROOT, ROOT / "examples") and path.suffix == ".md"
            level = InclusionLevel.INCLUDED if in_nav else InclusionLevel.NOT_IN_NAV
            source = {"content": shown(path)} if place.endswith(".md") else {"abs_src_path": str(path)}
            files.append(File.generated(config, place, inclusion=level, **source))
        if path.suffix == ".md":
            targets = (path.parent / link for link in _LINK.findall(path.read_text(encoding="utf-8")))
            found += [each for each in map(Path, map(os.path.normpath, targets)) if each.exists() and each not in found]
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lets links to the repository's files lead to their places on the site; adds the first page's figures."""
    place = page.file.src_uri
    path = ROOT / (place.removeprefix("project/") if place.startswith("project/") else f"docs/{place}")

    def moved(link: re.Match[str]) -> str:
        target = Path(os.path.normpath(path.parent / link[1]))
        return os.path.relpath(place_of(target), os.path.dirname(place)) if target.exists() else link[1]

    if place == "index.md":
        page.meta["hide"] = ["navigation", "toc"]
    # Whoever searches for a key wants its own page, and no code that uses it.
    if page.file.inclusion.is_not_in_nav():
        page.meta["search"] = {"exclude": True}
    elif place.startswith(("keys/", "api/")):
        page.meta["search"] = {"boost": 4}
    figures = [text for name, text in _FIGURES.items() if (GENERATED / name).exists()]
    return _LINK.sub(moved, markdown).replace("<!-- figures -->", "\n\n".join(figures))


def place_of(path: Path) -> str:
    """Returns where a file or folder of the repository is on the site."""
    if path.is_relative_to(ROOT / "docs"):
        return str(path.relative_to(ROOT / "docs"))
    is_page = path.is_dir() or (path.suffix in _LANGUAGES and path.name != "LICENSE")
    return f"project/{path.relative_to(ROOT)}{'.md' * is_page}"


def shown(path: Path) -> str:
    """Returns the page of a file, or of a folder's files: their text."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    inside = sorted(each for each in path.rglob("*") if each.suffix in _LANGUAGES and each.is_file()) or [path]
    heads = {each: f"## {each.relative_to(path)}\n\n" if each != path else "" for each in inside}
    return "\n\n".join([f"# {path.relative_to(ROOT)}", *(f"{head}{_block(each)}" for each, head in heads.items())])


def _block(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        cells = [(cell["cell_type"], "".join(cell["source"])) for cell in json.loads(text)["cells"]]
        return "\n\n".join(each if kind == "markdown" else f"````python\n{each}\n````" for kind, each in cells)
    return f"````{_LANGUAGES[path.suffix]}\n{text.rstrip()}\n````"
