"""tfx-estimator: declarative, distributed TFX pipelines for tf.estimator code."""

from setuptools import find_packages, setup

# The last set in which TFX still runs tf.estimator; requirements/legacy.lock pins the whole tree with hashes.
REQUIREMENTS = [
    "tfx[kfp]==1.15.1",
    "tensorflow==2.15.1",
    "tensorflow-estimator==2.15.0",
    "tensorflow-datasets==4.9.10",
    "apache-beam[gcp]==2.74.0",
    # tfx_bsl and tensorflow_transform import dill; Beam stopped bringing it.
    "dill==0.4.1",
    # `pydantic.v1` exists from 1.10.17 on and in pydantic 2: the declaration is typed through it under both.
    "pydantic>=1.10.17,<3",
    "pyyaml",
    "rich>=13,<16",
    # Plots of `tfx-estimator bench`.
    "matplotlib>=3.10,<3.11",
    # The embedded `digits` data set.
    "scikit-learn==1.7.2",
    # TFX installs a user's module_file by calling pip, and imports pkg_resources.
    "pip",
    "setuptools<80",
]

DEV_REQUIREMENTS = [
    "hypothesis",
    "import-linter",
    "mypy",
    "psutil",
    "pytest",
    "pytest-timeout",
    "ruff",
    "types-PyYAML",
]

setup(
    name="tfx-estimator",
    version="0.1.0",
    description="Declarative, distributed TFX pipelines for tf.estimator code",
    python_requires=">=3.10,<3.11",
    packages=find_packages(
        include=["pipeline", "pipeline.*", "components", "components.*", "model_fn", "model_fn.*", "data", "data.*"]
    ),
    package_data={"pipeline.presets": ["*.yaml"]},
    install_requires=REQUIREMENTS,
    extras_require={"dev": DEV_REQUIREMENTS},
    entry_points={"console_scripts": ["tfx-estimator=pipeline.__main__:main"]},
)
