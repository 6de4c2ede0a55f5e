"""A network on several devices is trained, killed, restarted, evaluated and served like any other."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.components.trainer.conftest import served_accuracy

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

MODEL = {"model_parallel": {"devices": ["cpu:0", "cpu:1"], "layers": {"logits": 1, "kill": 1}}}
PIPELINE = {"pipeline_parallel": {"stages": 2, "microbatches": 4}}


@pytest.mark.long
@pytest.mark.parametrize("path", ["estimator", "keras", "keras_custom_loop"])
@pytest.mark.parametrize(("parallel", "calls"), [(MODEL, 1), (PIPELINE, 4)], ids=["layers", "stages"])
def test_it_resumes_from_a_checkpoint_and_its_export_names_no_device(train, digits, tmp_path, path, parallel, calls):
    from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

    params = {"kill_at": 30 * calls, "marker": str(tmp_path / "marker")}
    values = {"model": "killed:deep", "params": params, "save_checkpoints_steps": 20}
    model, run = train(path, **values, **parallel)
    assert (tmp_path / "marker").exists()
    number = run.get_float_custom_property
    assert (number("restarts"), number("last_step")) == (1, 60)
    assert number("eval_accuracy") > 0.6
    # This process has one CPU.
    accuracy = served_accuracy(model, digits["examples"][0].uri)
    assert accuracy == pytest.approx(number("eval_accuracy"), abs=1e-6)
    exported = [*model.rglob("saved_model.pb")]
    assert len(exported) == (2 if path == "estimator" else 1)
    for file in exported:
        graph = SavedModel.FromString(file.read_bytes()).meta_graphs[0].graph_def
        nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
        assert {node.device for node in nodes} <= {"", "/device:CPU:0", "/device:CPU:*"}
    stages = run.get_string_custom_property("stages")
    assert ("2 stages, 4 microbatches: bubble 0." in stages) == ("pipeline_parallel" in parallel)
    assert not (Path(run.uri) / "pipeline_profile").exists()
    (log, *_) = sorted((Path(run.uri) / "logs").glob("chief-0.attempt-*.log"))
    cut = "trainer.pipeline_parallel: conv on cpu:0, relu+kill+flatten+logits on cpu:1"
    assert (cut in log.read_text()) == ("pipeline_parallel" in parallel)
    # The checkpoint also fits the network without stages, and training resumes from it.
    if "model_parallel" in parallel:
        _, run = train(path, 70, **values)
        assert (run.get_float_custom_property("first_step"), run.get_float_custom_property("last_step")) == (60, 70)
