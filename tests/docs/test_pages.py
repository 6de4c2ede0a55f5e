"""The pages are consistent: links, files, exit codes; and the README stays one page."""

from __future__ import annotations

import ast
import collections
import re

from tests.docs.pages import PAGES, README, Page
from tests.root import ROOT
from tfx_estimator.pipeline.base import errors

README_LINES = 120
LANGUAGES = {"sh", "console", "yaml", "python", "text"}
FOUR_FILES = [
    "pipeline/presets/mnist.yaml",
    "pipeline/build.py",
    "components/trainer/executor.py",
    "model_fn/step/classifier.py",
]
FOLDERS = ("pipeline/", "components/", "model_fn/", "data/", "tests/", "docs/", "src/", "requirements/")


def test_the_readme_is_one_page_that_links_to_all_others() -> None:
    assert len(README.text.splitlines()) <= README_LINES
    # The site begins with a page of its own in the place of the README.
    assert {page.name for page in PAGES if page is not README} - {"docs/index.md"} <= set(README.links)
    assert [link for link in README.links if link in FOUR_FILES] == FOUR_FILES


def test_every_link_has_a_target(page: Page) -> None:
    pages = {each.path: each for each in PAGES}
    for link in page.links:
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (page.path.parent / name).resolve() if name else page.path
        assert target.exists(), f"{page.name}: {link}"
        assert not anchor or anchor in pages[target].anchors, f"{page.name}: {link}"


def test_every_path_and_name_in_the_text_exists(page: Page) -> None:
    for span in page.spans:
        if span.startswith(FOLDERS):
            assert (ROOT / span).exists(), f"{page.name}: `{span}`"


def test_the_layout_names_every_folder_and_each_package_says_what_it_is() -> None:
    (page,) = [page for page in PAGES if page.name == "docs/developing.md"]
    (tree,) = page.of("text")
    places = [ROOT / name for name in ("pipeline", "components", "model_fn", "data")]
    assert re.findall(r"^(\w+)/ ", tree.text, re.MULTILINE) == [*(place.name for place in places), "tests"]
    packages = [file for place in places for file in place.rglob("__init__.py")]
    assert len(packages) > 40
    assert [file for file in packages if not ast.get_docstring(ast.parse(file.read_text()))] == []


def test_every_block_is_of_a_language_that_is_checked(page: Page) -> None:
    assert page.text.count("```") == 2 * len(page.blocks)
    assert {block.language for block in page.blocks} <= LANGUAGES


def test_no_long_sentence_is_repeated() -> None:
    counts = collections.Counter(
        sentence for page in PAGES for sentence in set(re.split(r"(?<=[.:])\s", " ".join(page.prose.split())))
    )
    assert [sentence for sentence, count in counts.items() if count > 1 and len(sentence) > 60] == []


def test_the_exit_codes_equal_those_of_the_errors() -> None:
    (page,) = [page for page in PAGES if page.name == "docs/troubleshooting.md"]
    (table,) = re.findall(r"^## Exit codes\n(.*?)^## ", page.text, re.MULTILINE | re.DOTALL)
    documented = {int(code) for row in re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE) for code in row.split(",")}
    tree = {int(code) for each in re.findall(r"exit code ([\d, ]+)", errors.__doc__ or "") for code in each.split(",")}
    classes = {kind.exit_code for kind in vars(errors).values() if hasattr(kind, "exit_code")}
    # And 141, of a process that SIGPIPE would have ended.
    assert documented == tree | {0, 141}
    assert classes <= documented
