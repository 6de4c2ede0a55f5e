"""The packages that the user's modules import."""

from __future__ import annotations

from tests.folders import write_files
from tfx_estimator.pipeline.user_source.needs import find_needs
from tfx_estimator.pipeline.user_source.packages import is_of_image


def test_packages_are_named_by_their_distributions(tmp_path):
    write_files(tmp_path, {"second.py": "import nowhere_to_be_found\n", "space/part.py": ""})
    text = "import second, space.part\nimport yaml\nfrom google.cloud import storage\ndef f():\n    import hypothesis\n"
    (tmp_path / "net.py").write_text(f"{text}try:\n    import pytest\nexcept ImportError:\n    pass\nimport json\n")
    found = find_needs("net:f", [str(tmp_path)])
    assert {*found} == {"yaml", "google", "hypothesis", "nowhere_to_be_found"}
    assert found["nowhere_to_be_found"] == f"{tmp_path}/second.py:1"
    assert found["yaml"] == f"{tmp_path}/net.py:2"
    # As built by different tools.
    names = "yaml google tensorflow numpy rich packaging pandas matplotlib tree farmhash"
    for name in names.split():
        assert is_of_image(name), name
    assert not is_of_image("hypothesis")
    assert not is_of_image("pytest")
