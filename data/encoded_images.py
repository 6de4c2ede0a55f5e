"""Decodes PNG and JPEG in a served model's graph, to the same pixels as `image_decoding.read_image`.

An Estimator's graph is one of TensorFlow 1, where `==` of tensors is not an operation.

Images are resized by the same function as in ingestion. TensorFlow decodes as Pillow does, bit for bit; orientation and
transparency, which it ignores, are applied here.
"""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from tfx_estimator.data.resizing import resize_uint8

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff"
# Offset of a PNG's bit depth, before its colour type; the colour types of grey without and with alpha.
_DEPTH, _GREY_TYPES = 24, (0, 4)
_EXIF, _START_OF_SCAN, _ORIENTATION = b"Exif\0\0", 0xDA, 0x0112
# EXIF precedes the pixels, in one segment.
_HEADER_BYTES = 1 << 17
_CMYK, _DAMAGED = 4, -1


def decode_encoded(encoded: tf.Tensor, image_shape: tuple[int, int, int], resized: bool) -> tf.Tensor:
    """Reads PNG and JPEG files, string [batch], as images, uint8 [batch, height, width, channels].

    Args:
        encoded: The bytes of each file.
        image_shape: Height, width and channels, 1 or 3, of the ingested images.
        resized: True if ingestion resized the images; otherwise an image must have this size.

    Raises:
        InvalidArgumentError: An image cannot be read, or has another shape, except that grey may become colour; the
            message has its index in the batch.
    """

    def decode(index: tf.Tensor, data: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        image, channels = _decode(data, image_shape[2])
        found = tf.stack([*tf.unstack(tf.shape(image)[:2]), channels])
        # Grey becomes colour without loss, but not vice versa.
        fits = tf.equal(channels, image_shape[2]) | tf.equal(channels, 1)
        if not resized:
            fits &= tf.reduce_all(tf.equal(found[:2], image_shape[:2]))
        pixels = tf.cond(
            fits,
            lambda: resize_uint8(image, image_shape[:2]) if resized else image,
            lambda: tf.zeros(image_shape, tf.uint8),
        )
        return index, tf.ensure_shape(pixels, image_shape), tf.where(fits, 0, found)

    count = tf.size(encoded)
    # Only a data set can skip elements that raise errors: so the damaged image is known.
    files = tf.data.Dataset.from_tensor_slices((tf.range(count), tf.reshape(encoded, [-1])))
    read = files.map(decode, num_parallel_calls=tf.data.AUTOTUNE).ignore_errors()
    # Images missing in the batch are damaged.
    decoded = read.batch(tf.maximum(tf.size(encoded, out_type=tf.int64), 1))
    empty = tf.data.Dataset.from_tensors(
        (tf.zeros([0], tf.int32), tf.zeros([0, *image_shape], tf.uint8), tf.zeros([0, 3], tf.int32))
    )
    indices, images, found = decoded.concatenate(empty).take(1).get_single_element()
    faults = tf.tensor_scatter_nd_update(tf.fill([count, 3], _DAMAGED), indices[:, tf.newaxis], found)
    with tf.control_dependencies([_refuse(faults, image_shape, resized)]):
        return tf.reshape(tf.identity(images), [-1, *image_shape])


def _refuse(faults: tf.Tensor, image_shape: tuple[int, int, int], resized: bool) -> tf.Operation:
    """Raises an error for the first image that is damaged, or has a wrong shape."""
    height, width, channels = image_shape
    expected = f"{height} x {width} pixels with {channels} channel{'s' if channels > 1 else ''}"
    if resized:
        expected = f"any size with {channels} channel{'s' if channels > 1 else ''}"
    # An additional row: argmax needs at least one.
    faults = tf.concat([faults, tf.zeros([1, 3], tf.int32)], 0)
    at = tf.argmax(tf.cast(tf.reduce_any(tf.not_equal(faults, 0), axis=1), tf.int32), output_type=tf.int32)
    fault = faults[at]
    reason = tf.case(
        [
            (tf.equal(fault[0], _DAMAGED), lambda: tf.constant("is not a complete PNG or JPEG file")),
            (tf.equal(fault[2], _CMYK), lambda: tf.constant("is CMYK")),
        ],
        lambda: tf.strings.format("is of height, width, channels {}", fault),
    )
    text = tf.strings.join(["image ", tf.strings.as_string(at), f" of the batch {{}}, expected {expected}"])
    return tf.debugging.Assert(tf.reduce_all(tf.equal(faults, 0)), [tf.strings.regex_replace(text, r"\{\}", reason)])


def _decode(data: tf.Tensor, channels: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the pixels of one file, in its orientation, and its number of channels."""

    def png() -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.io.decode_png(data, channels=4)
        depth, colour_type = tf.unstack(tf.io.decode_raw(tf.strings.substr(data, _DEPTH, 2), tf.uint8), 2)
        is_grey = tf.reduce_any(tf.equal(colour_type, _GREY_TYPES))
        return _over_white(image, tf.cast(depth, tf.int32))[..., :channels], tf.where(is_grey, 1, 3)

    def jpeg() -> tuple[tf.Tensor, tf.Tensor]:
        # As in Pillow's decoder; TensorFlow's default depends on the system.
        image = tf.io.decode_jpeg(data, channels=channels, dct_method="INTEGER_ACCURATE")
        return _turned(image, _orientation(data)), tf.io.extract_jpeg_shape(data)[2]

    def other() -> tuple[tf.Tensor, tf.Tensor]:
        with tf.control_dependencies([tf.debugging.Assert(False, ["no PNG or JPEG"])]):
            return tf.zeros([1, 1, channels], tf.uint8), tf.constant(0)

    kinds = ((_PNG, png), (_JPEG, jpeg))
    image, found = tf.case(
        [(tf.equal(tf.strings.substr(data, 0, len(each)), each), read) for each, read in kinds], other
    )
    return tf.ensure_shape(image, [None, None, channels]), found


def _over_white(image: tf.Tensor, depth: tf.Tensor) -> tf.Tensor:
    """Blends RGBA over white, in the integer arithmetic of Pillow's `alpha_composite`."""
    colours, alpha = tf.cast(image[..., :3], tf.int32), tf.cast(image[..., 3:], tf.int32)
    # In an opaque PNG of less than eight bits, TensorFlow's decoder sets alpha to the highest value of so many bits.
    alpha = tf.where(tf.reduce_all(tf.equal(alpha, 2**depth - 1)), 255, alpha)
    blended = (colours * alpha + 255 * (255 - alpha) + 128) * 128
    return tf.cast((blended // 256 + blended) // 256 // 128, tf.uint8)


def _orientation(data: tf.Tensor) -> tf.Tensor:
    """Returns the EXIF orientation of a JPEG, 1 to 8."""
    # Padded with zeros, so that a damaged length does not lead beyond the end.
    values = tf.cast(tf.io.decode_raw(tf.strings.substr(data, 0, _HEADER_BYTES), tf.uint8), tf.int32)
    values = tf.concat([values, tf.zeros([16], tf.int32)], 0)
    last = tf.size(values) - 8

    def at(place: tf.Tensor, count: int, little: tf.Tensor) -> tf.Tensor:
        place = tf.where((place >= 0) & (place < last), place, last)
        digits = values[place : place + count]
        digits = tf.where(little, digits, digits[::-1])
        return tf.reduce_sum(digits * (256 ** tf.range(count)))

    def is_exif(place: tf.Tensor) -> tf.Tensor:
        text = tf.strings.substr(data, tf.minimum(place + 4, tf.strings.length(data)), len(_EXIF))
        return tf.equal(at(place, 2, tf.constant(False)), 0xFFE1) & tf.equal(text, _EXIF)

    def is_other(place: tf.Tensor) -> tf.Tensor:
        marker = at(place, 2, tf.constant(False))
        return (marker > 0xFF00) & tf.not_equal(marker, 0xFF00 + _START_OF_SCAN) & ~is_exif(place)

    def following(place: tf.Tensor) -> tf.Tensor:
        return place + 2 + at(place + 2, 2, tf.constant(False))

    (segment,) = tf.while_loop(is_other, lambda place: (following(place),), [tf.constant(2)])
    start = segment + 10
    little = tf.equal(at(start, 2, tf.constant(True)), 0x4949)
    directory = start + at(start + 4, 4, little)
    count = at(directory, 2, little)

    def is_another(entry: tf.Tensor) -> tf.Tensor:
        return (entry < count) & tf.not_equal(at(directory + 2 + 12 * entry, 2, little), _ORIENTATION)

    (entry,) = tf.while_loop(is_another, lambda entry: (entry + 1,), [tf.constant(0)])
    found = at(directory + 2 + 12 * entry + 8, 2, little)
    return tf.where(is_exif(segment) & (entry < count), found, 1)


def _turned(image: tf.Tensor, orientation: tf.Tensor) -> tf.Tensor:
    """Applies an EXIF orientation to an image."""

    def if_one_of(numbers: tuple[int, ...], image: tf.Tensor, change: Callable[[tf.Tensor], tf.Tensor]) -> tf.Tensor:
        return tf.cond(tf.reduce_any(tf.equal(orientation, numbers)), lambda: change(image), lambda: image)

    image = if_one_of((5, 6, 7, 8), image, lambda each: tf.transpose(each, [1, 0, 2]))
    image = if_one_of((2, 3, 6, 7), image, lambda each: each[:, ::-1])
    return if_one_of((3, 4, 7, 8), image, lambda each: each[::-1])
