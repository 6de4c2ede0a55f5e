"""Requirements of the user's modules where they run: only certain failures are refused."""

from __future__ import annotations

import pytest

from tests.folders import write_files
from tfx_estimator.pipeline.base.errors import DeclarationError
from tfx_estimator.pipeline.user_source.needs import find_needs
from tfx_estimator.pipeline.user_source.pack import pack
from tfx_estimator.pipeline.user_source.packages import is_of_image

pytestmark = pytest.mark.unit

NOWHERE = "nowhere_to_be_found"


@pytest.mark.parametrize(
    "text",
    [
        f"import {NOWHERE}\n",
        f"from {NOWHERE}.deep import thing\n",
        f"import os, {NOWHERE}.deep\n",
        f"try:\n    import {NOWHERE}\nfinally:\n    pass\n",
        "from helpers.gone import thing\n",
        "import helpers.gone\n",
        "import second\n",
    ],
)
def test_a_missing_module_is_refused_with_file_and_line(tmp_path, text):
    files = {"net.py": f"import numpy\n{text}", "second.py": f"import {NOWHERE}\n", "helpers/here.py": ""}
    write_files(tmp_path, files)
    with pytest.raises(DeclarationError, match=r"\.py:[123] imports \S+, which is not found"):
        pack(["net:f"], [str(tmp_path)])


@pytest.mark.parametrize(
    "text",
    [
        f"try:\n    import {NOWHERE}\nexcept ImportError:\n    pass\n",
        f"try:\n    import os\nexcept ImportError:\n    import {NOWHERE}\n",
        f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import {NOWHERE}\n",
        f"import contextlib\nwith contextlib.suppress(ImportError):\n    import {NOWHERE}\n",
        f"def f():\n    import {NOWHERE}\n",
        f"class Layer:\n    def call(self):\n        from {NOWHERE} import x\n",
        f"load = lambda: __import__('{NOWHERE}')\n",
        f"registry.import_module('{NOWHERE}')\n",
        # Optional imports may be missing.
        "try:\n    import second\nexcept ImportError:\n    pass\n",
        "def f():\n    import second\n",
        # Folders without __init__.py, standard modules of other systems, installed packages that create submodules
        # at import, and modules without files.
        "import space.part\nfrom space import part\nfrom space import anything\n",
        "import winreg, msvcrt\n",
        "import six.moves.urllib\nfrom tensorflow.keras import layers\nimport google.cloud.storage\n",
        "import __main__, sys, builtins\n",
        "from . import neighbour\nfrom .... import far\n",
        f"import sys\nsys.path.append('/opt/of/the/image')\nimport {NOWHERE}\n",
        f"import site\nsite.addsitedir('/opt/of/the/image')\nimport {NOWHERE}\n",
        "from vendored.six.moves import urllib\n",
        "from tfx_estimator.model_fn import networks\n",
    ],
)
def test_optional_or_otherwise_found_modules_are_accepted(tmp_path, text):
    files = {
        "net.py": text,
        "second.py": f"import {NOWHERE}\n",
        "space/part.py": "",
        "vendored/__init__.py": "",
        "vendored/six.py": "import sys\nsys.meta_path.append(None)\n",
    }
    write_files(tmp_path, files)
    assert not find_needs("net:f", [str(tmp_path)]).missing
    pack(["net:f"], [str(tmp_path)])


def test_additions_to_the_path_are_reported(tmp_path):
    (tmp_path / "net.py").write_text(f"import sys\nsys.path.append('/opt')\nimport {NOWHERE}\n")
    (need,) = find_needs("net:f", [str(tmp_path)]).unknown
    assert (need.module, need.where) == (NOWHERE, f"{tmp_path}/net.py:3")


def test_packages_are_named_by_their_distributions(tmp_path):
    text = "import yaml\nfrom google.cloud import storage\ndef f():\n    import hypothesis\ntry:\n    import pytest\n"
    (tmp_path / "net.py").write_text(f"{text}except ImportError:\n    pass\nimport json\n")
    found = find_needs("net:f", [str(tmp_path)]).installed
    assert {each.module for each in found} == {"yaml", "google", "hypothesis"}
    # As built by different tools.
    names = "yaml google tensorflow numpy rich packaging pandas matplotlib tree farmhash"
    for name in names.split():
        assert is_of_image(name), name
    assert not is_of_image("hypothesis")
    assert not is_of_image("pytest")
