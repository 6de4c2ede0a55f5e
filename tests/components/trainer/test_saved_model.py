"""The export of training: complete, with the right names."""

from __future__ import annotations

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tests.folders import write_files
from tfx_estimator.components.trainer import export
from tfx_estimator.pipeline.base import errors


def test_a_damaged_saved_model_is_refused(tmp_path):
    model = tmp_path / "model"
    with pytest.raises(errors.ExportError, match="without a model"):
        export.check(str(model))
    write_files(model, {"saved_model.pb": b"\x00garbage"})
    with pytest.raises(errors.ExportError, match="damaged"):
        export.check(str(model))
    proto = saved_model_pb2.SavedModel()
    meta_graph = proto.meta_graphs.add()
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    with pytest.raises(errors.ExportError, match="no signature"):
        export.check(str(model))
    meta_graph.signature_def["serving_default"].method_name = "predict"
    (model / "saved_model.pb").write_bytes(proto.SerializeToString())
    (model / "variables").mkdir()
    with pytest.raises(errors.ExportError, match="lacks its variables"):
        export.check(str(model))
    write_files(model / "variables", dict.fromkeys(("variables.index", "variables.data-00000-of-00001"), "x"))
    export.check(str(model))


def test_adopting_a_model_replaces_an_incomplete_one(tmp_path):
    source = write_files(tmp_path / "source", {"new": "new"})
    target = write_files(tmp_path / "deep" / "target", {"old": "old"})
    (tmp_path / "deep" / "target.tmp").mkdir()
    export.adopt(str(source), str(target))
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


@pytest.mark.parametrize(
    ("exported", "named"),
    [
        (["images:serving_default", "serving_default"], ["images", "serving_default"]),
        # A head's export: its default signature only classifies serialized examples.
        (["images:predict", "predict", "serving_default"], ["images", "predict", "serving_default"]),
        (["images:predict", "images:serving_default"], ["images", "images:predict"]),
    ],
)
def test_the_images_have_a_signature_under_their_name(tmp_path, exported, named):
    proto = saved_model_pb2.SavedModel()
    signatures = proto.meta_graphs.add().signature_def
    for name in exported:
        signatures[name].method_name = name
    (tmp_path / "saved_model.pb").write_bytes(proto.SerializeToString())
    export.rename_signatures(str(tmp_path))
    proto.ParseFromString((tmp_path / "saved_model.pb").read_bytes())
    renamed = proto.meta_graphs[0].signature_def
    assert sorted(renamed) == named
    assert renamed["images"].method_name == next(each for each in sorted(exported, reverse=True) if ":" in each)
