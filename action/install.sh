#!/usr/bin/env bash
# Installs pyprof-advise for the steps that follow.
#   install.sh key       writes `key`, which names what will be installed, for the cache
#   install.sh install   builds it unless the cache had it, and puts it on the PATH
# Environment: ACTION_PATH, ACTION_REPOSITORY, VERSION (may be empty), and the runner's own.
set -euo pipefail

if [ -n "$VERSION" ] && ! [[ "$VERSION" =~ ^[0-9]+\.[0-9]+\.[0-9]+([.+-][0-9A-Za-z.+-]+)?$ ]]; then
    echo "::error::version: expected a version such as 0.1.0" >&2
    exit 2
fi

# What the program is made of; the same files give the same program.
sources() {
    cd "$ACTION_PATH"
    find Cargo.toml Cargo.lock build.rs src rules gpu_specs docs/schema -type f -print0 |
        LC_ALL=C sort -z | xargs -0 cat | git hash-object --stdin
}

root="$RUNNER_TEMP/pyprof-advise"
case "$1" in
key)
    if [ -n "$VERSION" ]; then key="$VERSION"; else key="$(sources)"; fi
    echo "key=$key" >>"$GITHUB_OUTPUT"
    ;;
install)
    if [ ! -x "$root/bin/pyprof-advise" ]; then
        if ! command -v cargo >/dev/null; then
            echo "::error::cargo is missing on this runner: https://rustup.rs" >&2
            exit 2
        fi
        if [ -n "$VERSION" ]; then
            cargo install --locked --root "$root" \
                --git "https://github.com/$ACTION_REPOSITORY" --tag "v$VERSION" pyprof-advise
        else
            cargo install --locked --root "$root" --path "$ACTION_PATH"
        fi
    fi
    echo "$root/bin" >>"$GITHUB_PATH"
    ;;
*)
    echo "usage: install.sh key|install" >&2
    exit 2
    ;;
esac
