"""TFX's cache key sees an artifact's properties in one order, whatever protobuf's version is."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.unit

# As protobuf 3 writes it; its later versions have the second name before the first.
WRITTEN = b"\x08\x01\x10\x02\x1a\x01u*\x0b\n\x05model\x12\x02\x08\x03*\x0e\n\x08model_id\x12\x02\x08\x04:\x01n"


def test_the_bytes_of_an_artifact_are_those_of_protobuf_3():
    from ml_metadata.proto import metadata_store_pb2
    from tfx.types import standard_artifacts

    from tfx_estimator.pipeline.runners.launcher import with_sorted_properties

    artifact = standard_artifacts.Model()
    artifact.set_mlmd_artifact(metadata_store_pb2.Artifact(id=1, type_id=2, uri="u", name="n"))
    artifact.set_int_custom_property("model_id", 4)
    artifact.set_int_custom_property("model", 3)

    def hashed(input_artifacts, **others):
        told = {key: [each.mlmd_artifact for each in channel] for key, channel in input_artifacts.items()}
        return {key: [each.SerializeToString(deterministic=True) for each in channel] for key, channel in told.items()}

    assert with_sorted_properties(hashed)(input_artifacts={"model": [artifact]}) == {"model": [WRITTEN]}
    assert with_sorted_properties(hashed)() == {}
