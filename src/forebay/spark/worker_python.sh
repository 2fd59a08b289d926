#!/bin/sh
# The Python that `session` gives Spark for workers on this machine, without Spark's archives on its path.
#
# Spark puts pyspark.zip in front of the path of every worker. Python keeps no compiled code of what it imports from
# an archive, so that each worker would compile PySpark anew, which is most of the time that it takes to start. This
# is used only where PySpark is installed, and then workers import that.
#
# Spark's daemon is started by worker_daemon.py, if that is given.
set -f
rest=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */pyspark.zip | */py4j-*.zip | */spark-core_*.jar) ;;
        *) rest=$rest:$entry ;;
    esac
done
PYTHONPATH=${rest#:}
export PYTHONPATH
if [ "$1 $2" = "-m pyspark.daemon" ] && [ -r "$PYSPARK_FOREBAY_DAEMON" ]; then
    shift 2
    exec "$PYSPARK_FOREBAY_PYTHON" -P "$PYSPARK_FOREBAY_DAEMON" "$@"
fi
exec "$PYSPARK_FOREBAY_PYTHON" "$@"
