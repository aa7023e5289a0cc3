"""Convolution and pooling that stay fast inside compiled loops and under vmap over clients."""

from fedwin.models.convolution.conv import Conv, conv_general_dilated
from fedwin.models.convolution.lowering import lower_convolutions
from fedwin.models.convolution.pooling import avg_pool, global_avg_pool, max_pool

__all__ = ["Conv", "avg_pool", "conv_general_dilated", "global_avg_pool", "lower_convolutions", "max_pool"]
