"""What the user's modules need where they run: a refusal only of what nothing excuses."""

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
def test_what_is_found_nowhere_is_refused_by_file_and_line(tmp_path, text):
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
        # What is optional may need what is not there.
        "try:\n    import second\nexcept ImportError:\n    pass\n",
        "def f():\n    import second\n",
        # Folders without __init__.py, Python's own of another system, installed packages with parts made up as they
        # are imported, and modules that are not here as files.
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
def test_what_can_be_done_without_or_found_elsewhere_is_taken(tmp_path, text):
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


def test_what_is_added_to_the_path_is_told(tmp_path):
    (tmp_path / "net.py").write_text(f"import sys\nsys.path.append('/opt')\nimport {NOWHERE}\n")
    (need,) = find_needs("net:f", [str(tmp_path)]).unknown
    assert (need.module, need.where) == (NOWHERE, f"{tmp_path}/net.py:3")


def test_packages_are_named_by_what_has_to_be_in_the_image(tmp_path):
    text = "import yaml\nfrom google.cloud import storage\ndef f():\n    import hypothesis\ntry:\n    import pytest\n"
    (tmp_path / "net.py").write_text(f"{text}except ImportError:\n    pass\nimport json\n")
    found = find_needs("net:f", [str(tmp_path)]).installed
    assert {each.module for each in found} == {"yaml", "google", "hypothesis"}
    # As different tools build them.
    names = "yaml google tensorflow numpy rich packaging pandas matplotlib tree farmhash"
    for name in names.split():
        assert is_of_image(name), name
    assert not is_of_image("hypothesis")
    assert not is_of_image("pytest")
