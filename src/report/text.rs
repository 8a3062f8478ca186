//! The report for a terminal, wrapped to its width and colored.
//!
//! Colors are ANSI codes; the caller removes them where they are not wanted. Text of a profile is
//! reduced to one line without control characters before the layout.

use anstyle::{AnsiColor, Style};

use super::markdown_text::{self, Block, Run};
use super::text_table::{Align, Column, Row, Table, width_of};
use super::{FindingReport, LayerRow, NEW, Report, narrative};
use crate::base::text::{clip, plain};
use crate::base::units::{count, counted, ns, ns_range, percent, times};
use crate::judge::Severity;

/// Widths that the report is laid out for, in columns.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=140;
/// Most findings explained; the table lists those of [`Report::top`].
const EXPLAINED: usize = 3;
/// Most rows of the table of layers.
const LAYERS: usize = 10;
/// Most entries of the list of work that is already fast.
const LEAVE_ALONE: usize = 5;
/// Most entries of the list of skipped rules.
const NOT_JUDGED: usize = 3;

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const CODE: Style = color(AnsiColor::Cyan);
const CAUTION: Style = color(AnsiColor::Yellow);

const fn color(color: AnsiColor) -> Style {
    Style::new().fg_color(Some(anstyle::Color::Ansi(color)))
}

fn severity_style(severity: Severity) -> Style {
    match severity {
        Severity::Error => color(AnsiColor::Red).bold(),
        Severity::Warning => color(AnsiColor::Yellow).bold(),
        Severity::Note => color(AnsiColor::Blue).bold(),
    }
}

/// The report for a terminal of `width` columns, with ANSI colors.
pub fn text(report: &Report, width: usize) -> String {
    let width = width.clamp(*WIDTHS.start(), *WIDTHS.end());
    let mut page = Page {
        out: String::new(),
        width,
    };
    page.opening(report);
    page.findings(report);
    page.layers(report);
    page.rest(report);
    page.out
}

struct Page {
    out: String,
    width: usize,
}

impl Page {
    fn opening(&mut self, report: &Report) {
        let title = format!("GPU advice for {}", plain(&report.title));
        self.words(&title, BOLD, 0);
        self.blank();
        self.words(&report.verdict.join(" "), Style::new(), 0);
        for caution in &report.cautions {
            self.blank();
            self.words(&format!("Note: {caution}"), CAUTION, 0);
        }
    }

    fn findings(&mut self, report: &Report) {
        let shown = report.findings.len().min(report.top);
        let Some(top) = report.findings.get(..shown).filter(|top| !top.is_empty()) else {
            return;
        };
        self.heading("What to change");
        let elsewhere = match report.hidden.is_empty() {
            true => "see above",
            false => "see others",
        };
        self.finding_table(top, elsewhere);
        let more = report.findings.len() - shown;
        let small = report.minor.len();
        for (n, noun) in [(more, "more finding"), (small, "small finding")] {
            if n > 0 {
                let line = format!("and {}", counted(n as u64, noun));
                self.words(&line, DIM, 0);
            }
        }
        for finding in top.iter().take(EXPLAINED) {
            self.explain(finding);
        }
    }

    fn finding_table(&mut self, findings: &[FindingReport], elsewhere: &str) {
        let columns = vec![
            Column::new("#", Align::Right, 3),
            Column::new("Gives back", Align::Right, 10),
            Column::new("Sure", Align::Left, 6),
            Column::new("Finding", Align::Left, 18).flexible(),
        ];
        let rows = findings.iter().map(|f| {
            let saving = match &f.saving {
                None => "not estimated".to_owned(),
                Some(s) if s.counted_high_ns <= 0.0 => elsewhere.to_owned(),
                Some(s) => format!(
                    "{} ({})",
                    ns_range(s.counted_low_ns, s.counted_high_ns),
                    percent(s.counted_share)
                ),
            };
            let cells = vec![
                f.number.to_string(),
                saving,
                f.confidence.word().to_owned(),
                plain(&f.title),
            ];
            Row {
                style: severity_style(f.severity),
                cells,
                below: plain(&f.place),
            }
        });
        self.table(columns, rows.collect());
    }

    fn explain(&mut self, f: &FindingReport) {
        self.blank();
        let title = format!("{}. {}", f.number, plain(&f.title));
        self.words(&title, severity_style(f.severity), 0);
        let mut place = plain(&f.place);
        for line in f.evidence.source_lines.iter().take(1) {
            place.push_str(&format!(", {}", plain(line)));
        }
        self.words(&place, DIM, 2);
        if let Some(since) = f.since_baseline.as_deref().filter(|s| *s != NEW) {
            self.words(&format!("Since the baseline: {}", plain(since)), CAUTION, 2);
        }
        self.prose(&f.message, 2);
        let saving = narrative::saving(f);
        if !saving.is_empty() {
            self.words(&saving, Style::new(), 2);
        }
        self.prose(&f.fix, 2);
    }

    fn layers(&mut self, report: &Report) {
        if report.layers.is_empty() {
            return;
        }
        self.heading("Per layer");
        let columns = vec![
            Column::new("Layer", Align::Left, 12).flexible(),
            Column::new("Time", Align::Right, 8),
            Column::new("Share", Align::Right, 6),
            Column::new("Headroom", Align::Right, 5),
            Column::new("Bound by", Align::Left, 5),
            Column::new("Findings", Align::Left, 6),
        ];
        let rows = report.layers.iter().take(LAYERS).map(layer);
        self.table(columns, rows.collect());
        let left = report.layers.len().saturating_sub(LAYERS) as u64;
        let left = left.saturating_add(report.layers_omitted.count);
        if left > 0 {
            self.words(&format!("and {}", counted(left, "more row")), DIM, 0);
        }
    }

