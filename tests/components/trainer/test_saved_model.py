"""What training exports: whole, and by its names."""

from __future__ import annotations

import pytest
from tensorflow.core.protobuf import saved_model_pb2

from tfx_estimator.components.trainer import export
from tfx_estimator.pipeline.base import errors

pytestmark = pytest.mark.unit


def test_a_damaged_saved_model_is_refused(tmp_path):
    model = tmp_path / "model"
    with pytest.raises(errors.ExportError, match="without a model"):
        export.check(str(model))
    model.mkdir()
    (model / "saved_model.pb").write_bytes(b"\x00garbage")
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
    for name in ("variables.index", "variables.data-00000-of-00001"):
        (model / "variables" / name).write_bytes(b"x")
    export.check(str(model))


def test_adopting_a_model_replaces_an_earlier_half_one(tmp_path):
    source, target = tmp_path / "source", tmp_path / "deep" / "target"
    source.mkdir()
    (source / "new").write_text("new")
    target.mkdir(parents=True)
    (target / "old").write_text("old")
    (tmp_path / "deep" / "target.tmp").mkdir()
    export.adopt(str(source), str(target))
    assert [path.name for path in target.iterdir()] == ["new"]
    assert [path.name for path in target.parent.iterdir()] == ["target"]


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
