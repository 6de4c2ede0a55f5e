"""Copies the module file and the rows of TFX's Chicago taxi example, which are installed with TFX, into this folder."""

import importlib.util
import shutil
from pathlib import Path

EXAMPLE = Path(importlib.util.find_spec("tfx").origin).parent / "examples" / "chicago_taxi_pipeline"

if __name__ == "__main__":
    here = Path(__file__).parent
    (here / "data").mkdir(exist_ok=True)
    shutil.copy(EXAMPLE / "taxi_utils.py", here)
    shutil.copy(EXAMPLE / "data" / "simple" / "data.csv", here / "data")
