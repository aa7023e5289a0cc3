"""Decodes tf.train.Example messages with protobuf; TensorFlow is not needed."""

import functools

import numpy as np

LISTS = (("bytes_list", "BytesList"), ("float_list", "FloatList"), ("int64_list", "Int64List"))


@functools.cache
def example_class():
    """Returns the message class of tensorflow/core/example/example.proto.

    Source: https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto.
    """
    # Imported on first use: only TensorFlow Federated's SQLite files need it.
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="example.proto", package="tensorflow", syntax="proto3")

    def add(message, name: str, number: int, kind: int, label: int = field.LABEL_OPTIONAL, **options) -> None:
        message.field.add(name=name, number=number, type=kind, label=label, **options)

    for (_, name), kind in zip(LISTS, (field.TYPE_BYTES, field.TYPE_FLOAT, field.TYPE_INT64), strict=True):
        add(file.message_type.add(name=name), "value", 1, kind, field.LABEL_REPEATED)
    feature = file.message_type.add(name="Feature")
    feature.oneof_decl.add(name="kind")
    for number, (name, message) in enumerate(LISTS, 1):
        add(feature, name, number, field.TYPE_MESSAGE, type_name=message, oneof_index=0)
    features = file.message_type.add(name="Features")
    entry = features.nested_type.add(name="FeatureEntry", options=descriptor_pb2.MessageOptions(map_entry=True))
    add(entry, "key", 1, field.TYPE_STRING)
    add(entry, "value", 2, field.TYPE_MESSAGE, type_name="Feature")
    add(features, "feature", 1, field.TYPE_MESSAGE, field.LABEL_REPEATED, type_name="FeatureEntry")
    add(file.message_type.add(name="Example"), "features", 1, field.TYPE_MESSAGE, type_name="Features")
    # A separate pool: TensorFlow registers the same names in the default one.
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


def parse(blob: bytes) -> dict[str, "np.ndarray | list[bytes]"]:
    """Decodes one serialized tf.train.Example.

    Args:
      blob: the serialized message.

    Returns:
      Feature name -> float32 or int64 array [n], or list of bytes; features without a value list are left out.

    Raises:
      ValueError: not such a message.
    """
    from google.protobuf.message import DecodeError

    try:
        features = example_class().FromString(blob).features.feature
    except DecodeError as error:
        raise ValueError("not a tf.train.Example, or a truncated one") from error
    dtypes = {"float_list": np.float32, "int64_list": np.int64}
    parsed: dict[str, np.ndarray | list[bytes]] = {}
    for name, feature in features.items():
        if kind := feature.WhichOneof("kind"):
            values = getattr(feature, kind).value
            parsed[name] = np.array(values, dtypes[kind]) if kind in dtypes else list(values)
    return parsed
