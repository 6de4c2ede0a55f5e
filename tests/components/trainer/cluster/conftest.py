"""Users of this machine who should get a private network."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.components.trainer.cluster.private_users import NEWNET, NEWUSER, WITHOUT_SYS_ADMIN, User
from tfx_estimator.components.trainer.cluster import private_network

NOBODY = 65534


@pytest.fixture(scope="module", params=["this user", "plain user", "root without CAP_SYS_ADMIN"])
def user(request: pytest.FixtureRequest) -> Iterator[User]:
    """Users who should get a private network on this machine."""
    if request.param != "this user" and os.geteuid() != 0:
        pytest.skip("only root can become another user")
    # pytest's own folders are closed to other users.
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        shutil.copy(private_network.__file__, folder)
        (folder / "private_network.py").chmod(0o644)
        own = NEWNET if os.geteuid() == 0 else NEWNET | NEWUSER
        made = User(sys.executable, folder, own)
        if request.param == "root without CAP_SYS_ADMIN":
            made = dataclasses.replace(made, prefix=WITHOUT_SYS_ADMIN, namespaces=NEWNET | NEWUSER)
        elif request.param == "plain user":
            os.chown(folder, NOBODY, NOBODY)
            popen = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            made = User(_python_of(popen, folder), folder, NEWNET | NEWUSER, popen=popen)
        # In another way than the code under test.
        probe = made.start(f"import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare({made.namespaces}) != 0)")
        probe.communicate()
        if probe.returncode:
            pytest.skip(f"this machine gives {request.param} no network namespace")
        yield made


def _python_of(popen: dict[str, Any], folder: Path) -> str:
    """An interpreter that other users may run, since this one may be in a private home folder."""
    for python in (sys.executable, getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3"):
        check = f"import os, sys; sys.exit(sys.version_info < (3, 10) or not os.access({str(folder)!r}, os.W_OK))"
        with contextlib.suppress(PermissionError, FileNotFoundError):
            if subprocess.run([python, "-I", "-S", "-c", check], check=False, **popen).returncode == 0:
                return python
    pytest.skip("no interpreter of Python 3.10 that uid 65534 may run")
