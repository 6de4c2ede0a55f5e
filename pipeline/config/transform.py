"""The `transform` section: full-pass preprocessing with TensorFlow Transform."""

from __future__ import annotations

from typing import Optional

from pydantic.v1 import Field

from tfx_estimator.pipeline.config.builtin import expand
from tfx_estimator.pipeline.config.section import Section


class TransformSection(Section):
    """Which preprocessing_fn Transform runs."""

    preprocessing_fn: Optional[str] = Field(
        default=None, description="`standardize`, which null is too; or `package.module:function`"
    )
    module_file: Optional[str] = Field(
        default=None, description="a TFX module file that defines `preprocessing_fn`, unchanged"
    )

    @property
    def target(self) -> str:
        """The module file, or `package.module:function` of the preprocessing_fn."""
        return self.module_file or expand("transform.preprocessing_fn", self.preprocessing_fn or "standardize")
