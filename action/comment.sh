#!/usr/bin/env bash
# Keeps one comment on a pull request up to date: a line that is not shown tells it from others.
# Environment: GH_TOKEN, MARKDOWN, NAME, PULL_REQUEST, and the runner's own.
set -euo pipefail

if ! [[ "$PULL_REQUEST" =~ ^[0-9]+$ ]]; then
    echo "This is no pull request, so there is nothing to comment on."
    exit 0
fi

if ! command -v gh >/dev/null; then
    echo "::warning::The report could not be added as a comment: \`gh\` is not installed on this runner (https://cli.github.com). It is in the summary and in the artifact."
    exit 0
fi

export MARKER="<!-- pyprof-advise: $NAME -->"
body="$RUNNER_TEMP/pyprof-advise-comment.md"
{
    echo "$MARKER"
    echo
    cat "$MARKDOWN"
} >"$body"

comments="repos/$GITHUB_REPOSITORY/issues/$PULL_REQUEST/comments"
mine='.[] | select(.body | startswith(env.MARKER)) | .id'
ids="$(gh api --paginate "$comments?per_page=100" --jq "$mine" || true)"
# Anyone can write a comment that begins like ours; only our own can be changed.
for id in $ids; do
    if gh api --silent --method PATCH "repos/$GITHUB_REPOSITORY/issues/comments/$id" \
        -F "body=@$body"; then
        exit 0
    fi
done
if ! gh api --silent --method POST "$comments" -F "body=@$body"; then
    # Pull requests from forks get a token that can only read.
    echo "::warning::The report could not be added as a comment: the job needs \`pull-requests: write\`, and pull requests from forks do not get it. It is in the summary and in the artifact."
fi
