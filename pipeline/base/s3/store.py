"""Objects of S3 as files and folders.

A folder is a prefix of names; an empty one is an object whose name ends in `/`, as TensorFlow makes them on gs://.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Optional

from tfx_estimator.pipeline.base.s3 import SCHEME
from tfx_estimator.pipeline.base.s3.asking import NOT_IMPLEMENTED, AbsentError, RefusedError, ask

# Larger files are copied in parts: a server may copy longer than a request waits.
_COPY_BYTES = 256 * 2**20
_REMOVED_AT_ONCE = 1000
# Of 1, one server makes an error.
_ANY = 2


class Place(NamedTuple):
    """An object's bucket and key; the key of a folder has no `/` at its end."""

    bucket: str
    key: str

    @classmethod
    def of(cls, address: str) -> Place:
        """Parses an address."""
        bucket, _, key = address.removeprefix(SCHEME).partition("/")
        return cls(bucket, "/".join(filter(None, key.split("/"))))

    def __str__(self) -> str:
        return f"{SCHEME}{self.bucket}/{self.key}"

    @property
    def prefix(self) -> str:
        """With which the keys of its contents start."""
        return f"{self.key}/" if self.key else ""


class Stat(NamedTuple):
    """Of a file its bytes, the time of its last change in nanoseconds, and the ETag; of a folder zeros."""

    size: int
    changed_ns: int
    etag: str
    is_folder: bool


_FOLDER = Stat(0, 0, "", True)


def stat(place: Place) -> Stat:
    """Describes a file or a folder; raises AbsentError."""
    if place.key:
        with contextlib.suppress(AbsentError):
            found = ask(lambda s3: s3.head_object(Bucket=place.bucket, Key=place.key), str(place))
            changed = int(found["LastModified"].timestamp() * 1e9)
            return Stat(found["ContentLength"], changed, found["ETag"], False)
    if not is_folder(place):
        raise AbsentError("NoSuchKey", 404, f"{place}: there is no such file or folder")
    return _FOLDER


def is_folder(place: Place) -> bool:
    """Returns whether there is such a folder, or bucket."""
    try:
        found = ask(lambda s3: s3.list_objects_v2(Bucket=place.bucket, Prefix=place.prefix, MaxKeys=_ANY), str(place))
    except AbsentError:
        return False
    return not place.key or bool(found.get("Contents"))


def listed(place: Place, start: str = "", deep: bool = False) -> Iterator[tuple[str, int, bool]]:
    """Yields name, bytes, and whether it is a folder, of the contents of a folder; the folder's own marker as "".

    Args:
        start: With which the names start.
        deep: Of all folders in it as well, only files and markers.
    """
    request = {"Bucket": place.bucket, "Prefix": place.prefix + start, **({} if deep else {"Delimiter": "/"})}
    more: dict[str, str] = {}
    while True:
        page = ask(lambda s3: s3.list_objects_v2(**request, **more), str(place))  # noqa: B023 (called at once)
        for found in page.get("CommonPrefixes", ()):
            yield found["Prefix"].removeprefix(place.prefix).rstrip("/"), 0, True
        for found in page.get("Contents", ()):
            yield found["Key"].removeprefix(place.prefix), found["Size"], False
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}


def names(place: Place) -> list[str]:
    """Returns the names in a folder, sorted; raises AbsentError."""
    found = [name for name, _, _ in listed(place)]
    if not found and place.key:
        raise AbsentError("NoSuchKey", 404, f"{place}: there is no such folder")
    return sorted({name for name in found if name})


def matching(pattern: str) -> list[str]:
    """Returns the addresses of the files and folders that a pattern matches; `*` does not match `/`."""
    whole = Place.of(pattern)
    found = [Place(whole.bucket, "")]
    parts = whole.key.split("/")
    for number, part in enumerate(parts):
        literal = _literal(part)
        if literal == part:
            found = [Place(each.bucket, each.prefix + part) for each in found]
            continue
        last = number + 1 == len(parts)
        found = [
            Place(place.bucket, place.prefix + name)
            for place in found
            for name, _, is_folder in listed(place, literal)
            if name and (last or is_folder) and fnmatch.fnmatchcase(name, part)
        ]
    if _literal(parts[-1]) == parts[-1]:
        found = [place for place in found if _exists(place)]
    return sorted({str(place) for place in found})


def _literal(pattern: str) -> str:
    """Returns what stands before the first wildcard."""
    return pattern[: next((at for at, letter in enumerate(pattern) if letter in "*?["), len(pattern))]


def _exists(place: Place) -> bool:
    try:
        stat(place)
    except AbsentError:
        return False
    return True


def make_folder(place: Place) -> None:
    """Makes a folder; raises AbsentError if there is no such bucket."""
    if place.key:
        ask(lambda s3: s3.put_object(Bucket=place.bucket, Key=place.prefix, Body=b""), str(place))
    elif not is_folder(place):
        raise AbsentError("NoSuchBucket", 404, f"{place}: there is no such bucket")


def remove(place: Place) -> None:
    """Removes a file; raises AbsentError."""
    ask(lambda s3: s3.head_object(Bucket=place.bucket, Key=place.key), str(place))
    ask(lambda s3: s3.delete_object(Bucket=place.bucket, Key=place.key), str(place))


def remove_folder(place: Place) -> None:
    """Removes an empty folder; raises AbsentError, or RefusedError if it is not empty."""
    if names(place):
        raise RefusedError("NotEmpty", 412, f"{place}: the folder is not empty")
    ask(lambda s3: s3.delete_object(Bucket=place.bucket, Key=place.prefix), str(place))


