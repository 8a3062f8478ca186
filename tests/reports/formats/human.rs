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
    let around = ["**Fix:**", "<p class=\"label\">Fix</p>", "FIX"];
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
fn findings_lose_their_reasons_before_they_are_left_out() {
    let report = example();
    let all = markdown(&report).unwrap().matches("\n### ").count();
    assert!((3..=10).contains(&all), "{all}");
    let mut left_out = 0;
    for room in (1_500..20_000).step_by(500) {
        let text = markdown_within(&report, room).unwrap();
        if text.matches("\n### ").count() < all {
            assert!(!text.contains("**Why:**"), "{room}: {text}");
            left_out += 1;
        }
    }
    assert!(left_out > 0);
}

#[test]
fn charts_show_the_numbers_of_the_tables() {
    let text = markdown(&example()).unwrap();
    assert!(text.contains("\"lm_head\" : 18.6\n"), "{text}");
    assert!(text.contains("| `lm_head` | 18.6 ms |"));
    // Three parts are read faster in a table.
    assert!(!text.contains("pie showData title Where"));
    assert!(text.contains("| Copying only | 8.10 ms | 12 % |"), "{text}");
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
            let colored = text(&report, width);
            let plain = anstream::adapter::strip_str(&colored).to_string();
            check::shown(&plain, &['\n']);
            assert!(plain.replace('\n', " ").starts_with("GPU advice for "));
            let tables = plain
                .lines()
                .filter(|l| l.contains(" ms  ") || l.contains(" us  "));
            let widest = tables.map(|l| l.chars().count()).max().unwrap_or(0);
            assert!(widest <= width.clamp(60, 140), "{widest}:\n{plain}");
            // Code, which stands further in, and single words cannot be broken.
            let too_long = |l: &&str| {
                let words = l.split_whitespace().count();
                l.chars().count() > width.clamp(60, 140) && !l.starts_with("    ") && words > 2
            };
            let too_long: Vec<&str> = plain.lines().filter(too_long).collect();
            assert!(too_long.is_empty(), "{too_long:#?}");
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
        "tensor-cores/gemm-unaligned: lm_head",
        "Saves 5.9 to 14 ms per step (8.8 to 21 %). Confidence: high.",
        "Layers",
        "Already fast",
    ] {
        assert!(text.contains(part), "{part:?} not in\n{text}");
    }
}

/// The paragraphs of a report before its first table or section, without title and figures.
fn opening(markdown: &str) -> Vec<&str> {
    let paragraphs = markdown.split("\n\n").skip(1);
    let opening: Vec<&str> = paragraphs
        .take_while(|p| !p.starts_with("## ") && !p.starts_with('|'))
        .collect();
    assert!(opening.len() >= 2, "no opening or no figures:\n{markdown}");
    let (sentences, rest) = opening.split_first().unwrap();
    [&[*sentences], &rest[1..]].concat()
}

/// The text that is not folded.
fn unfolded(markdown: &str) -> String {
    let mut folds = 0;
    let mut text = String::new();
    for line in markdown.lines() {
        folds += usize::from(line == "<details>");
        if folds == 0 {
            text.push_str(line);
            text.push('\n');
        }
        folds -= usize::from(line == "</details>");
    }
    text
}

#[test]
fn opening_is_at_most_60_words() {
    for (name, report) in reports() {
        let text = markdown(&report).unwrap();
        let words: usize = opening(&text)
            .iter()
            .map(|p| p.split_whitespace().count())
            .sum();
        assert!((5..=60).contains(&words), "{name}: {words} words:\n{text}");
        assert!(report.verdict.len() <= 4, "{name}: {:?}", report.verdict);
    }
}

#[test]
fn ten_findings_take_at_most_12_kb() {
    for (name, report) in reports() {
        let text = unfolded(&markdown(&report).unwrap());
        let Some((_, findings)) = text.split_once("\n## What to change\n") else {
            continue;
        };
        // The table and the findings; of a job without the table of ranks.
        let own = findings.split("\n## ");
        let own = own.filter(|section| !section.starts_with("Ranks\n"));
        let ends = ["Where", "Layers", "About", "Skipped", "Method"];
        let bytes: usize = own
            .take_while(|section| !ends.iter().any(|end| section.starts_with(end)))
            .map(str::len)
            .sum();
        let shown = report.findings.len().min(report.top);
        assert!(shown <= 10, "{name}");
        assert!(bytes <= 12_000, "{name}: {shown} findings in {bytes} bytes");
    }
}

