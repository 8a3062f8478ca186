//! The report as one HTML file that loads nothing from the network.
//!
//! The main content is markup and needs no script. A script of the page draws the table of all work,
//! the roofline and the timeline from embedded data: columns of numbers and a table of strings, so
//! that a hundred thousand sites take a few megabytes.

use indexmap::IndexSet;
use minijinja::value::Serde;
use minijinja::{Value, context};
use serde::Serialize;

use super::basis::{Basis, Whole};
use super::model::Report;
use super::rows::{DeviceRow, LaneRow, SiteRow, StepRow};
use super::template::{BuiltIn, page_values};
use super::user_template::TemplateError;
use super::{narrative, opening};
use crate::base::text;
use crate::base::units::ns_range;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Sites in the markup, for browsers without scripts.
const PLAIN_SITES: usize = 50;
/// Most lines of the roofline; GPUs have a dozen rates, many of them equal.
const MAX_CEILINGS: usize = 8;

/// Columns of the table of all work in order: name, and whether it holds numbers.
const COLUMNS: &[(&str, bool)] = &[
    ("Layer", false),
    ("Operator", false),
    ("Direction", false),
    ("Shapes", false),
    ("Calls", true),
    ("Time", true),
    ("Share", true),
    ("Slowdown", true),
    ("Bound by", false),
    ("Type", false),
    ("Tensor Core", false),
    ("FLOP/B", true),
    ("Kernel", false),
    ("Source", false),
    ("Findings", false),
];

/// The report as one HTML file.
///
/// # Errors
/// Only when the built-in template is wrong, which the tests exclude.
pub fn html(report: &Report) -> Result<String, TemplateError> {
    let page = context! {
        css => Value::from_safe_string(STYLE.to_owned()),
        script => Value::from_safe_string(SCRIPT.to_owned()),
        data => Value::from_safe_string(script_data(&Data::of(report))),
        columns => Value::from(Serde(COLUMNS)),
    };
    let few = Report {
        sites: report.sites.iter().take(PLAIN_SITES).cloned().collect(),
        ..report.clone()
    };
    let basis = Basis::of(&report.summary);
    let values = context! {
        page,
        potential => Value::from(Serde(Potential::of(report, &basis))),
        ..page_values(report, &basis, &few)
    };
    BuiltIn::new("page.html", PAGE)?.render(values)
}

/// What all findings together save, for a tile.
#[derive(Debug, Serialize)]
struct Potential {
    amount: String,
    what: String,
}

impl Potential {
    fn of(report: &Report, basis: &Basis) -> Potential {
        let all = opening::together(report.findings.iter(), basis);
        let Some(all) = all else {
            let what = match report.findings.len() {
                0 => "no findings",
                _ => "see the findings",
            };
            return Potential {
                amount: "-".to_owned(),
                what: what.to_owned(),
            };
        };
        let what = match (all.whole, basis.per) {
            (Whole::Wall, "") => "of the window".to_owned(),
            (Whole::Wall, _) => "of each step".to_owned(),
            (Whole::Busy, _) => basis.of_gpu_time(),
        };
        Potential {
            amount: ns_range(all.low_ns, all.high_ns),
            what,
        }
    }
}

/// A page of Markdown without charts and scripts.
pub(crate) fn page(title: &str, markdown: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n</html>\n",
        text::html(title),
        super::markdown_text::html(markdown)
    )
}

/// JSON for a `<script>` element, in which nothing can end the element or start a comment.
fn script_data(data: &Data) -> String {
    // Serializing fails only for maps whose keys are not strings.
    let json = serde_json::to_string(data).unwrap_or_default();
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            _ => out.push(c),
        }
    }
    out
}

/// The data of the script. Strings are indices into `strings`; -1 is none.
#[derive(Debug, Serialize)]
struct Data {
    strings: Vec<String>,
    sites: Sites,
    /// Highest first.
    ceilings: Vec<Line>,
    /// Bytes per second; 0 when no GPU is known.
    bandwidth: f64,
    /// Number that totals are divided by for display.
    divisor: f64,
    timeline: Times,
}

/// The table of sites: one vector per column, one entry per site.
#[derive(Debug, Default, Serialize)]
struct Sites {
    layer: Vec<i64>,
    pattern: Vec<i64>,
    operator: Vec<i64>,
    direction: Vec<i64>,
    arguments: Vec<i64>,
    bound: Vec<i64>,
    dtype: Vec<i64>,
    kernel: Vec<i64>,
    source: Vec<i64>,
    family: Vec<i64>,
    calls: Vec<u64>,
    time: Vec<i64>,
    share: Vec<f64>,
    slowdown: Vec<Option<f64>>,
    intensity: Vec<Option<f64>>,
    flops: Vec<Option<f64>>,
    bytes: Vec<Option<f64>>,
    tensor_core: Vec<Option<bool>>,
    findings: Vec<Vec<u64>>,
}

