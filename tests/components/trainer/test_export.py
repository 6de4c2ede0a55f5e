"""The names of an exported model's signatures."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("exported", "named"),
    [
        (["images:serving_default", "serving_default"], ["images", "serving_default"]),
        # A head's: its default signature classifies serialized examples alone.
        (["images:predict", "predict", "serving_default"], ["images", "predict", "serving_default"]),
        (["images:predict", "images:serving_default"], ["images", "images:predict"]),
    ],
)
def test_the_images_have_a_signature_of_their_name(tmp_path, exported, named):
    from tensorflow.core.protobuf import saved_model_pb2

    from tfx_estimator.components.trainer.export import rename_signatures

    model = saved_model_pb2.SavedModel()
    graph = model.meta_graphs.add()
    for name in exported:
        graph.signature_def[name].method_name = name
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    rename_signatures(str(tmp_path))
    renamed = saved_model_pb2.SavedModel.FromString((tmp_path / "saved_model.pb").read_bytes())
    signatures = renamed.meta_graphs[0].signature_def
    assert sorted(signatures) == named
    assert signatures["images"].method_name == next(each for each in sorted(exported, reverse=True) if ":" in each)
