//! A report full of hostile text, with checks for every format: names of kernels, ranges, layers, files
//! and devices are just text. The fuzz target `views` uses the same checks.

use pyprof_advise::base::text::{md, md_code};
use pyprof_advise::compare::diff::diff;
use pyprof_advise::formats::{FORMATS, Media, RenderOptions};
use pyprof_advise::report::{Report, json, read_json};
use serde_json::Value;

use super::check;

/// Text that is hostile to every format.
pub(super) const EVIL: &str = "|x|`a``b` **b** </script><script>document.documentElement.dataset.pwned=1</script>\
    <img src=x onerror=\"document.documentElement.dataset.pwned=1\"> <!-- --!> ]]> \
    [l](javascript:alert(1)) ![i](http://e.vil/i) @octocat @org/team #1 www.e.vil http://e.vil \u{1b}[31m\u{9b}31m \
    \u{202e}\u{2066}\u{200b}\0 %%{init: {}}%% \"]; click x ``` ~~~ $$m$$ [^1] &lt;b&gt; {{ 7*7 }} {% raw %} {0} ::error::x \
    ##[command]x %0A::error::y\n\n# h\n- [ ] t\r\n::stop-commands::x /home/alice/z' onload=1 //e.vil javascript:x:1";

/// Words of the program, which a profile cannot choose, and references, which rules choose.
const OURS: &[&str] = &[
    "dtype",
    "missing",
    "reason",
    "what",
    "cause",
    "category",
    "program",
    "severity",
    "confidence",
    "kind",
    "source",
    "calls_unit",
    "device",
    "references",
    "cost_unknown",
    "sources",
];
/// Fields with Markdown of rules, in which the profile's text is escaped.
const PROSE: &[&str] = &["message", "why", "fix", "needs", "text"];

/// The report with `evil` in every place where text of a profile can be.
pub(super) fn poisoned(report: &Report, evil: &str) -> Report {
    let mut value: Value = serde_json::from_str(&json(report)).unwrap();
    poison(&mut value, "", evil);
    serde_json::from_value(value).unwrap()
}

fn poison(value: &mut Value, key: &str, evil: &str) {
    match value {
        Value::String(_) if OURS.contains(&key) => {}
        Value::String(text) if PROSE.contains(&key) => {
            *text = format!("Before {} and {} after.", md(evil), md_code(evil));
        }
        Value::String(text) => evil.clone_into(text),
        Value::Array(items) => items.iter_mut().for_each(|item| poison(item, key, evil)),
        Value::Object(object) => {
            for (key, value) in object.iter_mut() {
                poison(value, key, evil);
            }
        }
        _ => {}
    }
}

/// A report reduced to an entry in every list.
pub(super) fn small(mut report: Report) -> Report {
    report.findings.truncate(2);
    report.layers.truncate(3);
    report.sites.truncate(3);
    report.capture.truncate(1);
    for device in &mut report.timeline.devices {
        device.gaps.truncate(2);
        device.busy.truncate(4);
    }
    report.timeline.devices.truncate(1);
    report.notes.push(String::new());
    report
}

/// Checks every format of a report and of a comparison by the rules of the programs that read it.
pub(super) fn check_all(report: &Report) {
    let mut slower = report.clone();
    for site in &mut slower.sites {
        site.time_ns = site.time_ns.saturating_mul(2);
    }
    let comparison = diff(report, &slower);
    for format in FORMATS {
        let limits = [None, Some(2_000)];
        let limits = limits.iter().take(1 + usize::from(format.can_shorten));
        for &max_chars in limits {
            let options = RenderOptions {
                width: 80,
                max_chars,
            };
            let text = (format.report)(report, &options).unwrap();
            check_report(format.media, &text, "hostile");
        }
        if let Some(render) = format.diff {
            check_comparison(format.media, &render(&comparison).unwrap());
        }
    }
    assert!(read_json(&json(report)).unwrap() == *report);
}

/// Checks a report by the rules of the programs that read it.
pub(super) fn check_report(media: Media, text: &str, name: &str) {
    match media {
        Media::Markdown => no_foreign_links(&check::markdown(text).links),
        Media::Html => check::html(text),
        Media::Terminal => {
            check::shown(text, &['\n', '\u{1b}']);
            check::shown(&anstream::adapter::strip_str(text).to_string(), &['\n']);
        }
        Media::Json => drop(serde_json::from_str::<Value>(text).unwrap()),
        Media::Sarif => check_sarif(text),
        Media::WorkflowCommands => check::commands(text, name),
    }
}

/// Checks a comparison by the rules of the programs that read it.
fn check_comparison(media: Media, text: &str) {
    match media {
        Media::Markdown => no_foreign_links(&check::markdown(text).links),
        Media::Html => check::page_without_script(text),
        Media::Json => drop(serde_json::from_str::<Value>(text).unwrap()),
        Media::Terminal | Media::Sarif | Media::WorkflowCommands => {
            panic!("no check of a comparison as {media:?}")
        }
    }
}

/// Checks that all links are to web pages, as those of rules are.
fn no_foreign_links(links: &[String]) {
    let bad = |link: &&String| link.contains("e.vil") || !link.starts_with("https://");
    let foreign: Vec<&String> = links.iter().filter(bad).collect();
    assert!(foreign.is_empty(), "{foreign:?}");
}

fn check_sarif(text: &str) {
    let log: Value = serde_json::from_str(text).unwrap();
    for result in log["runs"][0]["results"].as_array().unwrap() {
        let message = result["message"]["text"].as_str().unwrap();
        check::shown(message, &['\n']);
        assert!(
            !message.contains("](") && !message.contains("@octocat"),
            "{message}"
        );
        check::markdown(result["message"]["markdown"].as_str().unwrap());
        for location in result["locations"].as_array().unwrap() {
            let uri = location["physicalLocation"]["artifactLocation"]["uri"]
                .as_str()
                .unwrap();
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._~/%".contains(c);
            assert!(uri.chars().all(plain) && !uri.starts_with('/'), "{uri}");
        }
    }
}
