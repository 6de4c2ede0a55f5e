"""The `trainer.augment` list: how training examples are varied, operation after operation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Optional

from tfx_estimator.pipeline.config.section import Field, Section, number

_MAX_SIDE = 4096
_FILL = "what comes in at the edges: zero, or the image's own mirror"


class RandomFlip(Section):
    """Mirrors every other image."""

    mode: Literal["horizontal", "vertical", "both"] = Field(
        "horizontal", "horizontal swaps left and right; both draws one and the other"
    )


class RandomCrop(Section):
    """Pads the image, and cuts one of its own size out of it."""

    padding: int = number(4, 1, _MAX_SIDE, "pixels at each edge")
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomTranslation(Section):
    """Moves the image by whole pixels."""

    height_factor: float = number(0.1, 0, 1, "part of the height, up or down at most")
    width_factor: float = number(0.1, 0, 1, "part of the width, left or right at most")
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomRotation(Section):
    """Turns the image about its centre, with bilinear interpolation."""

    degrees: float = number(15.0, None, 180, "either way at most", gt=0)
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomZoom(Section):
    """Enlarges or shrinks the image about its centre, with bilinear interpolation."""

    factor: float = number(0.1, None, None, "0.1 is from 0.9 to 1.1 times as large", gt=0, lt=1)
    fill: Literal["zero", "reflect"] = Field("zero", _FILL)


class RandomBrightness(Section):
    """Adds a number to the whole image."""

    factor: float = number(0.2, None, 1000, "of either sign at most, in the units of the transformed image", gt=0)


class RandomContrast(Section):
    """Multiplies each channel's distance from its mean over the image."""

    factor: float = number(0.2, None, 1, "0.2 is by 0.8 to 1.2", gt=0)


class RandomSaturation(Section):
    """Multiplies the distance of a pixel's red, green and blue from its grey."""

    factor: float = number(0.2, None, 1, "0.2 is by 0.8 to 1.2", gt=0)


class Cutout(Section):
    """Sets a square to zero."""

    size: int = number(8, 1, _MAX_SIDE, "pixels a side; its centre is any pixel, so that part of it may lie outside")


class GaussianNoise(Section):
    """Adds a normally distributed number to each element."""

    stddev: float = number(0.1, None, 1000, "standard deviation, in the units of the transformed image", gt=0)


class Operation(Section):
    """One item of the list: exactly one of these, its name alone or with its options."""

    random_flip: Optional[RandomFlip] = None
    random_crop: Optional[RandomCrop] = None
    random_translation: Optional[RandomTranslation] = None
    random_rotation: Optional[RandomRotation] = None
    random_zoom: Optional[RandomZoom] = None
    random_brightness: Optional[RandomBrightness] = None
    random_contrast: Optional[RandomContrast] = None
    random_saturation: Optional[RandomSaturation] = None
    cutout: Optional[Cutout] = None
    gaussian_noise: Optional[GaussianNoise] = None

    SCHEMA = {"minProperties": 1, "maxProperties": 1}
    SPARSE = True

    @property
    def declared(self) -> Mapping[str, Section]:
        """Name and options of what was declared: one operation, where the declaration is right."""
        return dict(self.sections())


Operation.SHORT_FORM = {"type": "string", "enum": list(Operation.__fields__)}


def expand_operations(value: Any) -> Any:
    """Writes short forms as mappings: `random_flip` is `{random_flip: {}}`."""
    return [_long(item) for item in value] if isinstance(value, (list, tuple)) else value


def _long(item: Any) -> Any:
    if isinstance(item, str):
        return {item: {}}
    if isinstance(item, dict):
        return {name: {} if options is None else options for name, options in item.items()}
    return item
