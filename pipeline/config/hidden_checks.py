"""Files of the user's that would hide modules of Python, or packages that every task imports, from these."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from tfx_estimator.pipeline.config.problems import Problem
from tfx_estimator.pipeline.user_source.modules import Module, is_installed

# Modules that Python, TensorFlow and a task import at their start. The user may hide others, such as `trace` or
# `sched`.
NEEDED = frozenset(
    """
    abc argparse array ast asyncio base64 bdb binascii bisect bz2 calendar cmath cmd code codecs codeop collections
    concurrent configparser contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis
    distutils email encodings enum fcntl fnmatch fractions functools genericpath getopt getpass gettext glob grp gzip
    hashlib heapq hmac html http importlib inspect io ipaddress json keyword linecache locale logging lzma math
    mimetypes mmap multiprocessing ntpath numbers opcode operator os pathlib pdb pickle pkgutil platform posixpath
    pprint pydoc pyexpat queue quopri random re reprlib resource secrets select selectors shlex shutil signal site
    socket sre_compile sre_constants sre_parse ssl stat string stringprep struct subprocess sysconfig tarfile tempfile
    termios textwrap threading timeit token tokenize traceback types typing unicodedata unittest urllib uu uuid
    warnings weakref xml zipfile zipimport zlib zoneinfo
    """.split()  # noqa: SIM905
)
# Installed packages that the pipeline and its tasks import.
PACKAGES = frozenset(
    """
    PIL absl apache_beam apitools astunparse attr certifi cloudpickle dateutil dill docker farmhash fastavro flatbuffers
    gast google googleapiclient grpc h5py httplib2 joblib keras keras_tuner kubernetes ml_dtypes
    ml_metadata numpy oauth2client objsize opt_einsum orjson packaging pandas portpicker proto psutil pyarrow pydantic
    pydot pymongo pyparsing pytz regex requests rich scipy six sklearn tensorboard tensorflow tensorflow_data_validation
    tensorflow_datasets tensorflow_estimator tensorflow_hub tensorflow_metadata
    tensorflow_model_analysis tensorflow_serving tensorflow_transform termcolor tfx tfx_bsl tqdm typing_extensions
    urllib3 wrapt yaml zstandard
    """.split()  # noqa: SIM905
)
_NAMES = NEEDED | PACKAGES


def check_hidden(search_paths: Sequence[str]) -> Iterator[Problem]:
    """Finds modules where the user's are looked for that have the name of one that every task needs.

    Args:
        search_paths: Folders where the user's modules are looked for before `sys.path`.

    Yields:
        The problems.
    """
    for folder in search_paths:
        for file in _modules(Path(folder)):
            name = file.stem if file.stem != "__init__" else file.parent.name
            if not is_installed(Module(name, file)):
                whose = "the installed package" if name in PACKAGES else "Python's own module"
                what = f"{file} hides {whose} `{name}`: the pipeline, or its tasks, would import it in place of that"
                yield Problem("", what, "modules of yours with names of their own", "rename it, and what imports it")


def _modules(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    files = [folder / name for name in names if name.endswith(".py") and name[:-3] in _NAMES]
    packages = [folder / name / "__init__.py" for name in names if name in _NAMES]
    # A folder without __init__.py hides nothing.
    return [file for file in (*packages, *files) if os.path.isfile(file)]
