#!/usr/bin/env bash
# Installs pyprof-advise for the steps that follow.
#   install.sh key       writes `key`, which names what will be installed, for the cache
#   install.sh install   downloads or builds it unless the cache had it, and puts it on the PATH
# Environment: ACTION_PATH, ACTION_REPOSITORY, ACTION_REF and VERSION (may be empty), and the runner's own.
set -euo pipefail

if [ -n "$VERSION" ] && ! [[ "$VERSION" =~ ^[0-9]+\.[0-9]+\.[0-9]+([.+-][0-9A-Za-z.+-]+)?$ ]]; then
    echo "::error::version: expected a version such as 0.1.0" >&2
    exit 2
fi

# What the program is made of; the same files give the same program.
sources() {
    cd "$ACTION_PATH"
    find Cargo.toml Cargo.lock build.rs src rules gpu_specs docs/schema evidence/results.json \
        python/pyprof_advise -type f -print0 |
        LC_ALL=C sort -z | xargs -0 cat | git hash-object --stdin
}

# The name of this machine in the files of a release; none for others.
target() {
    case "${RUNNER_OS:-}-${RUNNER_ARCH:-}" in
    Linux-X64) echo x86_64-unknown-linux-gnu ;;
    Linux-ARM64) echo aarch64-unknown-linux-gnu ;;
    macOS-ARM64) echo aarch64-apple-darwin ;;
    macOS-X64) echo x86_64-apple-darwin ;;
    Windows-X64) echo x86_64-pc-windows-msvc ;;
    esac
}

# download VERSION: takes the program from the release. Fails if there is none, or if it is not the one that
# the release lists.
download() {
    local target file from
    target="$(target)"
    [ -n "$target" ] || return 1
    file="pyprof-advise-$target.tar.gz"
    from="${RELEASES:-https://github.com/$ACTION_REPOSITORY/releases/download}/v$1"
    local scratch="$RUNNER_TEMP/pyprof-advise-download"
    mkdir -p "$scratch" "$root/bin"
    curl --fail --silent --show-error --location --retry 3 --output "$scratch/$file" "$from/$file" || return 1
    curl --fail --silent --show-error --location --retry 3 --output "$scratch/SHA256SUMS" \
        "$from/SHA256SUMS" || return 1
    local sum=(sha256sum)
    command -v sha256sum >/dev/null || sum=(shasum -a 256)
    if ! (cd "$scratch" && grep -E " [ *]$file\$" SHA256SUMS | "${sum[@]}" --check --status); then
        echo "::error::$file is not the file that the release lists" >&2
        exit 2
    fi
    # Who built it: only `gh` can check that.
    if [ -n "${GH_TOKEN:-}" ] && [ -z "${RELEASES:-}" ] && gh attestation --help >/dev/null 2>&1; then
        gh attestation verify "$scratch/$file" --repo "$ACTION_REPOSITORY" || {
            echo "::error::the attestation of $file is missing or wrong" >&2
            exit 2
        }
    fi
    tar -xzf "$scratch/$file" -C "$root/bin"
}

root="$RUNNER_TEMP/pyprof-advise"
released="$VERSION"
if [ -z "$released" ] && [[ "$ACTION_REF" =~ ^v([0-9]+\.[0-9]+\.[0-9]+.*)$ ]]; then
    released="${BASH_REMATCH[1]}"
fi
case "$1" in
key)
    if [ -n "$VERSION" ]; then key="$VERSION"; else key="$(sources)"; fi
    echo "key=$key" >>"$GITHUB_OUTPUT"
    ;;
install)
    if [ ! -x "$root/bin/pyprof-advise" ] && [ -n "$released" ] && download "$released"; then
        echo "pyprof-advise $released was downloaded"
    elif [ ! -x "$root/bin/pyprof-advise" ]; then
        if [ -n "$released" ]; then
            echo "::notice::There is no program for this machine in release $released: it is built"
        fi
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
