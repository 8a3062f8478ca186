//! The page in a real browser, if one is installed: no errors on the console, complete content, usable
//! with a hundred thousand sites, and no execution of text from a profile.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use pyprof_advise::report::{Report, SiteRow, html};

use super::hostile_text::{EVIL, poisoned};
use super::{example, reports};

const NAMES: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// Time limit for a browser that hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn browser() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    let found = std::env::split_paths(&folders)
        .flat_map(|folder| NAMES.map(|name| folder.join(name)))
        .find(|path| path.is_file());
    if found.is_none() {
        crate::shared::skip("no chromium in PATH (.ci/run --full installs one)");
    }
    found
}

/// The result of loading a page.
struct Shown {
    /// The document after its scripts ran.
    dom: String,
    /// The messages on the console.
    console: Vec<String>,
}

fn show(browser: &Path, page: &str) -> Shown {
    show_at(browser, page, "")
}

/// The page as a link with this fragment opens it.
fn show_at(browser: &Path, page: &str, fragment: &str) -> Shown {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("report.html");
    std::fs::write(&file, page).unwrap();
    let [dom, log] = ["dom", "log"].map(|name| folder.path().join(name));
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
        ])
        .args([
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
        ])
        .args([
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--virtual-time-budget=5000",
        ])
        .arg(format!(
            "--user-data-dir={}",
            folder.path().join("profile").display()
        ))
        .arg("--dump-dom")
        .arg(format!("file://{}{fragment}", file.display()))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&dom).unwrap())
        .stderr(std::fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the browser did not come back");
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let read = |path| String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    let console = read(&log)
        .lines()
        .filter(|line| line.contains(":CONSOLE"))
        .map(str::to_owned)
        .collect();
    Shown {
        dom: read(&dom),
        console,
    }
}

fn show_report(browser: &Path, report: &Report) -> Shown {
    let shown = show(browser, &html(report).unwrap());
    assert!(shown.console.is_empty(), "{:#?}", shown.console);
    assert!(
        shown.dom.contains("data-ready=\"true\""),
        "the script did not finish"
    );
    shown
}

#[test]
fn page_of_the_example_is_complete() {
    let Some(browser) = browser() else { return };
    let report = example();
    let dom = show_report(&browser, &report).dom;
    assert!(dom.contains("aria-sort=\"descending\""));
    assert!(dom.contains("role=\"img\" aria-labelledby=\"roofline-text\""));
    assert!(
        dom.matches("<circle").count() > 20,
        "no dots on the roofline"
    );
    assert!(
        dom.matches("class=\"gap doubted\"").count() > 10,
        "no gaps on the timeline"
    );
    // The layers of a pattern are one line of the table, which opens on a click.
    let lines: BTreeSet<_> = report.sites.iter().map(line).collect();
    assert!(lines.len() < report.sites.len());
    let of = format!("1 to 50 of {}", lines.len());
    assert!(dom.contains(&of), "{of}");
    assert!(dom.contains("aria-expanded=\"false\""), "no folded layers");
}

/// What the work of one line of the table has in common.
fn line(site: &SiteRow) -> [Option<&str>; 4] {
    [
        site.pattern.as_deref().or(site.layer.as_deref()),
        site.operator.as_deref().or(site.kernel.as_deref()),
        Some(&site.direction),
        Some(&site.arguments),
    ]
}

#[test]
fn links_to_a_view_show_only_its_work() {
    let Some(browser) = browser() else { return };
    let report = example();
    let of_finding = report.sites.iter().filter(|s| s.findings.contains(&1));
    let lines: BTreeSet<_> = of_finding.map(line).collect();
    assert!(!lines.is_empty());
    let page = html(&report).unwrap();
    let dom = show_at(&browser, &page, "#work?finding=1").dom;
    let of = format!("1 to {} of {}", lines.len(), lines.len());
    assert!(dom.contains(&of), "{of}");
    assert!(dom.contains("only the work of finding 1"));
    let dom = show_at(&browser, &page, "#work?q=no_such_layer").dom;
    assert!(dom.contains("nothing matches"));
}

#[test]
fn pages_of_real_profiles_run_without_errors() {
    let Some(browser) = browser() else { return };
    // Each page starts a browser, so only some are tested.
    for (name, report) in reports().step_by(12) {
        println!("{name}");
        show_report(&browser, &report);
    }
}

#[test]
fn profile_text_never_executes_in_the_browser() {
    let Some(browser) = browser() else { return };
    let dom = show_report(&browser, &poisoned(&example(), EVIL)).dom;
    assert!(!dom.contains("data-pwned"), "a script of the profile ran");
    assert!(!dom.contains("<img"));
    assert!(dom.contains("onerror="), "the names are shown as they are");
}

#[test]
fn html_report_of_100000_sites_stays_usable() {
    let Some(browser) = browser() else { return };
    let mut report = example();
    let sample = report.sites[0].clone();
    report.sites = (0..100_000_i64)
        .map(|i| SiteRow {
            layer: Some(format!("blocks.{i}.mlp")),
            time_ns: 1_000_000 - i,
            arguments: format!("fp16[{i}, 1024], fp16[33278, 1024]"),
            ..sample.clone()
        })
        .collect();
    let page = html(&report).unwrap();
    assert!(page.len() < 32 << 20, "{} bytes", page.len());
    let dom = show_report(&browser, &report).dom;
    assert!(dom.contains("1 to 50 of 100,000"));
    let (_, rows) = dom.split_once("id=\"site-rows\"").unwrap();
    let (rows, _) = rows.split_once("</tbody>").unwrap();
    assert_eq!(rows.matches("<tr").count(), 50);
}
