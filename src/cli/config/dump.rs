//! Writes options as a configuration file that reads back equal, every key with its description.

use std::fmt::Write as _;
use std::path::Path;

use super::keys::KEYS;
use super::options::Config;
use crate::base::toml::quoted;
use crate::cli::args::VARIABLE;

/// Examples for keys without a value, written as comments.
const EXAMPLES: &[(&str, &str)] = &[
    ("gpu", "\"a100\""),
    ("rules", "[\"my-rules/\"]"),
    ("select", "[\"precision\", \"host/*\"]"),
    ("ignore", "[\"precision/tf32-off\"]"),
    ("costs", "[\"my-costs.toml\"]"),
    ("classes", "[\"my-classes.toml\"]"),
    ("format", "\"markdown\""),
    ("template", "\"advice.md.jinja\""),
    ("source", "\".\""),
    ("output", "\"advice.md\""),
    ("max-chars", "20000"),
    ("for-pr", "true"),
    ("fail-on", "[\"error\", \"saving=5%\"]"),
    ("baseline", "\"main.json\""),
];

const EXAMPLE_SET: &str = "\
# [set]
# \"precision/amp-off\".min_share = 0.1
";

const EXAMPLE_SUPPRESS: &str = "\
# [[suppress]]
# rule   = \"precision/*\"
# place  = \"head.*\"
# reason = \"fp32 on purpose: see the design note\"
# until  = 2026-12-31
";

/// The configuration as TOML.
pub(crate) fn dump(config: &Config) -> String {
    let mut out = format!(
        "# Options of pyprof-advise: `--config FILE`, or {VARIABLE}=FILE. No configuration\n\
         # file is loaded unless you name one. Command-line options take precedence. Paths are relative to\n\
         # this file: keep it in the folder it was written in. `pyprof-advise schema config` prints its JSON Schema.\n"
    );
    for key in KEYS {
        // Writing to a string cannot fail.
        let _ = write!(out, "\n# {}\n", key.doc);
        match key.name {
            "set" => out.push_str(&set(&config.rules.set)),
            "suppress" => out.push_str(&suppressions(config)),
            name => match value(config, name) {
                Some(value) => _ = writeln!(out, "{name} = {value}"),
                None => _ = writeln!(out, "# {name} = {}", example(name)),
            },
        }
    }
    out
}

fn example(name: &str) -> &'static str {
    let known = EXAMPLES.iter().find(|(key, _)| *key == name);
    known.map_or("false", |(_, example)| example)
}

fn value(config: &Config, key: &str) -> Option<String> {
    let paths = |list: &[std::path::PathBuf]| {
        let texts: Vec<String> = list.iter().map(|path| shown(path)).collect();
        texts_or_none(&texts)
    };
    let path = |path: &Option<std::path::PathBuf>| path.as_deref().map(|p| quoted(&shown(p)));
    let flag = |flag: bool| flag.then(|| "true".to_owned());
    let report = &config.report;
    match key {
        "gpu" => config.gpu.as_deref().map(quoted),
        "rules" => paths(&config.rules.paths),
        "select" => texts_or_none(&config.rules.select),
        "ignore" => texts_or_none(&config.rules.ignore),
        "costs" => paths(&config.costs),
        "classes" => paths(&config.classes),
        "top" => report.top.map(|top| top.to_string()),
        "format" => report.format.map(|format| quoted(format.name)),
        "template" => path(&report.template),
        "source" => path(&report.source),
        "output" => path(&report.output),
        "max-chars" => report.max_chars.map(|chars| chars.to_string()),
        "for-pr" => flag(report.for_pr),
        "fail-on" => {
            let gates = config.gates.fail_on.iter();
            texts_or_none(&gates.map(ToString::to_string).collect::<Vec<_>>())
        }
        "baseline" => path(&config.gates.baseline),
        "quiet" => flag(config.console.quiet),
        "verbose" => flag(config.console.verbose),
        "color" => config.console.color.map(|color| quoted(color.word())),
        _ => None,
    }
}

fn shown(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn texts_or_none(texts: &[String]) -> Option<String> {
    let quoted: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
    (!quoted.is_empty()).then(|| format!("[{}]", quoted.join(", ")))
}

/// Parameters, one per line. Text that parses as a TOML value is written as one, otherwise as a string:
/// `--set` does not distinguish them.
fn set(settings: &[String]) -> String {
    if settings.is_empty() {
        return EXAMPLE_SET.to_owned();
    }
    let mut lines: Vec<(&str, &str, String)> = Vec::new();
    for setting in settings {
        let Some((name, text)) = setting.split_once('=') else {
            continue;
        };
        let Some((rule, param)) = name.trim().rsplit_once('.') else {
            continue;
        };
        let text = text.trim();
        let is_value = toml::from_str::<toml::Table>(&format!("v = {text}"))
            .is_ok_and(|table| table.get("v").is_some_and(is_plain));
        let value = if is_value {
            text.to_owned()
        } else {
            quoted(text)
        };
        // The later of two values for one parameter applies, and a file can contain only one.
        lines.retain(|(r, p, _)| (*r, *p) != (rule, param));
        lines.push((rule, param, value));
    }
    let mut out = String::from("[set]\n");
    for (rule, param, value) in lines {
        let _ = writeln!(out, "{}.{} = {value}", quoted(rule), quoted(param));
    }
    out
}

fn is_plain(value: &toml::Value) -> bool {
    match value {
        toml::Value::Integer(_) | toml::Value::Float(_) | toml::Value::Boolean(_) => true,
        toml::Value::Array(items) => items.iter().all(toml::Value::is_str),
        _ => false,
    }
}

fn suppressions(config: &Config) -> String {
    let suppressions = &config.gates.suppressions;
    if suppressions.is_empty() {
        return EXAMPLE_SUPPRESS.to_owned();
    }
    let mut out = String::new();
    for (i, s) in suppressions.iter().enumerate() {
        let gap = if i > 0 { "\n" } else { "" };
        let _ = writeln!(out, "{gap}[[suppress]]\nrule   = {}", quoted(s.rule.text()));
        if let Some(place) = &s.place {
            let _ = writeln!(out, "place  = {}", quoted(place.text()));
        }
        let _ = writeln!(out, "reason = {}", quoted(&s.reason));
        if let Some(until) = s.until {
            let _ = writeln!(out, "until  = {until}");
        }
    }
    out
}