/// A horizontal line of the roofline.
#[derive(Debug, Serialize)]
struct Line {
    name: String,
    flops_per_s: f64,
}

#[derive(Debug, Serialize)]
struct Times {
    ns: i64,
    /// Whether idle time is unreliable in this capture.
    doubted: bool,
    devices: Vec<DeviceRow>,
    lanes: Vec<LaneRow>,
    steps: Vec<StepRow>,
}

impl Data {
    fn of(report: &Report) -> Data {
        let mut strings = Strings::default();
        let mut sites = Sites::default();
        for site in &report.sites {
            sites.push(site, &mut strings);
        }
        let timeline = &report.timeline;
        Data {
            strings: strings.0.into_iter().collect(),
            sites,
            ceilings: ceilings(report),
            bandwidth: report
                .method
                .gpu
                .as_ref()
                .map_or(0.0, |g| g.bandwidth_bytes_per_s),
            divisor: Basis::of(&report.summary).divisor,
            timeline: Times {
                ns: timeline.ns,
                lanes: timeline.lanes.iter().map(lane).collect(),
                doubted: report.summary.idle_unreliable.is_some(),
                devices: timeline.devices.iter().map(device).collect(),
                steps: timeline.steps.clone(),
            },
        }
    }
}

impl Sites {
    fn push(&mut self, s: &SiteRow, strings: &mut Strings) {
        self.layer.push(strings.id(s.layer.as_deref()));
        self.pattern.push(strings.id(s.pattern.as_deref()));
        self.operator.push(strings.id(s.operator.as_deref()));
        self.direction.push(strings.id(Some(&s.direction)));
        self.arguments.push(strings.id(Some(&s.arguments)));
        self.bound.push(strings.id(s.bound.as_deref()));
        self.dtype.push(strings.id(s.dtype.as_deref()));
        self.kernel.push(strings.id(s.kernel.as_deref()));
        self.source.push(strings.id(s.source_line.as_deref()));
        self.family.push(strings.id(Some(&s.family)));
        self.calls.push(s.calls);
        self.time.push(s.time_ns);
        self.share.push(rounded(s.share));
        self.slowdown.push(s.slowdown.map(rounded));
        self.intensity.push(s.intensity.map(rounded));
        self.flops.push(s.flops);
        self.bytes.push(s.bytes);
        self.tensor_core.push(s.tensor_core);
        self.findings.push(s.findings.clone());
    }
}

/// Rounded to six digits, which is more than is printed and halves the size of the page.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// Distinct strings, escaped for display.
#[derive(Debug, Default)]
struct Strings(IndexSet<String>);

impl Strings {
    fn id(&mut self, text: Option<&str>) -> i64 {
        let Some(text) = text.filter(|t| !t.is_empty()) else {
            return -1;
        };
        let (id, _) = self.0.insert_full(text::plain(text));
        i64::try_from(id).unwrap_or(-1)
    }
}

fn lane(lane: &LaneRow) -> LaneRow {
    LaneRow {
        name: text::plain(&lane.name),
        ..lane.clone()
    }
}

fn device(device: &DeviceRow) -> DeviceRow {
    let mut device = device.clone();
    for gap in &mut device.gaps {
        narrative::cause(&gap.cause).clone_into(&mut gap.cause);
        for name in [
            &mut gap.next_kernel,
            &mut gap.call,
            &mut gap.inside,
            &mut gap.before,
        ] {
            *name = name.as_deref().map(text::plain);
        }
        for activity in &mut gap.host {
            activity.activity = text::plain(&activity.activity);
            activity.name = text::plain(&activity.name);
        }
    }
    device
}

/// The rates of the GPU, equal ones on one line: `fp16, bf16 Tensor Core`.
fn ceilings(report: &Report) -> Vec<Line> {
    let mut lines: Vec<(Vec<&str>, bool, f64)> = Vec::new();
    let all = report.method.gpu.iter().flat_map(|g| &g.ceilings);
    for c in all.filter(|c| c.flops_per_s > 0.0) {
        match lines.last_mut() {
            Some((names, tensor_core, rate))
                if *tensor_core == c.tensor_core && *rate == c.flops_per_s =>
            {
                names.push(&c.dtype);
            }
            _ => lines.push((vec![&c.dtype], c.tensor_core, c.flops_per_s)),
        }
    }
    // Integer rates are not FLOPs and would stretch the axis.
    lines.retain(|(names, ..)| !names.iter().all(|name| name.contains("int")));
    lines.truncate(MAX_CEILINGS);
    lines
        .into_iter()
        .map(|(names, tensor_core, flops_per_s)| Line {
            name: format!(
                "{}{}",
                names.join(", "),
                if tensor_core { " Tensor Core" } else { "" }
            ),
            flops_per_s,
        })
        .collect()
}
