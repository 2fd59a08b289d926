"""Values in the formats of schema registries, as columns and back: Avro, Protobuf and JSON Schema.

`columns` has what people call, `codecs` what workers do; one module for each format below them.
"""
