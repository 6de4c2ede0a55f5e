"""Every declaration on a page loads; a part loads within an otherwise valid declaration."""

from __future__ import annotations

import importlib.util
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.conftest import MODULE_FILE
from tests.docs.pages import PAGES, Block, Page
from tests.root import ROOT
from tfx_estimator.pipeline import presets
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.config import Declaration, load
from tfx_estimator.pipeline.config.known import TABLE_NAMES
from tfx_estimator.pipeline.config.strategies import TRAITS

KEY = re.compile(r"(?:data|transform|trainer|evaluator|serving|pusher|beam)\.[a-z_.]+")
# With a value that is not the default.
OPTIONS = {
    "cross_device_ops": "hierarchical_copy",
    "num_packs": 2,
    "workers": 3,
    "ps": 2,
    "variable_partitioner": "{min_bytes: 4096}",
    "communication": "ring",
    "bytes_per_pack": 1,
    "gradient_compression": "bf16",
    "timeout_seconds": 30,
    "tpu": "grpc://10.0.0.2:8470",
}


def whole(part: dict[str, Any]) -> dict[str, Any]:
    """Returns a valid declaration merged with a part."""
    base = {"name": "page", "data": {"dataset": "mnist"}, "trainer": {"model": "mnist_cnn", "train_steps": 1000}}
    of_table = part.get("trainer", {}).get("model") in TABLE_NAMES["trainer.model"]
    if "csv" in part.get("data", {}) or of_table:
        base["data"] = {"csv": "trips.csv", "label": "big_tip"}
    if "blessed" in part.get("trainer", {}).get("warm_start", {}):
        base["data"] = {"csv": "data/day-{SPAN}/*.csv", "label": "bought"}
        base["trainer"]["model"] = "wide_deep"  # type: ignore[index]
    if "module_file" in part.get("trainer", {}):
        del base["trainer"]["model"]  # type: ignore[attr-defined]
    return merged(base, part)


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {key: merged(below[key], above[key]) for key in below.keys() & above.keys() if isinstance(above[key], dict)}
    return {**below, **above, **both}


def load_block(block: Block, folder: Path) -> Declaration:
    """Loads a declaration, or a part of one; the page need not have the module file that a part names."""
    path = folder / (block.file or "piece.yaml")
    if not block.file:
        part = whole(yaml.safe_load(block.text))
        if table := part["data"].get("csv"):
            file = folder / table.replace("{SPAN}/*", "1/rows").replace("*", "1")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(
                "bought,benign,big_tip,fare,trip_start_hour\n0,0,1,2.5,3\n1,1,0,4.5,6\n0,0,0,3.5,3\n1,1,1,5.5,1\n"
            )
        module_file = part["trainer"].get("module_file")
        if module_file and not (folder / module_file).exists():
            (folder / module_file).write_text(MODULE_FILE)
        path.write_text(yaml.safe_dump(part))
    elif "data" not in yaml.safe_load(block.text):  # to be merged into another
        return load(f"mnist+{path}").declaration
    return load(path).declaration


def are_wrong(page: Page) -> set[str]:
    shown = (line for block in page.of("console") for line in block.text.splitlines() if line.startswith("$ "))
    return {word for line in shown for word in shlex.split(line)}


def test_every_declaration_loads(page: Page, folder: Path) -> None:
    for block in page.of("yaml"):
        if block.file in are_wrong(page):
            continue
        try:
            load_block(block, folder)
        except DeclarationError as error:
            pytest.fail(f"{page.name}:{block.line}: {error}")


def test_every_function_that_a_declaration_names_on_its_page_works(page: Page, folder: Path) -> None:
    import tensorflow as tf

    shape = (28, 28, 1)
    for block in page.of("yaml"):
        if block.file in are_wrong(page):
            continue
        declaration = load_block(block, folder)
        trainer = declaration.trainer
        if trainer.model and ":" in trainer.model:
            network = function(trainer.model, folder)(10, **trainer.params)
            assert network(tf.zeros([2, *shape])).shape == (2, 10), page.name
        if declaration.transform.preprocessing_fn:
            preprocess = function(declaration.transform.preprocessing_fn, folder)
            raw = {"image": tf.constant([[b"\xff" * 784]] * 2), "label": tf.constant([[1], [2]], tf.int64)}
            outputs = preprocess(raw, {"image_shape": list(shape)})
            assert outputs["image"].shape == (2, *shape), page.name
            assert outputs["label"].shape == (2,), page.name


def function(target: str, folder: Path) -> Any:
    module, _, name = target.partition(":")
    spec = importlib.util.spec_from_file_location(module, folder / f"{module.replace('.', '/')}.py")
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return getattr(loaded, name)


def test_every_key_in_the_text_exists(page: Page) -> None:
    for span in page.spans:
        key, colon, value = span.partition(": ")
        if not KEY.fullmatch(key):
            continue
        assert is_key(key), f"{page.name}: `{span}`"
        if colon and "package.module" not in value:
            load("mnist", [f"{key}={value}"])


def is_key(dotted: str) -> bool:
    section: Any = Declaration
    for name in dotted.split("."):
        field = getattr(section, "__fields__", {}).get(name)
        if field is None:
            return False
        section = field.kind
    return True


def test_the_table_of_strategies_names_each_with_the_options_that_it_takes() -> None:
    rows = re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", (ROOT / "docs" / "strategies.md").read_text(), re.MULTILINE)
    table = {name: set(re.findall(r"`(\w+)`", options)) for name, options in rows}
    assert {name: options - {"devices"} for name, options in table.items()} == {
        name: {option for option in OPTIONS if takes(name, option)} for name in table
    }
    assert set(table) == set(TRAITS)


def takes(strategy: str, option: str) -> bool:
    path = "trainer.distribution.train"
    try:
        load("mnist", [f"{path}.strategy={strategy}", f"{path}.{option}={OPTIONS[option]}"])
    except DeclarationError as error:
        return f"the strategy {strategy} takes no {option}" not in str(error)
    return True


def test_the_named_presets_are_the_existing_ones() -> None:
    (named,) = re.findall(r"^tfx-estimator presets +# (.+)$", "".join(page.text for page in PAGES), re.MULTILINE)
    assert set(named.split(", ")) == set(presets.names())
