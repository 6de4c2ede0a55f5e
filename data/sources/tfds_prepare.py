"""Downloads and prepares a TFDS data set, once."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import time
import urllib.parse
from collections.abc import Callable, Iterator
from typing import Any, Optional

from tfx_estimator.pipeline.base.ending.scratch import shared, shared_lock
from tfx_estimator.pipeline.base.errors import (
    DamagedDataError,
    DataError,
    DataNotFoundError,
    DeclarationError,
    TfxEstimatorError,
)
from tfx_estimator.pipeline.base.log import get_logger
from tfx_estimator.pipeline.config.data import DataSection
from tfx_estimator.pipeline.user_data.read import is_prepared
from tfx_estimator.pipeline.user_source.fingerprint import fingerprint_source

_CONNECT_SECONDS = 5.0
# For another process's download and conversion; after that it probably hangs.
_LOCK_SECONDS = 1800.0
_LOCK_POLL_SECONDS = 0.5
# The fingerprint of the source code with which a user's builder prepared its data, next to TFDS's own files.
_SOURCE_FILE = "tfx_estimator.json"

_log = get_logger("data")


def check_builder(builder: Any, section: DataSection) -> None:
    """Raises an error within seconds if downloads are forbidden, or impossible: TFDS would retry for minutes."""
    # Data embedded in a package, like the digits, need no download.
    if not section.download and not hasattr(builder, "content_fingerprint"):
        raise _not_found(builder, "and `download: false` forbids downloading and preparing it")
    _check_network(builder)


def prepare_builder(builder: Any, section: DataSection) -> None:
    """Prepares a data set into its data_dir; a concurrent process waits."""
    with _lock(builder.data_dir):
        if is_prepared(builder.data_path):
            return
        check_builder(builder, section)
        _download_and_prepare(builder)


def _download_and_prepare(builder: Any) -> None:
    import requests
    import tensorflow_datasets as tfds
    from tensorflow_datasets.core.download import DownloadError, download_manager

    tfds.disable_progress_bar()
    try:
        # TFDS prints its progress; a pipeline has its own.
        with contextlib.redirect_stdout(io.StringIO()):
            builder.download_and_prepare()
    except TfxEstimatorError:
        raise
    except download_manager.NonMatchingChecksumError as error:
        raise DamagedDataError(
            f"a download of data set {builder.info.full_name} is damaged: {str(error).splitlines()[0]}",
            expected="the checksum that TFDS registered for it",
            todo=f"delete {builder.data_dir_root}/downloads and try again; a login page may have been downloaded",
        ) from error
    except (requests.RequestException, DownloadError) as error:
        raise _not_found(builder, f"and its download failed: {error}") from error
    except Exception as error:
        # Another machine that shares the folder may have been faster.
        if is_prepared(builder.data_path):
            return
        if builder.MANUAL_DOWNLOAD_INSTRUCTIONS and isinstance(error, (AssertionError, FileNotFoundError)):
            raise _not_found(builder, f"and must be downloaded manually: {error}") from error
        raise DataError(
            f"preparing data set {builder.info.full_name} failed: {type(error).__name__}: {error}",
            expected="a builder that generates its examples",
            todo="see the error above, and run `tfds build` on the builder alone",
        ) from error


def _check_network(builder: Any) -> None:
    import requests
    from etils import epath
    from tensorflow_datasets.core.download import resource

    downloads = epath.Path(builder.data_dir_root) / "downloads"
    missing: dict[str, str] = {}
    for url, info in (builder.url_infos or {}).items():
        name = resource.get_dl_fname(url, info.checksum)
        held = (downloads / name, downloads / builder.name / name, downloads / "manual" / (info.filename or name))
        if not any(path.exists() for path in held):
            missing.setdefault(urllib.parse.urlsplit(url).netloc, url)
    if not missing:
        return
    # TFDS may use a mirror while a registered host is dead: one host that answers is enough.
    for url in list(missing.values())[:3]:
        with contextlib.suppress(requests.RequestException):
            requests.head(url, timeout=_CONNECT_SECONDS)
            return
        if not url.startswith("http"):
            return
    raise _not_found(builder, f"and there is no connection to {' or '.join(list(missing)[:3])}")


@contextlib.contextmanager
def _lock(data_dir: str) -> Iterator[None]:
    """Lets one process of this machine at a time prepare a folder."""
    # Not next to the data: data_dir may be remote, or not writable.
    name = f"data-{hashlib.sha256(os.path.abspath(data_dir).encode()).hexdigest()[:16]}.lock"
    with shared_lock(name) as take:
        _acquire(take, data_dir, os.path.join(shared(), name))
        yield


def _acquire(take: Callable[[], bool], data_dir: str, path: str) -> None:
    deadline = time.monotonic() + _LOCK_SECONDS
    logged = False
    while not take():
        if not logged:
            _log.info("Another process is preparing %s; waiting for up to %d minutes", data_dir, _LOCK_SECONDS // 60)
            logged = True
        if time.monotonic() >= deadline:
            raise DataError(
                f"another process has been preparing {data_dir} for over {_LOCK_SECONDS / 60:.0f} minutes",
                expected="its end, or its failure",
                todo=f"check it (`fuser {path}` shows its id), end it if it hangs, and try again",
            )
        time.sleep(_LOCK_POLL_SECONDS)


def _not_found(builder: Any, why: str) -> DataNotFoundError:
    name = builder.info.full_name.rpartition("/")[0]  # without the version
    return DataNotFoundError(
        f"data set {builder.info.full_name} is not prepared in {builder.data_dir_root}, {why}",
        expected=f"a prepared data set in {builder.data_dir}, or a network",
        todo=f"on a machine with network run `tfds build {name}` and copy its folder, then set data.data_dir; or set "
        "data.dataset to a folder of IDX files (MNIST's form; Debian's package dataset-fashion-mnist), of CIFAR "
        "binary batches, or of images by class; or try `dataset: digits`",
    )


def remember_source(cls: type, folder: Any) -> None:
    """Writes the fingerprint of a builder's source next to its prepared data (`epath.Path` of the version)."""
    if source := _fingerprint(cls):
        try:
            (folder / _SOURCE_FILE).write_text(json.dumps({"source": source}) + "\n")
        except OSError as error:
            _log.info("Cannot record the source that prepared %s: %s", folder, error)


def notes_of_edits(cls: type, folder: Any) -> tuple[str, ...]:
    """Returns a note if the source was edited since, without a new version."""
    try:
        prepared_from = json.loads((folder / _SOURCE_FILE).read_text())["source"]
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # prepared by TFDS itself, or by an earlier version of this project
    source = _fingerprint(cls)
    if source is None or source == prepared_from:
        return ()
    return (
        f"{cls.__module__}:{cls.__name__} was edited since its data were prepared in {folder}, which are used "
        "unchanged; raise VERSION in the class, or delete that folder, to prepare them again",
    )


def _fingerprint(cls: type) -> Optional[str]:
    """Hashes the class's module and the user's modules that it imports; None without source files."""
    try:
        return fingerprint_source(f"{cls.__module__}:{cls.__name__}")
    except DeclarationError:
        return None
