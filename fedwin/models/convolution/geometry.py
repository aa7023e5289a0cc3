"""What a convolution looks like."""

from typing import Any, NamedTuple


def crops(padding) -> bool:
    """Whether anything is cut off instead of added."""
    return any(edge < 0 for edges in padding for edge in edges)


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

    @property
    def out(self) -> tuple:
        """Sizes of y."""
        return tuple(
            ((n - 1) * a + 1 + low + high - (k - 1) * d - 1) // s + 1
            for n, k, s, (low, high), a, d in zip(
                self.image, self.window, self.strides, self.padding, self.inside, self.dilation, strict=True
            )
        )

    @property
    def turned_padding(self) -> tuple:
        """(low, high) of the cotangent, spread out by the strides, under the kernel turned around: that gives dx."""
        return tuple(
            ((k - 1) * d - low, low + (n - 1) * a - (out - 1) * s)
            for n, out, k, s, a, d, (low, _) in zip(
                self.image, self.out, self.window, self.strides, self.inside, self.dilation, self.padding, strict=True
            )
        )
