//! The keys of the configuration: what the reader takes, `--dump-config` writes, and editors
//! complete.

use crate::base::schema::{self, Key, Shape, key};
use crate::cli::Color;
use crate::formats::FORMATS;

/// When to colour, with the words.
pub(super) const COLORS: [(Color, &str); 3] = [
    (Color::Auto, "auto"),
    (Color::Always, "always"),
    (Color::Never, "never"),
];

/// Most findings that can be asked for in full.
pub(super) const MAX_TOP: i64 = 100_000;
/// Least and most characters of a report.
pub(super) const CHARS: (i64, i64) = (500, u32::MAX as i64);
/// Longest name, path or reason.
pub(super) const MAX_TEXT: usize = 2_000;
/// Longest list.
pub(super) const MAX_LIST: usize = 1_000;

const TEXT: Shape = Shape::Text(1, MAX_TEXT);
const TEXTS: Shape = Shape::List(&TEXT, MAX_LIST);
const SETTING: Shape = Shape::Either(&[
    Shape::Number,
    Shape::Flag,
    Shape::Text(0, MAX_TEXT),
    Shape::List(&Shape::Text(0, MAX_TEXT), MAX_LIST),
]);

/// Every key, in the order in which they are written. A key is the option of its name.
pub(super) const KEYS: &[Key] = &[
    key(
        "gpu",
        false,
        "the GPU: a name from `gpus list`, or a TOML file of your own",
        TEXT,
    ),
    key(
        "rules",
        false,
        "rule files or folders of them, besides the built-in ones",
        TEXTS,
    ),
    key(
        "select",
        false,
        "run only these rules: ids, categories or patterns such as `precision/*`",
        TEXTS,
    ),
    key(
        "ignore",
        false,
        "do not run these rules: ids, categories or patterns",
        TEXTS,
    ),
    key(
        "costs",
        false,
        "TOML files with FLOPs and bytes of your own operators",
        TEXTS,
    ),
    key(
        "top",
        false,
        "findings shown in full; the rest is folded",
        Shape::Whole(0, MAX_TOP),
    ),
    key(
        "format",
        false,
        "output format; without it the ending of `output` decides, else it is `text` on a terminal and \
         `markdown` elsewhere",
        Shape::Word(|| FORMATS.iter().map(|format| format.name).collect()),
    ),
    key(
        "template",
        false,
        "render the report with this minijinja template instead",
        TEXT,
    ),
    key(
        "output",
        false,
        "write the report to this file instead of standard output",
        TEXT,
    ),
    key(
        "max-chars",
        false,
        "Markdown of at most so many characters",
        Shape::Whole(CHARS.0, CHARS.1),
    ),
    key(
        "for-pr",
        false,
        "Markdown that fits a comment on GitHub",
        Shape::Flag,
    ),
    key(
        "fail-on",
        false,
        "exit with status 1 when the report has a finding of this severity or above (`note`, \
         `warning`, `error`), or gives back so much (`saving=5%`)",
        Shape::List(
            &Shape::Form("^(note|warning|error|saving=[0-9.]+%)$"),
            MAX_LIST,
        ),
    ),
    key(
        "baseline",
        false,
        "show and count only what this report does not have: one written with `--format json`",
        TEXT,
    ),
    key("quiet", false, "no progress and no warnings", Shape::Flag),
    key("verbose", false, "say more", Shape::Flag),
    key(
        "color",
        false,
        "colours: `auto`, `always` or `never`",
        Shape::Word(|| COLORS.map(|(_, word)| word).into()),
    ),
    key(
        "set",
        false,
        "thresholds, a table per rule: `\"precision/amp-off\".min_share = 0.1`",
        Shape::Map("", &Shape::Map("", &SETTING)),
    ),
    key(
        "suppress",
        false,
        "findings you have looked at and decided to live with",
        Shape::Tables(SUPPRESS_KEYS, &[], 0),
    ),
];

/// Every key of a `[[suppress]]`.
pub(super) const SUPPRESS_KEYS: &[Key] = &[
    key(
        "rule",
        true,
        "the rule: an id, a category or a pattern such as `precision/*`",
        TEXT,
    ),
    key(
        "place",
        false,
        "where, as reports show it, or the layer alone; `*` stands for anything: `head.*`. A finding \
         in several places is suppressed when all of them match",
        TEXT,
    ),
    key("reason", true, "why; the report prints it", TEXT),
    key(
        "until",
        false,
        "the last day it holds: `2026-12-31`",
        Shape::Form("^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
    ),
];

/// The JSON Schema of the configuration.
pub(in crate::cli) fn schema() -> String {
    let about =
        "Options of pyprof-advise, read with --config FILE. Paths are relative to the file.";
    schema::document("pyprof-advise configuration", about, KEYS, &[])
}
