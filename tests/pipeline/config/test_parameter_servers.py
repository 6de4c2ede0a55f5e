"""What parameter servers can do depends on the path."""

from __future__ import annotations

import pytest

from tfx_estimator.pipeline.config import Declaration
from tfx_estimator.pipeline.config.rules.case import Case
from tfx_estimator.pipeline.config.rules.parameter_server import PARAMETER_SERVERS
from tfx_estimator.pipeline.config.rules.rule import broken

pytestmark = pytest.mark.unit

CUT = {"min_bytes": 4096}


@pytest.mark.parametrize(
    ("path", "train", "sharding", "found"),
    [
        ("keras", {}, "element", []),
        ("keras", {"workers": 2, "variable_partitioner": CUT}, "element", []),
        ("keras", {"workers": 1}, "element", ["trainer.distribution.train.workers"]),
        ("keras_custom_loop", {}, "file", ["trainer.distribution.sharding"]),
        ("estimator", {"workers": 1}, "file", []),
        ("estimator", {"variable_partitioner": CUT}, "element", ["trainer.distribution.train.variable_partitioner"]),
        ("keras", {"variable_partitioner": {}}, "element", ["trainer.distribution.train.variable_partitioner"]),
        (
            "keras",
            {"variable_partitioner": {**CUT, "fixed_shards": 2}},
            "element",
            ["trainer.distribution.train.variable_partitioner"],
        ),
        (
            "keras",
            {"variable_partitioner": {"fixed_shards": 2, "max_shards": 2}},
            "element",
            ["trainer.distribution.train.variable_partitioner.max_shards"],
        ),
    ],
)
def test_what_is_refused(path, train, sharding, found):
    trainer = {
        "path": path,
        "model": "mnist_cnn",
        "train_steps": 10,
        "distribution": {"train": {"strategy": "parameter_server", **train}, "sharding": sharding},
    }
    declaration = Declaration.parse_obj({"name": "d", "data": {"dataset": "digits"}, "trainer": trainer})
    assert [problem.path for problem in broken(PARAMETER_SERVERS, Case(declaration))] == found


@pytest.mark.parametrize(("name", "cut", "told"), [("adafactor", CUT, 1), ("adafactor", None, 0), ("adam", CUT, 0)])
def test_an_optimizer_that_keeps_means_of_rows_has_whole_variables(name, cut, told):
    trainer = {
        "path": "keras",
        "model": "mnist_cnn",
        "train_steps": 10,
        "optimizer": {"name": name},
        "distribution": {"train": {"strategy": "parameter_server", "workers": 2, "variable_partitioner": cut}},
    }
    declaration = Declaration.parse_obj({"name": "d", "data": {"dataset": "digits"}, "trainer": trainer})
    found = list(broken(PARAMETER_SERVERS, Case(declaration)))
    assert [problem.path for problem in found] == told * ["trainer.optimizer.name"]
