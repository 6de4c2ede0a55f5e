"""The public names of `import tfx_estimator`, and its import cost."""

from __future__ import annotations

from importlib import metadata

import pytest

import tfx_estimator
from tests.root import run_python
from tfx_estimator.pipeline.base import errors

pytestmark = pytest.mark.unit


def test_the_public_names_exist() -> None:
    assert tfx_estimator.__all__ == sorted(tfx_estimator.__all__)
    assert {name: getattr(tfx_estimator, name) for name in tfx_estimator.__all__}
    from tfx_estimator.components.pusher.component import Pusher
    from tfx_estimator.components.trainer.component import Trainer
    from tfx_estimator.pipeline.build import create_pipeline

    assert tfx_estimator.Pusher is Pusher
    assert tfx_estimator.Trainer is Trainer
    assert tfx_estimator.create_pipeline is create_pipeline
    assert set(tfx_estimator.__all__) <= set(dir(tfx_estimator))


def test_every_public_name_is_documented_in_a_line() -> None:
    lines = [line.split(maxsplit=1) for line in (tfx_estimator.__doc__ or "").splitlines() if line.startswith("    ")]
    documented = [words[0] for words in lines if len(words) == 2 and words[0] not in ("from", "loaded", "pipeline")]
    assert sorted(documented) == [name for name in tfx_estimator.__all__ if name != "__version__"]
    for name in documented:
        assert (getattr(tfx_estimator, name).__doc__ or "").strip(), name


def test_every_error_is_public() -> None:
    found = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
    assert found == {name for name in tfx_estimator.__all__ if name.endswith("Error")}


def test_the_version_equals_the_installed_packages() -> None:
    assert tfx_estimator.__version__ == metadata.version("tfx-estimator")


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Trainr'"):
        tfx_estimator.Trainr  # noqa: B018


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import tfx_estimator", ("yaml", "numpy", "tensorflow", "tfx", "apache_beam")),
        ("from tfx_estimator import load_declaration, DeclarationError", ("numpy", "tensorflow", "tfx", "apache_beam")),
    ],
)
def test_importing_is_light(code: str, absent: tuple[str, ...]) -> None:
    code = f"{code}\nimport sys; print([name for name in {absent!r} if name in sys.modules])"
    done = run_python("-c", code)
    assert done.stdout.strip() == "[]", done.stderr
