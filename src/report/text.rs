//! The report for a terminal, wrapped to its width and colored.
//!
//! Colors are ANSI codes; the caller removes them where they are not wanted. Text of a profile is
//! reduced to one line without control characters before the layout.

use std::collections::BTreeSet;

use anstyle::{AnsiColor, Style};

use super::basis::Basis;
use super::finding_report::{FindingReport, NEW, Quote};
use super::host::HostRow;
use super::layers::overlap_sentence;
use super::markdown_text::{self, Block, InlineText};
use super::model::Report;
use super::narrative;
use super::opening::without_a_known_loss;
use super::repeating::RepeatingKernel;
use super::rows::LayerRow;
use super::text_table::{Align, Column, table, width_of};
use crate::base::text::{clip, code_line, plain, without_commands};
use crate::base::units::{bytes, count, counted, ns, percent, times};
use crate::judge::Severity;

/// Widths that the report is laid out for, in columns.
const WIDTHS: std::ops::RangeInclusive<usize> = 40..=140;
/// Most findings explained; the table lists those of [`Report::top`].
const EXPLAINED: usize = 3;
/// Most rows of the table of layers.
const LAYERS: usize = 10;
/// Most entries of the list of work that is already fast.
const ALREADY_FAST: usize = 5;
/// Most functions or lines named of each profile of the host.
const HOST_LINES: usize = 3;

/// What to know of times that overlap.
const CALLEES_INCLUDED: &str =
    "The time of a line includes the functions it calls, so do not add the times.";

