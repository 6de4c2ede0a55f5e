"""Uploads of the user's modules to the folder where the steps look for them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tfx_estimator.pipeline.base.errors import DeclarationError, PipelineError
from tfx_estimator.pipeline.runners.compiling import Compiled, upload
from tfx_estimator.pipeline.user_source.pack import Packed

DATA = b"a wheel"


@pytest.fixture
def compiled(tmp_path) -> Compiled:
    packed = Packed("mine-0-py3-none-any.whl", DATA, ("networks",))
    assert packed.sha256 == hashlib.sha256(DATA).hexdigest()
    return Compiled("", (packed,), str(tmp_path / "root" / "digits" / "modules"), "")


def test_modules_are_copied_unless_they_exist(compiled, tmp_path):
    root, place = tmp_path / "root", Path(compiled.modules_uri) / "mine-0-py3-none-any.whl"
    root.mkdir()
    assert upload(compiled, str(tmp_path), str(root)) == [str(place)]
    assert place.read_bytes() == DATA
    assert upload(compiled, str(tmp_path), str(root)) == []
    # A truncated file is written again.
    place.write_bytes(DATA[:3])
    assert upload(compiled, str(tmp_path), str(root)) == [str(place)]
    assert place.read_bytes() == DATA
    assert upload(Compiled("", (), "", ""), str(tmp_path), str(root)) == []


def test_an_unreachable_folder_is_reported_with_the_files_to_copy(compiled, tmp_path):
    with pytest.raises(DeclarationError, match=r"belong in .*/root/digits/modules, and this machine has no folder"):
        upload(compiled, str(tmp_path), str(tmp_path / "root"))
    assert (tmp_path / "mine-0-py3-none-any.whl").read_bytes() == DATA
    # A folder that cannot be written.
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "digits").write_text("a file")
    with pytest.raises(PipelineError, match="cannot be written to"):
        upload(compiled, str(tmp_path), str(tmp_path / "root"))
