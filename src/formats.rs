//! The output formats: one table that the command line, the configuration, the schemas, the
//! documentation and the tests of hostile text read.
//!
//! A new format is a module that renders a [`Report`], and an entry of [`FORMATS`].

use std::path::Path;

use crate::compare::diff::{self, Diff, Trend};
use crate::report::{self, Report, TemplateError};

/// An output format of reports, and perhaps of comparisons.
#[derive(Debug, Clone, Copy)]
pub struct OutputFormat {
    /// The word behind `--format`, and the value of `format` in a configuration.
    pub name: &'static str,
    /// What it is for, in one line.
    pub about: &'static str,
    /// Endings of file names that select it when no format is named, each with its dot.
    pub endings: &'static [&'static str],
    /// What programs take its text for.
    pub media: Media,
    /// Whether `--max-chars` can shorten it.
    pub can_shorten: bool,
    /// Whether it lists all sites; others need only the largest ones.
    pub lists_sites: bool,
    /// Renders a report.
    pub report: fn(&Report, &RenderOptions) -> Result<String, TemplateError>,
    /// Renders a comparison; `None` where `diff` does not have the format.
    pub diff: Option<DiffRenderer>,
    /// Renders a series of comparisons, in the formats that `diff` has.
    pub trend: Option<TrendRenderer>,
}

/// Renders a comparison.
pub type DiffRenderer = fn(&Diff) -> Result<String, TemplateError>;

/// Renders a series of comparisons.
pub type TrendRenderer = fn(&Trend) -> Result<String, TemplateError>;

/// What programs take a text for. Decides what text from a profile must not be able to do in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// Markdown as GitHub and GitLab render it.
    Markdown,
    /// A page for a browser.
    Html,
    /// Text for a terminal, with the escape sequences of colors.
    Terminal,
    /// JSON of our own schema.
    Json,
    /// SARIF 2.1.0.
    Sarif,
    /// Workflow commands of GitHub Actions.
    WorkflowCommands,
}

/// The room a report is rendered for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RenderOptions {
    /// Columns of the terminal.
    pub width: usize,
    /// Most characters of the text, where the format can be shortened; `None` is no limit.
    pub max_chars: Option<usize>,
}

impl Default for RenderOptions {
    fn default() -> RenderOptions {
        RenderOptions {
            width: 100,
            max_chars: None,
        }
    }
}

/// The format of files and pipes when none is named.
pub const MARKDOWN: OutputFormat = OutputFormat {
    name: "markdown",
    about: "For people and pull requests",
    endings: &[".md", ".markdown"],
    media: Media::Markdown,
    can_shorten: true,
    lists_sites: false,
    report: |report, options| match options.max_chars {
        Some(max_chars) => report::markdown_within(report, max_chars),
        None => report::markdown(report),
    },
    diff: Some(diff::markdown),
    trend: Some(diff::trend_markdown),
};

/// The format of terminals when none is named.
pub const TEXT: OutputFormat = OutputFormat {
    name: "text",
    about: "For the terminal",
    endings: &[".txt"],
    media: Media::Terminal,
    can_shorten: false,
    lists_sites: false,
    report: |report, options| Ok(report::text(report, options.width)),
    diff: None,
    trend: None,
};

/// All formats, in the order in which help lists them.
pub const FORMATS: &[OutputFormat] = &[
    MARKDOWN,
    OutputFormat {
        name: "html",
        about: "For people: one page with charts and tables, needs no network",
        endings: &[".html", ".htm"],
        media: Media::Html,
        can_shorten: false,
        lists_sites: true,
        report: |report, _| report::html(report),
        diff: Some(diff::html),
        trend: Some(diff::trend_html),
    },
    TEXT,
    OutputFormat {
        name: "json",
        about: "For programs: every number (`pyprof-advise schema` prints the JSON Schemas)",
        endings: &[".json"],
        media: Media::Json,
        can_shorten: false,
        lists_sites: true,
        report: |report, _| Ok(report::json(report)),
        diff: Some(|diff| Ok(diff::json(diff))),
        trend: Some(|trend| Ok(diff::trend_json(trend))),
    },
    OutputFormat {
        name: "sarif",
        about: "For code scanning: SARIF 2.1.0",
        endings: &[".sarif", ".sarif.json"],
        media: Media::Sarif,
        can_shorten: false,
        lists_sites: false,
        report: |report, _| Ok(report::sarif(report)),
        diff: None,
        trend: None,
    },
    OutputFormat {
        name: "github",
        about: "For GitHub Actions: annotations of the lines behind the findings",
        endings: &[],
        media: Media::WorkflowCommands,
        can_shorten: false,
        lists_sites: false,
        report: |report, _| Ok(report::github(report)),
        diff: None,
        trend: None,
    },
];

impl OutputFormat {
    /// The format of this name.
    pub fn named(name: &str) -> Option<OutputFormat> {
        FORMATS.iter().find(|f| f.name == name).copied()
    }

    /// The format whose ending the name of a file has, in any case; of several the longest counts.
    pub fn of_file(path: &Path) -> Option<OutputFormat> {
        let name = path.file_name()?.to_str()?.to_ascii_lowercase();
        let length = |f: &OutputFormat| {
            let matching = f.endings.iter().filter(|ending| name.ends_with(**ending));
            matching.map(|ending| ending.len()).max()
        };
        let known = FORMATS.iter().filter(|f| length(f).is_some());
        known.max_by_key(|f| length(f)).copied()
    }
}

/// Formats are the same when their names are.
impl PartialEq for OutputFormat {
    fn eq(&self, other: &OutputFormat) -> bool {
        self.name == other.name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_endings_select_one_format_each() {
        for format in FORMATS {
            assert_eq!(OutputFormat::named(format.name), Some(*format));
            assert!(!format.about.is_empty(), "{}", format.name);
            for ending in format.endings {
                assert!(ending.starts_with('.'), "{ending}");
                let file = format!("Report{}", ending.to_uppercase());
                assert_eq!(OutputFormat::of_file(Path::new(&file)), Some(*format));
            }
        }
        for other in ["report", "report.pdf", "html", "x.html/report"] {
            assert_eq!(OutputFormat::of_file(Path::new(other)), None, "{other}");
        }
    }
}
