#!/usr/bin/env bash
# Reads the profiles once, writes the report in every shape, and leaves the verdict of the gates in
# the output `status` for the last step.
# Environment: PROFILE, GPU, FAIL_ON, BASELINE, CONFIG, ARGS, ANNOTATE, NAME, HEAD_REPOSITORY, and the runner's own.
set -euo pipefail

# A summary holds 1 MiB, and a character takes up to 4 bytes.
summary_chars=250000

if ! [[ "$NAME" =~ ^[0-9A-Za-z._-]{1,50}$ ]]; then
    echo "::error::name: expected letters, digits, dots and dashes, at most 50" >&2
    exit 2
fi

if [ "${RUNNER_ENVIRONMENT:-}" = self-hosted ] && [ -n "${HEAD_REPOSITORY:-}" ] &&
    [ "$HEAD_REPOSITORY" != "$GITHUB_REPOSITORY" ]; then
    echo "::warning::This job runs the code of a fork on a machine of yours. Add to the job: if: github.event.pull_request.head.repo.full_name == github.repository"
fi

profiles=()
while IFS= read -r line; do
    if [ -z "$line" ]; then continue; fi
    before=${#profiles[@]}
    while IFS= read -r file; do
        profiles+=("$file")
    done < <(compgen -G "$line" || true)
    # A pattern without a match, or a name the shell takes for one: let the program say so.
    if [ "${#profiles[@]}" -eq "$before" ]; then profiles+=("$line"); fi
done <<<"$PROFILE"
if [ "${#profiles[@]}" -eq 0 ]; then
    echo "::error::profile: no file is named" >&2
    exit 2
fi

folder="$RUNNER_TEMP/pyprof-advise-reports/$NAME"
mkdir -p "$folder"
json="$folder/report.json"
options=(--format json --output "$json")
if [ -n "$GPU" ]; then options+=(--gpu "$GPU"); fi
if [ -n "$FAIL_ON" ]; then options+=(--fail-on "$FAIL_ON"); fi
if [ -n "$CONFIG" ]; then options+=(--config "$CONFIG"); fi
if [ -n "$BASELINE" ]; then
    if [ -f "$BASELINE" ]; then
        options+=(--baseline "$BASELINE")
    else
        echo "::notice::There is no baseline $(basename -- "$BASELINE" | tr -cd '[:alnum:]._ -') yet: all findings count."
    fi
fi
while IFS= read -r line; do
    # `--rules mine.toml` on one line is an option and its value.
    if [[ "$line" =~ ^(-{1,2}[A-Za-z][A-Za-z-]*)[[:blank:]]+(.*[^[:blank:]])[[:blank:]]*$ ]]; then
        options+=("${BASH_REMATCH[1]}" "${BASH_REMATCH[2]}")
    elif [ -n "$line" ]; then
        options+=("$line")
    fi
done <<<"$ARGS"

# That of an earlier step of this name is not the report of this one.
rm -f -- "$json"
status=0
pyprof-advise "${options[@]}" -- "${profiles[@]}" || status=$?
# 0: written. 1: written, and a gate failed. 2: written without the profiles that could not be read, or not at all.
if [ ! -f "$json" ]; then
    if [ "$status" -eq 0 ]; then status=2; fi
    exit "$status"
fi

# The report as it was written, in another shape: what was asked for has been applied to it.
render() { pyprof-advise merge --config= "$@" -- "$json"; }

render --for-pr --output "$folder/report.md"
render --format html --output "$folder/report.html"
render --max-chars "$summary_chars" >>"$GITHUB_STEP_SUMMARY"
if [ "$ANNOTATE" = true ]; then render --format github; fi
{
    echo "status=$status"
    echo "folder=$folder"
    echo "json=$json"
    echo "markdown=$folder/report.md"
    echo "html=$folder/report.html"
} >>"$GITHUB_OUTPUT"
