"""The session in threads other than the one that made it.

Spark finds sources that are written in Python through the session of the thread that starts a write, and in
other threads than the first there is none: a write there fails with DATA_SOURCE_NOT_FOUND. Programs that
write in parallel set it in each of their threads:

    with ThreadPoolExecutor(4, initializer=use_session, initargs=(spark,)) as threads:
        list(threads.map(load, files))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Make it the session of the calling thread, for as long as that lives.

    Nothing is to be done for a session of Spark Connect, whose server finds sources by itself.
    """
    jvm = getattr(spark, "_jvm", None)
    if jvm is not None:
        type(spark)._get_j_spark_session_class(jvm).setActiveSession(spark._jsparkSession)
