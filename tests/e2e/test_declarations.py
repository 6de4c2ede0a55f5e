"""Each declaration of README and docs, run as it stands there on data of its shape, with its result."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.docs.pages import PAGES, Block, Page
from tests.docs.test_declarations import are_wrong
from tests.e2e.conftest import ForkedWorkdir
from tests.folders import write_files

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
# Not run here, with the reason.
_SERVICE = "needs a service: tests/pipeline/platforms"
_TAXI = "its module is not on the page: tests/e2e/test_examples.py"
NOT_RUN = {
    "README.md:1": _TAXI,
    "docs/beam.md:1": "needs a job server: tests/e2e/test_beam_engines.py",
    "docs/clusters.md:my.yaml": "needs a cluster: tests/e2e/test_join.py",
    "docs/dataflow.md:flow.yaml": _SERVICE,
    "docs/deploy.md:mine.yaml": _SERVICE,
    "docs/deploy.md:1": _SERVICE,
    "docs/kubeflow.md:2": _SERVICE,
    "docs/every-day.md:shops.yaml": "its days are not on the page: tests/e2e/test_days.py",
    "docs/kubeflow.md:1": _SERVICE,
    "docs/module-files.md:1": _TAXI,
    "docs/report.md:1": "needs a server of MLflow: tests/e2e/test_tracking.py",
    "docs/tables.md:1": _TAXI,
    "docs/tables.md:2": "its table is not on the page: tests/e2e/test_tables.py",
    "docs/techniques.md:4": "its weights are not on the page: tests/components/trainer/test_transfer.py",
    "docs/trainjob.md:mine.yaml": _SERVICE,
    "docs/trainjob.md:1": _SERVICE,
    "docs/vertex.md:1": _SERVICE,
}
# Least accuracy; others must be as accurate as a part of a declaration is with the digits.
ACCURACY = {
    "README.md:fashion.yaml": 0.89,
    "docs/declaration.md:my.yaml": 0.97,
    "docs/declaration.md:mine.yaml": 0.97,
    "docs/keras.md:fashion.yaml": 0.89,
}
# A part is above the preset digits.
OF_A_PART = 0.85
WITH_PARTS = ("trainer.train_steps=400", "evaluator.max_accuracy_drop=1")
# Mirrored digits are harder to tell.
WITH_MIRRORED = ("evaluator.min_accuracy=0.85",)
WITH_TUNING = ("tune.max_trials=2", "tune.train_steps=50")


def declarations() -> dict[str, tuple[Page, Block]]:
    """Returns each block of YAML, by its page and file; one without a file by its page and number."""
    found = {}
    for page in PAGES:
        number = 0
        for block in page.of("yaml"):
            if block.file in are_wrong(page):
                continue
            number += not block.file
            found[f"{page.name}:{block.file or number}"] = (page, block)
    return found


DECLARATIONS = declarations()


def test_the_tables_name_declarations():
    assert {*NOT_RUN, *ACCURACY} <= set(DECLARATIONS)


def written(name: str, folder: Path) -> list[str]:
    """Writes a page's files, and a part of a declaration; returns the arguments of `run` for it."""
    page, block = DECLARATIONS[name]
    write_files(folder, page.files)
    if block.file:
        # One without data is above the page's other one.
        whole = "data" in yaml.safe_load(block.text)
        files = [block.file] if whole else [file for file in page.files if file.endswith(".yaml")]
        return [str(folder / file) for file in files]
    (folder / "part.yaml").write_text(block.text)
    part = yaml.safe_load(block.text)
    read = [name for section in ("transform", "trainer") for name in part.get(section, {}).get("files", ())]
    write_files(folder, {f"{name}any.txt" if name.endswith("/") else name: "any" for name in read})
    changed = (*WITH_PARTS, *(WITH_TUNING if "tune" in part else ()))
    changed += WITH_MIRRORED if "random_flip" in part.get("trainer", {}).get("augment", ()) else ()
    return ["digits", str(folder / "part.yaml"), *(word for each in changed for word in ("--set", each))]


def data_of(dataset: str | None, folder: Path, request: pytest.FixtureRequest) -> list[str]:
    """Provides a declaration's data; returns the arguments of `run` that name it."""
    if dataset == "mnist":
        return ["--set", f"data.data_dir={request.getfixturevalue('real_data_dir')}"]
    if dataset == "fashion_mnist":
        if not FASHION_MNIST.is_dir():
            pytest.skip("needs Debian's package dataset-fashion-mnist")
        return ["--set", f"data.dataset={FASHION_MNIST}"]
    if dataset == "./pets":
        draw = np.random.default_rng(1)
        for shade, kind in enumerate(("cat", "dog")):
            (folder / "pets" / kind).mkdir(parents=True)
            for number in range(50):
                pixels = draw.integers(100 * shade, 100 * shade + 150, (60 + number % 9, 70, 3), np.uint8)
                Image.fromarray(pixels).save(folder / "pets" / kind / f"{number}.png")
    return []


def run(name: str, arguments: list[str], workdir: ForkedWorkdir, least: float) -> None:
    """Runs a declaration, and asserts what it reaches."""
    before = set(workdir.path.glob("*/logs/*/summary.json"))
    workdir.run(*arguments, seconds=580)
    (summary,) = (path for path in workdir.path.glob("*/logs/*/summary.json") if path not in before)
    results = json.loads(summary.read_text())
    print(name, results["accuracy"], results["blessed"], results["warnings"])
    assert results["accuracy"] >= least
    assert results["blessed"] is True
    assert "loss has grown" not in str(results["warnings"])
    assert (Path(results["pushed"]) / "saved_model.pb").is_file()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in DECLARATIONS])
def test_a_declaration_reaches_what_its_page_says(name, forks, tmp_path, request):
    if name in NOT_RUN:
        pytest.skip(NOT_RUN[name])
    arguments = written(name, tmp_path)
    workdir = ForkedWorkdir(tmp_path / "runs", forks)
    if arguments[0] == "digits":
        shutil.copytree(request.getfixturevalue("digits_run").kept, workdir.path)
    read = yaml.safe_load(next(Path(each) for each in arguments if each.endswith(".yaml")).read_text())
    given = data_of(read.get("data", {}).get("dataset"), tmp_path, request)
    run(name, [*arguments, *given], workdir, ACCURACY.get(name, OF_A_PART))


@pytest.mark.long
def test_the_short_run_of_the_readme_is_blessed(forked, tmp_path, request):
    """With all steps it is one of the above."""
    arguments = written("README.md:fashion.yaml", tmp_path)
    given = data_of("fashion_mnist", tmp_path, request)
    run("500 steps", [*arguments, *given, "--set", "trainer.train_steps=500"], forked, 0.88)
