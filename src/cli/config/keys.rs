//! The keys of the configuration, for the reader, `--dump-config` and the JSON Schema.

use std::str::FromStr;

use ::toml::de::DeValue;

use crate::base::date::{self, Date};
use crate::base::schema::{self, Json, Key, Shape, check_value, keys, object, text};
use crate::base::toml::Item;
use crate::cli::args::{Color, FailOn};
use crate::formats::FORMATS;

/// Maximum of `top`.
pub(super) const MAX_TOP: i64 = 100_000;
/// Minimum and maximum of `max-chars`.
pub(super) const CHARS: (i64, i64) = (500, u32::MAX as i64);
/// Maximum length of a name, path or reason.
pub(super) const MAX_TEXT: usize = 2_000;
/// Maximum length of a list.
pub(super) const MAX_LIST: usize = 1_000;

const TEXT: Shape = Shape::Text(1, MAX_TEXT);
const TEXTS: Shape = Shape::List(&TEXT, MAX_LIST);
const SETTING: Shape = Shape::Either(&[
    Shape::Number,
    Shape::Flag,
    Shape::Text(0, MAX_TEXT),
    Shape::List(&Shape::Text(0, MAX_TEXT), MAX_LIST),
]);

/// The parameters of one rule.
const THRESHOLDS: Shape = Shape::Map(None, &SETTING, MAX_LIST);
/// Every key, in the order in which they are written. A key is the option of its name.
pub(super) const KEYS: &[Key] = keys! {
    /// the GPU: a name from `gpus list`, or a TOML file of your own
    "gpu": TEXT,
    /// rule files or folders of them, besides the built-in ones
    "rules": TEXTS,
    /// evaluate only these rules: ids, categories or patterns such as `precision/*`
    "select": TEXTS,
    /// do not evaluate these rules: ids, categories or patterns
    "ignore": TEXTS,
    /// TOML files with FLOPs and bytes of your own operators
    "costs": TEXTS,
    /// TOML files that say what functions of your own or of other libraries do on the host
    "classes": TEXTS,
    /// findings shown in full; the rest is folded
    "top": Shape::Whole(0, MAX_TOP),
    /// output format; without it the ending of `output` decides, else it is `text` on a terminal
    /// and `markdown` elsewhere
    "format": Shape::Word(|| FORMATS.iter().map(|format| format.name).collect()),
    /// render the report with this minijinja template instead
    "template": TEXT,
    /// quote the code around the source lines of findings, from `.py` files of this folder only
    "source": TEXT,
    /// write the report to this file instead of standard output
    "output": TEXT,
    /// Markdown of at most this many characters
    "max-chars": Shape::Whole(CHARS.0, CHARS.1),
    /// Markdown that fits a comment on GitHub
    "for-pr": Shape::Flag,
    /// exit with status 1 when the report has a finding of this severity or above (`note`,
    /// `warning`, `error`), or when the estimated saving reaches a threshold (`saving=5%`)
    "fail-on": Shape::List(&Shape::Own(fail_on_schema, fail_on), MAX_LIST),
    /// show and count only findings that this report, written with `--format json`, does not have
    "baseline": TEXT,
    /// no progress and no warnings
    "quiet": Shape::Flag,
    /// print more messages
    "verbose": Shape::Flag,
    /// colors: `auto`, `always` or `never`
    "color": Shape::Word(|| Color::ALL.map(|(_, word)| word).into()),
    /// thresholds, a table per rule: `"precision/amp-off".min_share = 0.1`
    "set": Shape::Map(None, &Shape::Own(|| schema::of(&THRESHOLDS), thresholds), MAX_LIST),
    /// findings to hide
    "suppress": Shape::Tables(SUPPRESS_KEYS, &[], 0, MAX_LIST),
};

/// Every key of a `[[suppress]]`.
pub(super) const SUPPRESS_KEYS: &[Key] = keys! {
    /// an id, a category, or a pattern such as `precision/*`
    required "rule": TEXT,
    /// the place as reports show it (`lm_head · aten::mm (fprop) and 1 more place`), or a layer; `*` matches anything:
    /// `head.*`. A layer or pattern must match all places of a finding. Without it: everywhere
    "place": TEXT,
    /// why; the report prints it
    required "reason": TEXT,
    /// the last day on which it applies, in UTC: `2026-12-31`. After it, the finding is shown again and the report says why
    "until": Shape::Own(day_schema, is_day),
};

fn fail_on_schema() -> Json {
    object([
        ("type", text("string")),
        ("pattern", text("^(note|warning|error|saving=[0-9.]+%)$")),
    ])
}

fn fail_on(value: &Item<'_>) -> bool {
    let Some(gate) = value.str() else {
        return false;
    };
    let parsed = FailOn::from_str(gate.value);
    if let Err(why) = &parsed {
        value.complain(format!("`fail-on` cannot be `{}`", gate.value), why);
    }
    parsed.is_ok()
}

fn thresholds(value: &Item<'_>) -> bool {
    if matches!(value.raw(), DeValue::Table(_)) {
        return check_value(&THRESHOLDS, value);
    }
    let path = value.path();
    let title = format!("`{path}` must be a table of thresholds");
    let key = path.strip_prefix("set.").unwrap_or_default();
    let rule = key.rsplit_once('.').map_or(key, |(rule, _)| rule);
    value.complain(title, format!("as in `\"{rule}\".min_share = 0.1`"));
    false
}

fn day_schema() -> Json {
    object([
        ("type", text("string")),
        ("pattern", text("^[0-9]{4}-[0-9]{2}-[0-9]{2}$")),
    ])
}

fn is_day(value: &Item<'_>) -> bool {
    let fits = day(value).is_some();
    if !fits {
        value.wrong_type::<()>("a day such as 2026-12-31");
    }
    fits
}

/// A day as a TOML date or a string.
pub(super) fn day(value: &Item<'_>) -> Option<Date> {
    match value.raw() {
        DeValue::Datetime(when) if when.time.is_none() && when.offset.is_none() => when.date,
        DeValue::String(text) => date::parse(text),
        _ => None,
    }
}

/// The JSON Schema of the configuration.
pub(crate) fn schema() -> String {
    let about =
        "Options of pyprof-advise, read with --config FILE. Paths are relative to the file.";
    schema::document("pyprof-advise configuration", about, KEYS, &[])
}
