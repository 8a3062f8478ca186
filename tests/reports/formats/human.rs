//! Markdown, the page (without a browser), and the terminal.

use pyprof_advise::formats::{FORMATS, Media, OutputFormat, RenderOptions};
use pyprof_advise::report::{self, PR_CHARS, html, markdown, markdown_within, text};

use super::hostile_text::check_report;
use super::{check, example, reports};

#[test]
fn every_format_of_real_reports_is_well_formed() {
    for (name, report) in reports() {
        for format in FORMATS {
            println!("{name} {}", format.name);
            let text = (format.report)(&report, &RenderOptions::default()).unwrap();
            check_report(format.media, &text, name);
        }
    }
}

#[test]
fn a_finding_without_a_fix_has_no_heading_for_it() {
    let render = |fix: &str, report: &report::Report| -> Vec<(Media, String)> {
        let mut report = report.clone();
        let lists = [&mut report.findings, &mut report.minor, &mut report.capture];
        for finding in lists.into_iter().flatten() {
            finding.fix = fix.to_owned();
        }
        let render = |format: &OutputFormat| {
            let text = (format.report)(&report, &RenderOptions::default()).unwrap();
            (format.media, text)
        };
        FORMATS.iter().map(render).collect()
    };
    // The text around a fix, except blanks.
    let around = ["**Do this:**", "<p class=\"label\">Do this</p>", "FIX"];
    for (name, report) in reports() {
        let with = render("FIX", &report);
        let without = render("", &report);
        for ((media, with), (_, without)) in with.iter().zip(&without) {
            println!("{name} {media:?}");
            check_report(*media, without, name);
            assert!(!around.iter().any(|label| without.contains(label)));
            if *media != Media::Json {
                // A blank line or a separator too many would be left over.
                for twice in ["\n\n\n", "\\n\\n\\n", "%0A%0A%0A"] {
                    assert!(
                        with.contains(twice) || !without.contains(twice),
                        "{twice:?}"
                    );
                }
                let ends = ["\\n\\n\"", "%0A%0A\n"];
                assert!(!ends.iter().any(|end| without.contains(end)));
            }
        }
    }
}

#[test]
fn markdown_fits_any_limit() {
    for (name, report) in reports() {
        let whole = markdown(&report).unwrap();
        for room in [
            PR_CHARS, 20_000, 12_000, 8_000, 5_000, 3_000, 2_000, 1_000, 500,
        ] {
            println!("{name} in {room}");
            let text = markdown_within(&report, room).unwrap();
            let chars = text.chars().count();
            assert!(chars <= room, "{chars}");
            check::markdown(&text);
            assert!(text.starts_with("# GPU advice"));
            let is_whole = whole.chars().count() <= room;
            assert_eq!(text == whole, is_whole);
            assert!(is_whole || text.contains("left out"), "{text}");
        }
    }
}

#[test]
fn lowest_savings_are_dropped_first() {
    let report = example();
    let first = &report.findings[0].title;
    let text = markdown_within(&report, 6_000).unwrap();
    assert!(text.contains(&format!("### 1. {first}")), "{text}");
    assert!(text.contains("This report is shortened to fit 6,000 characters"));
    assert!(!text.contains("### 9."), "{text}");
    assert!(
        text.chars().count() > 3_000,
        "much room is left unused:\n{text}"
    );
}

#[test]
fn charts_show_the_numbers_of_the_tables() {
    let text = markdown(&example()).unwrap();
    assert!(text.contains("\"lm_head\" : 74.2\n"), "{text}");
    assert!(text.contains("| lm_head | 74.2 ms |"));
    assert!(text.contains("\"Copying\" : 32.4\n") && text.contains("| 32.4 ms | 12 % |"));
}

#[test]
fn pages_contain_expected_markup_only() {
    for (name, report) in reports() {
        println!("{name}");
        let page = html(&report).unwrap();
        for finding in &report.findings {
            let id = format!("id=\"finding-{}\"", finding.number);
            assert!(page.contains(&id), "{id}");
        }
    }
}

#[test]
fn terminal_output_fits_any_width() {
    for (name, report) in reports() {
        for width in [0, 40, 60, 80, 100, 400] {
            println!("{name} in {width}");
            let coloured = text(&report, width);
            let plain = anstream::adapter::strip_str(&coloured).to_string();
            check::shown(&plain, &['\n']);
            assert!(plain.replace('\n', " ").starts_with("GPU advice for "));
            let tables = plain
                .lines()
                .filter(|l| l.contains(" ms  ") || l.contains(" us  "));
            let widest = tables.map(|l| l.chars().count()).max().unwrap_or(0);
            assert!(widest <= width.clamp(60, 140), "{widest}:\n{plain}");
        }
    }
}

#[test]
fn terminal_output_has_the_key_figures() {
    let report = example();
    let text = anstream::adapter::strip_str(&text(&report, 100)).to_string();
    for part in [
        "What to change",
        &report.findings[0].title,
        "net/model.py:111",
        "lm_head = nn.Linear(d_model, 33280)   # and the same size for a tied embedding",
        "Per layer",
        "Leave alone",
    ] {
        assert!(text.contains(part), "{part:?} not in\n{text}");
    }
}