def remove_tree(place: Place) -> None:
    """Removes a folder with all its contents; raises AbsentError."""
    keys = [place.prefix + name for name, _, _ in listed(place, deep=True)]
    if not keys:
        raise AbsentError("NoSuchKey", 404, f"{place}: there is no such folder")
    _remove_keys(place.bucket, keys)


def _remove_keys(bucket: str, keys: Sequence[str]) -> None:
    for start in range(0, len(keys), _REMOVED_AT_ONCE):
        some = keys[start : start + _REMOVED_AT_ONCE]
        wanted = {"Objects": [{"Key": key} for key in some], "Quiet": True}
        try:
            left = ask(lambda s3: s3.delete_objects(Bucket=bucket, Delete=wanted), bucket)  # noqa: B023
            some = [each["Key"] for each in left.get("Errors", ())]
        except RefusedError as error:
            # Some servers want a checksum that boto3 no longer sends.
            if error.status not in (400, NOT_IMPLEMENTED):
                raise
        for key in some:
            ask(lambda s3: s3.delete_object(Bucket=bucket, Key=key), f"{SCHEME}{bucket}/{key}")  # noqa: B023


def copy(source: Place, target: Place, size: Optional[int] = None) -> None:
    """Copies a file inside the store; raises AbsentError."""
    if size is None:
        size = ask(lambda s3: s3.head_object(Bucket=source.bucket, Key=source.key), str(source))["ContentLength"]
    named = {"CopySource": {"Bucket": source.bucket, "Key": source.key}, "Bucket": target.bucket, "Key": target.key}
    if size < _COPY_BYTES:
        ask(lambda s3: s3.copy_object(**named), f"{source} to {target}")
    else:
        ask(lambda s3: s3.copy(**named), f"{source} to {target}")


def move(source: Place, target: Place) -> None:
    """Moves a file or, not atomically, a folder, whose inner folders come first; raises AbsentError."""
    if not stat(source).is_folder:
        if source != target:
            copy(source, target)
            ask(lambda s3: s3.delete_object(Bucket=source.bucket, Key=source.key), str(source))
        return
    if f"{target}/".startswith(f"{source}/"):
        if source == target:
            return
        raise RefusedError("Inside", 412, f"{source} cannot be moved into itself, to {target}")
    if any(name for name, _, _ in listed(target)):
        raise RefusedError("NotEmpty", 412, f"{target}: the folder is not empty")
    contents = sorted(listed(source, deep=True), key=lambda found: (-found[0].count("/"), found[0]))
    for name, size, _ in contents:
        to = Place(target.bucket, target.prefix + name)
        if to.key.endswith("/"):  # a folder's marker, which some servers do not copy
            make_folder(Place(to.bucket, to.key.rstrip("/")))
        else:
            copy(Place(source.bucket, source.prefix + name), to, size)
    # No file that another process has written meanwhile.
    _remove_keys(source.bucket, [source.prefix + name for name, _, _ in contents])


def read(place: Place, start: int, size: int, etag: str) -> bytes:
    """Reads bytes of the version that has the ETag, fewer at its end; raises RefusedError if it was replaced."""
    if size <= 0:
        return b""
    request = {"Bucket": place.bucket, "Key": place.key, "Range": f"bytes={start}-{start + size - 1}", "IfMatch": etag}
    return ask(lambda s3: s3.get_object(**request)["Body"].read(), str(place))


def upload(place: Place, path: str) -> None:
    """Writes or replaces a file by one on this machine; it is there as a whole, or not at all."""
    if os.path.getsize(path) < 16 * 2**20:

        def whole(s3: Any) -> None:
            with open(path, "rb") as file:
                s3.put_object(Bucket=place.bucket, Key=place.key, Body=file)

        ask(whole, str(place))
        return

    def in_parts(s3: Any) -> None:
        from boto3.s3.transfer import TransferConfig

        try:
            s3.upload_file(path, place.bucket, place.key, Config=TransferConfig(max_concurrency=4))
        except RuntimeError:  # this process is ending, and starts no threads any more
            s3.upload_file(path, place.bucket, place.key, Config=TransferConfig(use_threads=False))

    ask(in_parts, str(place))


def download(place: Place, path: str) -> None:
    """Copies a file to this machine; raises AbsentError."""
    ask(lambda s3: s3.download_file(place.bucket, place.key, path), str(place))


def read_whole(place: Place, patience: Optional[float] = None) -> tuple[bytes, str]:
    """Reads a small file; returns its content and its ETag. Raises AbsentError."""

    def whole(s3: Any) -> tuple[bytes, str]:
        found = s3.get_object(Bucket=place.bucket, Key=place.key)
        return found["Body"].read(), found["ETag"]

    return ask(whole, str(place), patience)


def write_whole(place: Place, content: bytes, etag: Optional[str], patience: float) -> None:
    """Replaces the version that has the ETag, or creates the file if that is None; raises RefusedError otherwise."""
    condition = {"IfMatch": etag} if etag else {"IfNoneMatch": "*"}
    ask(lambda s3: s3.put_object(Bucket=place.bucket, Key=place.key, Body=content, **condition), str(place), patience)


def remove_if(place: Place, etag: str, patience: float) -> None:
    """Removes the version that has the ETag; raises AbsentError, or RefusedError if there is another one."""
    named = {"Bucket": place.bucket, "Key": place.key}
    if ask(lambda s3: s3.head_object(**named), str(place), patience)["ETag"] != etag:
        raise RefusedError("PreconditionFailed", 412, f"{place} has changed")
    try:
        ask(lambda s3: s3.delete_object(**named, IfMatch=etag), str(place), patience)
    except RefusedError as error:
        if error.status != NOT_IMPLEMENTED:
            raise
        ask(lambda s3: s3.delete_object(**named), str(place), patience)
