"""With this folder on PYTHONPATH every process of a pipeline has batches of an eighth of the usual size.

So a test of values that do not fit into memory together needs an eighth of the values, and of the memory.
"""

from forebay.spark.arrow import batch_sizes
from forebay.spark.pipelines.archiving import source

SHARE = 8

batch_sizes.BATCH_BYTES //= SHARE
batch_sizes.bounded.__defaults__ = (batch_sizes.BATCH_BYTES,)
source.BATCH_BYTES //= SHARE