const BOLD: Style = Style::new().bold();
const DIM: Style = Style::new().dimmed();
const CODE: Style = color(AnsiColor::Cyan);
const CAUTION: Style = color(AnsiColor::Yellow);
const SAVING: Style = color(AnsiColor::Green);

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
    page.host(report);
    page.host_profiles(report);
    page.layers(report);
    page.repeating(report);
    page.rest(report);
    without_commands(&page.out)
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
        self.blank();
        self.words(&format!("{}.", report.figures.join(" · ")), DIM, 0);
        for note in &report.hidden_notes {
            self.blank();
            self.words(note, CAUTION, 0);
        }
    }

    fn findings(&mut self, report: &Report) {
        let shown = report.findings.len().min(report.top);
        let Some(top) = report.findings.get(..shown).filter(|top| !top.is_empty()) else {
            if let Some(largest) = without_a_known_loss(report) {
                self.heading(&plain(&largest.title));
                self.prose(&largest.message, 2);
                self.prose(&largest.fix, 2);
            }
            return;
        };
        self.heading("What to change");
        let basis = Basis::of(&report.summary);
        for finding in top {
            self.listed(finding, &basis);
        }
        for note in &report.next_notes {
            self.words(note, Style::new(), 0);
        }
        let more = report.findings.get(shown..).unwrap_or_default();
        for (list, noun) in [(more, "more finding"), (&report.minor, "minor finding")] {
            if !list.is_empty() {
                let rules: BTreeSet<&str> = list.iter().map(|f| f.rule.as_str()).collect();
                let rules: Vec<&str> = rules.into_iter().collect();
                let line = format!(
                    "and {}: {}",
                    counted(list.len() as u64, noun),
                    rules.join(", ")
                );
                self.words(&line, DIM, 0);
            }
        }
        for finding in top.iter().take(EXPLAINED) {
            self.explain(finding);
        }
    }

    /// A finding in the list: title, saving, rule and place, each on a line of its own.
    fn listed(&mut self, f: &FindingReport, basis: &Basis) {
        let number = format!("{:>2}. ", f.number);
        let title = InlineText {
            text: plain(&f.title),
            code: false,
        };
        self.wrapped(&[title], severity_style(f.severity), 0, &number);
        let saving = match narrative::saving(f, basis) {
            none if none.is_empty() => "Saving not estimated.".to_owned(),
            saving => saving,
        };
        let saving = format!("{saving} Confidence: {}.", f.confidence.word());
        self.words(&saving, SAVING, number.len());
        let place = format!("{}: {}", plain(&f.rule), plain(&f.place));
        self.words(&place, DIM, number.len());
    }

    fn explain(&mut self, f: &FindingReport) {
        self.blank();
        let title = format!("{}. {}", f.number, plain(&f.title));
        self.words(&title, severity_style(f.severity), 0);
        for line in f.evidence.source_lines.iter().take(1) {
            self.words(&plain(line), DIM, 2);
        }
        if let Some(since) = f.since_baseline.as_deref().filter(|s| *s != NEW) {
            self.words(&format!("Since the baseline: {}", plain(since)), CAUTION, 2);
        }
        self.prose(&f.message, 2);
        if let Some(measured) = &f.measured {
            let text = format!("Measured with {}: {}", measured.treatment, measured.text);
            self.words(&plain(&text), SAVING, 2);
        }
        for quote in &f.evidence.quotes {
            self.quote(quote);
        }
        if !f.fix.is_empty() {
            self.words("Fix:", BOLD, 2);
        }
        self.prose(&f.fix, 2);
    }

    /// Lines of source code, the one of the finding marked.
    fn quote(&mut self, quote: &Quote) {
        let digits = quote.lines.last().map_or(1, |l| l.number.to_string().len());
        for line in &quote.lines {
            let mut print = |mark: char, text: &str, style: Style| {
                let text = format!("{mark} {:>digits$} | {}", line.number, code_line(text));
                self.out.push_str(&format!("    {style}{text}{style:#}\n"));
            };
            match line.number == quote.line {
                true if quote.change.is_empty() => print('>', &line.text, BOLD),
                true => {
                    print('-', &line.text, BOLD);
                    for text in &quote.change {
                        print('+', text, SAVING);
                    }
                }
                false => print(' ', &line.text, DIM),
            }
        }
    }

    fn host(&mut self, report: &Report) {
        let Some(host) = report.host.as_ref().filter(|host| !host.rows.is_empty()) else {
            return;
        };
        self.heading("What the host did while the GPU waited");
        let basis = Basis::of(&report.summary);
        let rows = host.rows.iter().map(|row| row.row(basis.divisor));
        self.table(&HostRow::columns(), rows);
        if !basis.per.is_empty() {
            let note = format!(
                "Times are {}; calls, bytes and samples are those of all steps.",
                basis.per
            );
            self.words(&note, DIM, 0);
        }
    }

    fn host_profiles(&mut self, report: &Report) {
        if report.host_profiles.is_empty() {
            return;
        }
        self.heading("Where the host spends its time");
        for profile in &report.host_profiles {
            let lines = profile.lines.iter().take(HOST_LINES);
            let lines: Vec<String> = lines
                .map(|line| {
                    let place = plain(&line.place);
                    let outside = match line.outside {
                        true => " (outside the analyzed window)",
                        false => "",
                    };
                    match line.ns > 0.0 {
                        true => format!("{place} {}{outside}", ns(line.ns)),
                        false => format!("{place} {}{outside}", bytes(line.grown_bytes)),
                    }
                })
                .collect();
            let (file, profiler) = (plain(&profile.file), plain(&profile.profiler));
            let text = match lines.is_empty() {
                true => format!("{file}, written by {profiler}."),
                false => format!("{file}, written by {profiler}: {}.", lines.join(", ")),
            };
            self.words(&text, Style::new(), 0);
            if profile.includes_callees && profile.lines.len() > 1 {
                self.words(CALLEES_INCLUDED, DIM, 0);
            }
            if let Some(memory) = &profile.memory {
                self.words(&memory.sentence, Style::new(), 0);
            }
            self.words(&profile.note, DIM, 0);
        }
    }

    fn layers(&mut self, report: &Report) {
        if report.layers.is_empty() {
            return;
        }
        self.heading("Layers");
        let basis = Basis::of(&report.summary);
        let columns = [
            Column::new("Layer", Align::Left, 12).flexible().dotted(),
            Column::new("Time", Align::Right, 8),
            Column::new("Share", Align::Right, 6),
            Column::new("Slowdown", Align::Right, 5),
            Column::new("Bound by", Align::Left, 5),
            Column::new("Findings", Align::Left, 6),
        ];
        let rows = report.layers.iter().take(LAYERS).map(|l| layer(l, &basis));
        self.table(&columns, rows);
        let overlap = overlap_sentence(report);
        let sentences: Vec<String> = [Some(basis.sentence), overlap]
            .into_iter()
            .flatten()
            .collect();
        self.words(&sentences.join(" "), DIM, 0);
        let left = report.layers.len().saturating_sub(LAYERS) as u64;
        let left = left.saturating_add(report.layers_omitted.count);
        if left > 0 {
            self.words(&format!("and {}", counted(left, "more row")), DIM, 0);
        }
    }

    fn repeating(&mut self, report: &Report) {
        let Some(repeating) = &report.repeating else {
            return;
        };
        self.heading("Repeating kernels");
        self.words(&repeating.sentences(), Style::new(), 0);
        self.blank();
        let mut longest: Vec<&RepeatingKernel> = repeating.kernels.iter().collect();
        longest.sort_by_key(|kernel| (std::cmp::Reverse(kernel.time_ns), kernel.place));
        longest.truncate(LAYERS);
        longest.sort_by_key(|kernel| kernel.place);
        let rows = longest.iter().map(|row| row.row(repeating.repetitions));
        self.table(&RepeatingKernel::columns(), rows);
    }

    fn rest(&mut self, report: &Report) {
        let basis = Basis::of(&report.summary);
        let alone: Vec<String> = report
            .already_fast
            .iter()
            .take(ALREADY_FAST)
            .map(|l| {
                let name = [l.place.as_str(), l.operator.as_str()];
                let name: Vec<&str> = name.into_iter().filter(|n| !n.is_empty()).collect();
                let name = plain(&name.join(" · "));
                format!(
                    "{name} ({}, {})",
                    l.direction,
                    ns(l.time_ns as f64 / basis.divisor)
                )
            })
            .collect();
        if !alone.is_empty() {
            self.heading("Already fast");
            self.words(&format!("{}.", alone.join(", ")), Style::new(), 0);
        }
        if !report.capture.is_empty() || !report.cautions.is_empty() {
            self.heading("About this capture");
            for f in &report.capture {
                let message = markdown_text::plain(&f.message);
                self.words(
                    &format!("{} ({})", message, plain(&f.rule)),
                    Style::new(),
                    0,
                );
            }
            for caution in &report.cautions {
                self.words(&format!("Note: {caution}"), CAUTION, 0);
            }
        }
        if let Some(again) = narrative::capture_again(report) {
            self.blank();
            self.words(&markdown_text::plain(&again), Style::new(), 0);
        }
        self.blank();
        let method = &report.method;
        let gpu = method.gpu.as_ref().map_or("no known GPU", |g| &g.name);
        let made = format!(
            "{}, {}, {} kernels, compared with {}. `-o report.html` or `-o report.md` writes the whole report; \
             `--why RULE` prints every fact behind a finding.",
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
        let runs: Vec<InlineText> = text
            .split('`')
            .enumerate()
            .map(|(i, part)| InlineText {
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

    fn wrapped(&mut self, runs: &[InlineText], style: Style, indent: usize, bullet: &str) {
        let margin = indent + bullet.len();
        let room = self.width.saturating_sub(margin).max(10);
        // Words of different runs without a space between them are one: `(`, `--gpu NAME`, `)`.
        let mut words: Vec<Vec<(Style, String)>> = Vec::new();
        let mut glued = false;
        for run in runs {
            let style = if run.code { CODE } else { style };
            let text = if run.code {
                plain(&run.text)
            } else {
                run.text.clone()
            };
            glued &= !text.starts_with(char::is_whitespace);
            for word in words_with_units(&text) {
                let piece = (style, plain(&clip(&word, self.width * 2)));
                match words.last_mut().filter(|_| glued) {
                    Some(word) => word.push(piece),
                    None => words.push(vec![piece]),
                }
                glued = false;
            }
            glued = !text.ends_with(char::is_whitespace);
        }
        let mut line = format!("{:indent$}{bullet}", "");
        let mut used = 0;
        for word in words {
            let width: usize = word.iter().map(|(_, text)| width_of(text)).sum();
            if used > 0 && used + 1 + width > room {
                self.out.push_str(line.trim_end());
                self.out.push('\n');
                line = format!("{:margin$}", "");
                used = 0;
            } else if used > 0 {
                line.push(' ');
                used += 1;
            }
            for (style, text) in word {
                line.push_str(&format!("{style}{text}{style:#}"));
            }
            used += width;
        }
        self.out.push_str(line.trim_end());
        self.out.push('\n');
    }

    fn table(&mut self, columns: &[Column], rows: impl Iterator<Item = Vec<String>>) {
        let cells =
            |row: Vec<String>| -> Vec<String> { row.iter().map(|cell| plain(cell)).collect() };
        let rows: Vec<Vec<String>> = rows.map(cells).collect();
        self.out.push_str(&table(columns, &rows, self.width));
    }
}

fn layer(l: &LayerRow, basis: &Basis) -> Vec<String> {
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
    vec![
        name,
        ns(l.time_ns as f64 / basis.divisor),
        percent(l.share),
        l.slowdown.map_or("-".to_owned(), times),
        or_dash(l.bound.clone().unwrap_or_default()),
        or_dash(findings.join(", ")),
    ]
}

/// The words of a text; a number and its unit are one.
fn words_with_units(text: &str) -> Vec<String> {
    let is_unit = |word: &str| {
        let word = word.trim_end_matches(['.', ',', ';', ':', ')']);
        [
            "ns", "us", "ms", "s", "%", "B", "kB", "MB", "GB", "TB", "GB/s", "TB/s",
        ]
        .contains(&word)
    };
    let mut words: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let number = words
            .last_mut()
            .filter(|last| last.ends_with(|c: char| c.is_ascii_digit()));
        match number.filter(|_| is_unit(word)) {
            Some(number) => *number = format!("{number} {word}"),
            None => words.push(word.to_owned()),
        }
    }
    words
}
