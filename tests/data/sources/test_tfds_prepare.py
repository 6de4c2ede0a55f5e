"""Downloading and preparing, with and without network."""

from __future__ import annotations

import hashlib
import time

import pytest

from tests.data.sizes import opened, split_sizes
from tests.http_service import Service
from tests.refusals import refused
from tfx_estimator.pipeline.base.errors import DamagedDataError, DataError, DataNotFoundError


class _Web(Service):
    def respond(self, request):
        request.answer(200, b"\x07", "application/octet-stream")


@pytest.fixture
def server():
    """The address of a file on a web server."""
    with _Web() as web:
        yield f"{web.address}/shade.bin"


def _fetching(make_builder, url, content):
    """Returns a builder whose pixels are the byte that it downloads; TFDS knows the file's checksum."""
    return make_builder(
        before=f'self.shade = open(dl_manager.download("{url}"), "rb").read()[0]',
        example='{"image": np.full((4, 6, 3), self.shade, np.uint8), "label": i % 3}',
        checksums=f"{url}\t{len(content)}\t{hashlib.sha256(content).hexdigest()}\tshade.bin\n",
    )


def _versions(data_dir):
    return [path for path in data_dir.glob("tiny*/*") if path.is_dir()]


def test_a_missing_data_set_is_downloaded_and_prepared(make_builder, data_dir, server, capfd):
    source = opened(_fetching(make_builder, server, b"\x07"), data_dir=str(data_dir))
    source.prepare()
    (part,) = source.resolve("test")
    assert [int(image.max()) for image, _ in source.read(part)] == [7] * 5
    assert [path.name for path in _versions(data_dir)] == ["1.0.0"]
    assert capfd.readouterr().out == ""  # a pipeline shows its own progress


def test_a_download_with_another_checksum_is_refused(make_builder, data_dir, server):
    source = opened(_fetching(make_builder, server, b"\x08"), data_dir=str(data_dir))
    with refused(DamagedDataError, "a download of data set tiny", expected="checksum"):
        source.prepare()
    assert _versions(data_dir) == []


def test_without_network_the_error_is_immediate_and_names_the_remedies(make_builder, data_dir):
    source = opened(_fetching(make_builder, "http://127.0.0.1:9/shade.bin", b"\x07"), data_dir=str(data_dir))
    start = time.monotonic()
    with pytest.raises(DataNotFoundError, match=r"no connection to 127\.0\.0\.1:9") as caught:
        source.prepare()
    assert time.monotonic() - start < 10
    for way in ("data.data_dir", "IDX", "tfds build tiny", "digits"):
        assert way in caught.value.todo
    assert list(data_dir.iterdir()) == []


def test_a_file_put_by_hand_needs_no_network(make_builder, data_dir):
    manual = data_dir / "downloads" / "manual"
    manual.mkdir(parents=True)
    (manual / "shade.bin").write_bytes(b"\x07")
    source = opened(_fetching(make_builder, "http://127.0.0.1:9/shade.bin", b"\x07"), data_dir=str(data_dir))
    source.prepare()
    assert split_sizes(source) == {"train": 12, "test": 5}


def test_download_false_forbids_it(make_builder, data_dir, server):
    source = opened(_fetching(make_builder, server, b"\x07"), data_dir=str(data_dir), download=False)
    with pytest.raises(DataNotFoundError, match="download: false"):
        source.prepare()
    assert list(data_dir.iterdir()) == []


def test_download_false_still_opens_prepared_and_embedded_data_sets(make_builder, data_dir):
    dataset = make_builder()
    opened(dataset, data_dir=str(data_dir)).prepare()
    source = opened(dataset, data_dir=str(data_dir), download=False)
    source.prepare()
    assert split_sizes(source)["train"] == 12
    digits = opened("digits", data_dir=str(data_dir), download=False)
    digits.prepare()
    assert split_sizes(digits) == {"train": 1797}


def test_a_builder_that_fails_is_reported_and_leaves_no_files(make_builder, data_dir):
    dataset = make_builder(example='{"image": np.full((4, 6, 3), i, np.uint8), "label": 1 // (5 - i)}')
    with pytest.raises(DataError, match="ZeroDivisionError") as caught:
        opened(dataset, data_dir=str(data_dir)).prepare()
    assert caught.value.__cause__ is not None
    assert _versions(data_dir) == []


def _hold(source):
    """Holds the lock of this data set, like a process that prepares it."""
    from tfx_estimator.data.sources import tfds_prepare

    return tfds_prepare._lock(source._builder.data_dir)


def test_waiting_for_the_lock_times_out(make_builder, data_dir, monkeypatch):
    from tfx_estimator.data.sources import tfds_prepare

    monkeypatch.setattr(tfds_prepare, "_LOCK_SECONDS", 1.0)
    source = opened(make_builder(), data_dir=str(data_dir))
    with _hold(source), refused(DataError, "another process", todo="fuser"):
        source.prepare()
    assert _versions(data_dir) == []
    source.prepare()
    assert split_sizes(source)["train"] == 12