    fn rest(&mut self, report: &Report) {
        let alone: Vec<String> = report
            .already_fast
            .iter()
            .take(LEAVE_ALONE)
            .map(|l| {
                let name = [l.place.as_str(), l.operator.as_str()];
                let name: Vec<&str> = name.into_iter().filter(|n| !n.is_empty()).collect();
                let name = plain(&name.join(" · "));
                format!("{name} ({}, {})", l.direction, ns(l.time_ns as f64))
            })
            .collect();
        if !alone.is_empty() {
            self.heading("Leave alone");
            self.words(
                &format!("As fast as it gets: {}.", alone.join(", ")),
                Style::new(),
                0,
            );
        }
        if !report.skipped.is_empty() {
            self.heading("What could not be judged");
            for row in report.skipped.iter().take(NOT_JUDGED) {
                let needs = markdown_text::plain(&row.needs);
                let held = counted(row.rules.len() as u64, "rule");
                self.words(&format!("{held}, for want of {needs}"), Style::new(), 0);
            }
            let left = report.skipped.len().saturating_sub(NOT_JUDGED);
            if left > 0 {
                self.words(&format!("and {left} more"), DIM, 0);
            }
        }
        self.blank();
        let method = &report.method;
        let gpu = method.gpu.as_ref().map_or("unknown GPU", |g| &g.name);
        let priced = method.cost_known_share.map_or(String::new(), |share| {
            format!(", {} of kernel time priced", percent(share))
        });
        let made = format!(
            "{}, {}, {} kernels, measured against {}{priced}. `--format html` or `-o report.md` has the whole report.",
            method.program,
            method.format,
            count(report.summary.kernels),
            plain(gpu),
        );
        self.words(&made, DIM, 0);
    }

    fn blank(&mut self) {
        self.out.push('\n');
    }

    fn heading(&mut self, text: &str) {
        self.blank();
        self.words(text, BOLD.underline(), 0);
        self.blank();
    }

    /// A sentence in one style, wrapped; code between backticks is colored.
    fn words(&mut self, text: &str, style: Style, indent: usize) {
        let runs: Vec<Run> = text
            .split('`')
            .enumerate()
            .map(|(i, part)| Run {
                text: part.to_owned(),
                code: i % 2 == 1,
            })
            .collect();
        self.wrapped(&runs, style, indent, "");
    }

    fn prose(&mut self, markdown: &str, indent: usize) {
        for block in markdown_text::blocks(markdown) {
            match block {
                Block::Paragraph(runs) => self.wrapped(&runs, Style::new(), indent, ""),
                Block::Item(runs) => self.wrapped(&runs, Style::new(), indent, "- "),
                Block::Code(lines) => {
                    for line in lines {
                        // Listings are not wrapped, so that they can be copied.
                        let indent = indent + 2;
                        self.out
                            .push_str(&format!("{:indent$}{CODE}{line}{CODE:#}\n", ""));
                    }
                }
            }
        }
    }

    fn wrapped(&mut self, runs: &[Run], style: Style, indent: usize, bullet: &str) {
        let margin = indent + bullet.len();
        let room = self.width.saturating_sub(margin).max(10);
        let mut line = format!("{:indent$}{bullet}", "");
        let mut used = 0;
        let mut glued = false;
        for run in runs {
            let style = if run.code { CODE } else { style };
            let text = if run.code {
                plain(&run.text)
            } else {
                run.text.clone()
            };
            glued &= !text.starts_with(char::is_whitespace);
            for word in text.split_whitespace() {
                let word = plain(&clip(word, self.width * 2));
                let width = width_of(&word);
                if used > 0 && !glued && used + 1 + width > room {
                    self.out.push_str(line.trim_end());
                    self.out.push('\n');
                    line = format!("{:margin$}", "");
                    used = 0;
                } else if used > 0 && !glued {
                    line.push(' ');
                    used += 1;
                }
                line.push_str(&format!("{style}{word}{style:#}"));
                used += width;
                glued = false;
            }
            glued = !text.ends_with(char::is_whitespace);
        }
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    fn table(&mut self, columns: Vec<Column>, rows: Vec<Row>) {
        let table = Table::new(columns, rows);
        self.out.push_str(&table.render(self.width));
    }
}

fn layer(l: &LayerRow) -> Row {
    let mut name = plain(&l.name);
    if l.layers > 1 {
        name.push_str(&format!(" ({})", counted(l.layers, "layer")));
    }
    let findings: Vec<String> = l.findings.iter().map(u64::to_string).collect();
    let or_dash = |text: String| {
        if text.is_empty() {
            "-".to_owned()
        } else {
            text
        }
    };
    Row {
        style: Style::new(),
        cells: vec![
            name,
            ns(l.time_ns as f64),
            percent(l.share),
            l.slowdown.map_or("-".to_owned(), times),
            or_dash(l.bound.clone().unwrap_or_default()),
            or_dash(findings.join(", ")),
        ],
        below: String::new(),
    }
}
