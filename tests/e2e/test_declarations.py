"""Each declaration of README and docs, run as it stands there on data of its shape, with its result."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from PIL import Image

from tests.docs.pages import PAGES, Block, Page
from tests.docs.test_declarations import are_wrong, merged
from tests.e2e.conftest import ForkedWorkdir
from tests.folders import write_files

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

FASHION_MNIST = Path("/usr/share/datasets/fashion-mnist")
# Not run here, with the reason.
_SERVICE, _TAXI = (
    "needs a service: tests/pipeline/platforms",
    "its module is not on the page: tests/e2e/test_examples.py",
)
NOT_RUN = {
    "README.md:1": _TAXI,
    "docs/beam.md:1": "needs a job server: tests/e2e/test_beam_engines.py",
    "docs/clusters.md:my.yaml": "needs a cluster: tests/e2e/test_join.py",
    "docs/dataflow.md:flow.yaml": _SERVICE,
    "docs/deploy.md:mine.yaml": _SERVICE,
    "docs/deploy.md:1": _SERVICE,
    "docs/deploy.md:2": _SERVICE,
    "docs/kubeflow.md:mine.yaml": _SERVICE,
    "docs/kubeflow.md:1": _SERVICE,
    "docs/module-files.md:1": _TAXI,
    "docs/report.md:1": "needs a server of MLflow: tests/e2e/test_tracking.py",
    "docs/tfjob.md:mine.yaml": _SERVICE,
    "docs/trainjob.md:mine.yaml": _SERVICE,
    "docs/vertex.md:1": _SERVICE,
}
# Least accuracy; others must be as accurate as a part of a declaration is with the digits.
ACCURACY = {
    "README.md:fashion.yaml": 0.89,
    "docs/declaration.md:my.yaml": 0.97,
    "docs/declaration.md:mine.yaml": 0.97,
    "docs/keras.md:fashion.yaml": 0.89,
}
OF_A_PART = 0.85
# A part is merged into this; it takes no more steps, and no more trials.
BASE: dict[str, Any] = {
    "name": "page",
    "data": {"dataset": "digits", "splits": {"train": "train[:80%]", "eval": "train[80%:]"}},
    "trainer": {
        "model": "mnist_cnn",
        "train_steps": 300,
        "global_batch_size": 64,
        "optimizer": {"name": "momentum", "learning_rate": 0.02},
    },
}


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


def written(name: str, folder: Path) -> str:
    """Writes a page's files and a declaration of it; returns the arguments of `run` that name it."""
    page, block = DECLARATIONS[name]
    write_files(folder, page.files)
    if block.file:
        # One without data is above the page's other one.
        below = (
            [] if "data" in yaml.safe_load(block.text) else [next(file for file in page.files if file != block.file)]
        )
        return [str(folder / file) for file in (*below, block.file)]
    declared = merged(BASE, yaml.safe_load(block.text))
    declared["trainer"]["train_steps"] = min(declared["trainer"]["train_steps"], BASE["trainer"]["train_steps"])
    if "tune" in declared:
        declared["tune"] = {**declared["tune"], "max_trials": 2, "train_steps": 50}
    (folder / "part.yaml").write_text(yaml.safe_dump(declared))
    return [str(folder / "part.yaml")]


def data_of(dataset: str, folder: Path, request: pytest.FixtureRequest) -> list[str]:
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
    workdir.run(*arguments, seconds=580)
    (home,) = workdir.path.iterdir()
    results = workdir.summary(home.name)
    print(name, results["accuracy"], results["blessed"], results["warnings"])
    assert results["accuracy"] >= least
    assert results["blessed"] is True
    assert (Path(results["pushed"]) / "saved_model.pb").is_file()


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) for name in DECLARATIONS])
def test_a_declaration_reaches_what_its_page_says(name, forked, tmp_path, request):
    if name in NOT_RUN:
        pytest.skip(NOT_RUN[name])
    arguments = written(name, tmp_path)
    read = yaml.safe_load(Path(arguments[0]).read_text())
    if "warm_start" in read.get("trainer", {}):
        request.getfixturevalue("digits_run")
    given = data_of(read["data"]["dataset"], tmp_path, request)
    run(name, [*arguments, *given], forked, ACCURACY.get(name, OF_A_PART))


@pytest.mark.long
def test_the_short_run_of_the_readme_is_blessed(forked, tmp_path, request):
    """With all steps it is one of the above."""
    arguments = written("README.md:fashion.yaml", tmp_path)
    given = data_of("fashion_mnist", tmp_path, request)
    run("500 steps", [*arguments, *given, "--set", "trainer.train_steps=500"], forked, 0.88)


def test_the_network_of_the_readme_learns_the_digits(forked, tmp_path):
    """In seconds: a network that is linear, or whose training diverges, does not."""
    arguments = written("README.md:fashion.yaml", tmp_path)
    data = ("data.dataset=digits", "data.splits={train: 'train[:80%]', eval: 'train[80%:]'}")
    words = [word for each in (*data, "trainer.train_steps=200") for word in ("--set", each)]
    run("digits", [*arguments, *words], forked, 0.95)