/// A window that ends after the last step holds no more steps for that.
#[test]
fn figures_per_step_are_of_the_steps_that_kernels_belong_to() {
    for (name, report) in reports() {
        let summary = &report.summary;
        let Some(work) = summary.work_steps else {
            continue;
        };
        assert!(work >= 0.999 * summary.steps as f64, "{name}: {work}");
        if name.starts_with("marcalph_t4_custom") {
            assert_eq!((work, summary.steps), (3.0, 3));
        }
    }
}

#[test]
fn no_sentence_is_printed_twice() {
    for (name, report) in reports() {
        let text = markdown(&report).unwrap();
        let of_rule = |rule: &str| report.findings.iter().filter(|f| f.rule == rule).count();
        let several = report.findings.iter().filter(|f| of_rule(&f.rule) > 1);
        let repeated: Vec<&str> = several.map(|f| f.fix.as_str()).collect();
        let mut code = false;
        let mut seen = std::collections::BTreeSet::new();
        for line in text.lines() {
            code ^= line.trim_start().starts_with("```");
            // A rule that finds two places says the same of both.
            let is_message = line.starts_with("**What:**");
            if code || is_message || line.starts_with(['|', '#', '<']) {
                continue;
            }
            let sentences = line.trim_start_matches(['-', '*', '>', ' ']).split(". ");
            // So does a fix whose commands name the places.
            let sentences = sentences.filter(|s| !repeated.iter().any(|fix| fix.contains(*s)));
            for sentence in sentences.filter(|s| s.split_whitespace().count() > 5) {
                assert!(seen.insert(sentence.to_owned()), "{name}: {sentence}");
            }
        }
    }
}

#[test]
fn savings_are_ranges_per_step_in_every_format_for_people() {
    let report = example();
    let range = "5.9 to 14 ms";
    assert!(report.verdict[0].contains(range), "{:?}", report.verdict);
    for text in [
        markdown(&report).unwrap(),
        html(&report).unwrap(),
        anstream::adapter::strip_str(&text(&report, 80)).to_string(),
    ] {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.matches(range).count() >= 2, "{text}");
        for word in ["up to 12 ms", "gives back", "Gives back", "eadroom"] {
            assert!(!text.contains(word), "{word:?} in\n{text}");
        }
    }
}

/// Words of docs/glossary.md replace these everywhere that people read.
#[test]
fn reports_use_the_words_of_the_glossary() {
    const REPLACED: [&str; 12] = [
        "give back",
        "gives back",
        "can be won",
        "to win",
        "judged",
        "headroom",
        "clean bill",
        "held against",
        "time lost",
        "for want of",
        "without a price",
        "priced",
    ];
    for (name, report) in reports() {
        for format in FORMATS.iter().filter(|f| f.media != Media::Json) {
            // Sentences of rules have tests of their own.
            let mut report = report.clone();
            let lists = [&mut report.findings, &mut report.minor, &mut report.capture];
            for f in lists.into_iter().flatten() {
                for text in [&mut f.title, &mut f.message, &mut f.why, &mut f.fix] {
                    *text = format!("{} text", f.rule);
                }
            }
            let text = (format.report)(&report, &RenderOptions::default()).unwrap();
            let text = text.to_lowercase();
            for word in REPLACED {
                assert!(!text.contains(word), "{name} {}: {word}", format.name);
            }
        }
    }
}

/// Two rows of a table with the same title cannot be told apart.
#[test]
fn no_two_findings_of_a_report_have_the_same_title() {
    for (name, report) in reports() {
        let mut titles = std::collections::BTreeSet::new();
        for f in report.findings.iter().chain(&report.minor) {
            assert!(
                titles.insert(&f.title),
                "{name}: two findings are titled {:?}",
                f.title
            );
            assert!(f.title.ends_with(&f.title_suffix), "{name}: {:?}", f.title);
        }
    }
}
