"""Every pair of options that the declaration accepts together trains two steps on each path; many in one training."""

from __future__ import annotations

import dataclasses

import pytest

from tests.techniques.covering import Row, accepted_pairs, cover, declared
from tests.techniques.options import OPTIONS, PATHS
from tfx_estimator.pipeline.base.errors import DeclarationError

# Maximal number of rows.
MOST = 60


def _accepted(name, folder, weights):
    """Loads an option's declaration on the first path that it is accepted on."""
    problems = []
    for path in PATHS:
        try:
            return declared(Row(path, (name,)), folder, weights)
        except DeclarationError as error:
            problems.append(str(error))
    raise DeclarationError("\n".join(problems))


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_is_accepted_on_a_path(name, tmp_path, weights):
    _accepted(name, tmp_path, weights)


@pytest.mark.parametrize("path", PATHS)
def test_options_that_depend_on_evaluations_are_tried_with_each_cluster(path, tmp_path, weights):
    clusters = ["workers", "compressed", "packs", "parameter_server"]
    clusters += [] if path == "estimator" else ["sync_every", "outer_momentum"]
    for cluster in clusters:
        for name in ("keep_best", "early_stopping"):
            assert declared(Row(path, (cluster, name)), tmp_path, weights).trainer.distribution.evaluator


@pytest.fixture(scope="module")
def accepted(tmp_path_factory, weights):
    return accepted_pairs(tmp_path_factory.mktemp("pairs"), weights)


@pytest.fixture(scope="module")
def rows(accepted, tmp_path_factory, weights):
    return cover(accepted, tmp_path_factory.mktemp("rows"), weights)


@pytest.mark.long
@pytest.mark.timeout(120)
def test_the_rows_have_every_accepted_pair(accepted, rows):
    assert len(rows) <= MOST
    for path, pairs in accepted.items():
        assert len(pairs) > 300
        assert set().union(*(row.pairs for row in rows if row.path == path)) == pairs


@pytest.mark.long
@pytest.mark.equivalence
@pytest.mark.timeout(240)
@pytest.mark.parametrize("number", range(MOST))
def test_a_row_of_options_trains_two_steps(number, rows, tmp_path, training, settings, weights, caplog):
    if number >= len(rows):
        pytest.skip("there are fewer rows")
    row = rows[number]
    print(f"{row.path}: {', '.join(row.options)}")
    caplog.set_level("INFO", "absl.tfx_estimator")
    declaration = declared(row, tmp_path, weights).dict()
    model, run = training.run(dataclasses.replace(settings(), declaration=declaration), steps=2)
    assert run.get_float_custom_property("last_step") == 2
    assert (model / "Format-Serving" / "saved_model.pb").exists()
    assert ("training begins with" in caplog.text) is ("warm_start" in row.options)
    assert "which is not there" not in caplog.text
