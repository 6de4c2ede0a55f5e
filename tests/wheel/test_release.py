"""`make release`: the files of a tagged commit, which any build of it makes again."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.root import ROOT
from tfx_estimator import __version__

pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is made in a clone")


def release(clone: Path, code: int = 0) -> tuple[Path, str]:
    """Makes the release; returns its folder and what was printed."""
    done = subprocess.run([".ci/release", sys.executable], cwd=clone, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return clone / "dist" / __version__, done.stderr


def test_a_tagged_commit_is_released_with_its_checksums_and_twice_alike(tmp_path):
    clone = tmp_path / "clone"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-C", str(clone)]
    subprocess.run(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(clone)], check=True)
    folder, stderr = release(clone, 1)
    assert f"git tag v{__version__}" in stderr
    changes = clone / "CHANGELOG.md"
    changes.write_text(f"# Changelog\n\n## {__version__}\n\n- New.\n\n## 0.0.1\n\n- Old.\n")
    subprocess.run([*git, "commit", "--quiet", "--all", "--message", "Release"], check=True)
    subprocess.run([*git, "tag", f"v{__version__}"], check=True)
    folder, _ = release(clone)

    sums = dict(reversed(line.split("  ")) for line in (folder / "SHA256SUMS").read_text().splitlines())
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "SHA256SUMS"}
    assert sums == {name: hashlib.sha256(content).hexdigest() for name, content in files.items()}
    wheel = f"tfx_estimator-{__version__}-py3-none-any.whl"
    locks = {f"tfx1.{number}{kind}.lock" for number in (15, 21) for kind in ("", "-image")}
    assert files.keys() == {"CHANGES.md", "INSTALL.md", wheel, f"tfx_estimator-{__version__}.tar.gz", *locks}
    assert files["CHANGES.md"].decode() == f"## {__version__}\n\n- New.\n"
    assert files["tfx1.21.lock"] == (ROOT / "requirements" / "tfx1.21.lock").read_bytes()
    with zipfile.ZipFile(folder / wheel) as opened:
        (metadata,) = (name for name in opened.namelist() if name.endswith("/METADATA"))
        assert re.search(rf"^Version: {__version__}$", opened.read(metadata).decode(), re.MULTILINE)
        assert "tfx_estimator/pipeline/report/model_card.md.j2" in opened.namelist()

    first = shutil.copy(folder / "SHA256SUMS", tmp_path)
    release(clone)
    assert (folder / "SHA256SUMS").read_bytes() == Path(first).read_bytes()
