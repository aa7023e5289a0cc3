"""What a convolution looks like."""

from typing import Any, NamedTuple


class Geometry(NamedTuple):
    """What a convolution looks like, per spatial axis.

    Attributes:
      image: sizes of x.
      window: sizes of K.
      strides: of the window.
      padding: (low, high).
      inside: dilation of x, 1 for none.
      dilation: of K, 1 for none.
      precision: of the products.
    """

    image: tuple
    window: tuple
    strides: tuple
    padding: tuple
    inside: tuple
    dilation: tuple
    precision: Any
