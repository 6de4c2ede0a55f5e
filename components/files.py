"""Files where the artifacts lie, on this machine or elsewhere, that are there whole or not at all."""

from __future__ import annotations

from typing import Union

from tfx.dsl.io import fileio


def write_whole(path: str, content: Union[str, bytes]) -> None:
    """Writes a file, or leaves what was there, however this process ends.

    Args:
        path: The file, as TFX's file systems know it; a file that is there is replaced.
        content: Text becomes UTF-8.
    """
    draft = f"{path}.tmp"
    with fileio.open(draft, "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    fileio.rename(draft, path, overwrite=True)
