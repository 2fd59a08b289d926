#!/usr/bin/env bash
# Whether the Java that Spark needs is here: succeeds for 17 or later, on the path or in JAVA_HOME.
# With --package it prints the name of the Debian or Ubuntu package that has one.
set -euo pipefail

if [ "${1:-}" = "--package" ]; then
    # The default of older releases is too old; newer releases have no 17 any more.
    apt-cache show openjdk-17-jre-headless >/dev/null 2>&1 && echo openjdk-17-jre-headless || echo default-jre-headless
    exit 0
fi

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
command -v "$java" >/dev/null || java=java
command -v "$java" >/dev/null || exit 1
# version "17.0.15", version "21", version "1.8.0_402"
found=$("$java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -n 1)
[ "${found:-0}" -ge 17 ]
