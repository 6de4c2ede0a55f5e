"""A user's folder with the files of a page, in which its commands run."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.docs.pages import PAGES, Page
from tests.folders import write_files

_WEIGHTS = "runs/digits/serving/1/variables/variables"
_DATA = ("mean.npy", "words.txt", "embeddings/a.npy", f"{_WEIGHTS}.index", f"{_WEIGHTS}.data-00000-of-00001")
# As your-code.md shows them.
_PETS = {
    f"pets/{split}/{name}/{number}.png": (width, 64)
    for split, width, count in (("train", 64, 10), ("val", 48, 3))
    for name in ("cat", "dog")
    for number in range(count)
} | {f"pets/test/{number}.png": (64, 64) for number in range(4)}
# Output of `convert`.
_CONVERTED = {
    "converted/checkpoints/model.ckpt-600.index": "",
    "converted/checkpoints/checkpoint": 'model_checkpoint_path: "model.ckpt-600"\n',
}
MODULE_FILE = "".join(
    f"def {head}:\n    raise NotImplementedError\n\n\n"
    for head in ("trainer_fn(fn_args, schema)", "preprocessing_fn(inputs)")
)


@pytest.fixture(params=PAGES, ids=lambda page: page.name)
def page(request: pytest.FixtureRequest) -> Page:
    return request.param


@pytest.fixture
def folder(page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the page's files and the data that it mentions."""
    tables = {"labels.csv": "image,label,split\n", "data/day-1/rows.csv": "shop,bought\na,1\nb,0\na,0\n"}
    write_files(tmp_path, {**page.files, **dict.fromkeys(_DATA, ""), **_CONVERTED, **tables})
    # The beginning of an HDF5 file.
    (tmp_path / "mobilenet_v2_notop.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    for shade, (name, size) in enumerate(_PETS.items()):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", size, (shade, 0, 0)).save(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path
