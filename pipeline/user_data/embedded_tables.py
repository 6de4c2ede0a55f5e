"""The embedded tables: the numbers that scikit-learn ships, as CSV files with a header, which TFX reads.

Its files are read without importing it, which takes two seconds.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from tfx_estimator.pipeline.base.files import drafting, writing

_MEASURED = (
    "radius",
    "texture",
    "perimeter",
    "area",
    "smoothness",
    "compactness",
    "concavity",
    "concave_points",
    "symmetry",
    "fractal_dimension",
)


def _cancer(folder: Path) -> Iterator[str]:
    yield ",".join([*(each.format(of) for each in ("mean_{}", "{}_error", "worst_{}") for of in _MEASURED), "benign"])
    # The first line holds the numbers of rows and columns, and the names of the classes.
    yield from (folder / "breast_cancer.csv").read_text(encoding="utf-8").splitlines()[1:]


def _diabetes(folder: Path) -> Iterator[str]:
    yield "age,sex,bmi,bp,s1,s2,s3,s4,s5,s6,progression"
    files = (folder / f"diabetes_{each}.csv.gz" for each in ("data_raw", "target"))
    rows, targets = (gzip.decompress(file.read_bytes()).decode().splitlines() for file in files)
    yield from (",".join([*row.split(), f"{float(target):g}"]) for row, target in zip(rows, targets, strict=True))


TABLES: dict[str, Callable[[Path], Iterator[str]]] = {"cancer": _cancer, "diabetes": _diabetes}


def place_of(csv: str) -> str:
    """Returns the file of an embedded table, written if it is missing or damaged; of another `data.csv` itself.

    Raises:
        TfxEstimatorError: It cannot be written.
    """
    if csv not in TABLES:
        return csv
    spec = importlib.util.find_spec("sklearn")
    assert spec is not None, "scikit-learn is a requirement of this package"
    assert spec.origin is not None
    content = "".join(f"{line}\n" for line in TABLES[csv](Path(spec.origin).parent / "datasets" / "data")).encode()
    cache = os.path.abspath(os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache"))
    path = Path(cache, "tfx-estimator", "tables", hashlib.sha256(content).hexdigest()[:16], f"{csv}.csv")
    with writing(f"{path}, below XDG_CACHE_HOME,"):
        if not path.is_file() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            with drafting(path) as draft:
                Path(draft).write_bytes(content)
                # TFX's cache knows a file by its path, size and time: so written again it is the same.
                os.utime(draft, (0, 0))
    return str(path)
