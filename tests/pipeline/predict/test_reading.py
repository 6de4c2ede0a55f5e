"""Reading inputs of a model in batches."""

from __future__ import annotations

import os
import tracemalloc

from PIL import Image

from tfx_estimator.pipeline.predict.inputs import Inputs, Unread
from tfx_estimator.pipeline.predict.reading import batches


def test_a_folder_of_another_user_is_named_and_all_others_are_read(temporary_of_session):
    folder = temporary_of_session / "folder"
    for name in ("a", "b", "c"):
        (folder / name).mkdir(parents=True)
        for number in range(2):
            Image.new("L", (4, 4)).save(folder / name / f"{number}.png")
    (folder / "b").chmod(0o700 if os.geteuid() == 0 else 0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        found = list(batches(Inputs([str(folder)]), 3, (4, 4), 8, 1))
    finally:
        os.seteuid(user)
        (folder / "b").chmod(0o700)
    *unread, batch = found
    assert batch.names == [f"{folder}/{name}/{number}.png" for name in "ac" for number in range(2)]
    assert unread == [Unread(f"{folder}/b", f"damaged file {folder}/b: it cannot be read: Permission denied")]


def test_unreadable_files_are_not_kept_in_memory(tmp_path):
    for number in range(20):
        (tmp_path / f"{number}.png").write_bytes(bytes(1 << 20))
    # The first call imports modules.
    list(batches(Inputs([str(tmp_path / "0.png")]), 3, (4, 4), 2, 1))
    tracemalloc.start()
    found = list(batches(Inputs([str(tmp_path)]), 3, (4, 4), 2, 1))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [type(each) for each in found] == [Unread] * 20
    assert held < 1 << 20
