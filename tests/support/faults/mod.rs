//! Deliberate damage, reproducible by its seed: the edits that the short harness
//! (`tests/cli/damaged_profiles.rs`) and the long one (`examples/torture.rs`) apply to profiles, and
//! the invariants checked afterwards. After any damage, the program ends in time, within a bound of
//! memory, without a panic; and if kernels can still be read, their total equals that of the file, or a
//! note lists what was skipped.

#![allow(dead_code, reason = "each of its users takes a part")]

use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use pyprof_advise::correlate::{UnneededRanges, correlate};
use pyprof_advise::cost::{VOCABULARY, estimate_costs};
use pyprof_advise::facts::FactTable;
use pyprof_advise::gpu::select;
use pyprof_advise::judge::{RuleSet, judge};
use pyprof_advise::profile::Profile;
use pyprof_advise::read::{self, NoProgress};
use pyprof_advise::report::{self, Options, Report};
use pyprof_advise::scrub;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

pub(crate) mod damage;
pub(crate) mod extremes;
pub(crate) mod structure;

use damage::{Dice, cuts, edits, flips, packed_flips, texts};
use structure::{brackets, trees};

/// Limits of time and memory per file.
#[derive(Clone, Copy)]
pub(crate) struct Limits {
    /// CPU time of all threads, because the machine may be busy; wall time is limited to an hour.
    pub(crate) time: Duration,
    /// Growth of resident memory per file, for any size; not checked if it cannot be measured.
    pub(crate) bytes: u64,
    /// Additional memory per byte of the uncompressed file.
    pub(crate) bytes_per_byte: u64,
}

/// The case with the maximum of a quantity.
#[derive(Debug, Clone, Default)]
pub(crate) struct Most<T> {
    pub(crate) value: T,
    pub(crate) case: String,
}

impl<T: PartialOrd> Most<T> {
    fn see(&mut self, value: T, case: &str) {
        if value > self.value {
            self.value = value;
            case.clone_into(&mut self.case);
        }
    }
}

/// Runs all stages on damaged files.
pub(crate) struct Harness {
    rules: Arc<RuleSet>,
    limits: Limits,
    folder: PathBuf,
    pub(crate) cases: usize,
    pub(crate) judged: usize,
    pub(crate) slowest: Most<Duration>,
    pub(crate) largest: Most<u64>,
    pub(crate) faults: Vec<String>,
}

impl Harness {
    pub(crate) fn new(folder: &Path, limits: Limits) -> Harness {
        Harness {
            rules: Arc::new(
                RuleSet::builtin().unwrap_or_else(|_| panic!("the built-in rules load")),
            ),
            limits,
            folder: folder.to_owned(),
            cases: 0,
            judged: 0,
            slowest: Most::default(),
            largest: Most::default(),
            faults: Vec::new(),
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Runs a damaged file, given as bytes.
    pub(crate) fn bytes(&mut self, what: &str, bytes: &[u8]) {
        let path = self.at("case");
        std::fs::write(&path, bytes).expect("a case can be written");
        self.file(what, &path);
    }

    /// Runs a file whose structure is damaged: its kernels must be those of the undamaged profile, unless
    /// it is refused or a note says what is missing.
    pub(crate) fn restructured(&mut self, what: &str, bytes: &[u8], undamaged: Sum) {
        let path = self.at("case");
        std::fs::write(&path, bytes).expect("a case can be written");
        self.case(what, &path, Some(undamaged));
    }

    /// Runs a damaged file.
    pub(crate) fn file(&mut self, what: &str, path: &Path) {
        self.case(what, path, None);
    }

    fn case(&mut self, what: &str, path: &Path, undamaged: Option<Sum>) {
        self.cases += 1;
        let watch = Watch::start();
        let (tell, told) = mpsc::channel();
        let (rules, owned) = (Arc::clone(&self.rules), path.to_owned());
        // As large as a main thread's stack, so that the same recursion overflows.
        let started = std::thread::Builder::new()
            .stack_size(8 << 20)
            .spawn(move || {
                let outcome =
                    catch_unwind(AssertUnwindSafe(|| measured(&owned, &rules, undamaged)));
                let _ = tell.send(outcome);
            });
        started.expect("a thread starts");
        let outcome = watch.wait(&told, self.limits.time);
        let took = watch.took();
        self.slowest.see(took, what);
        let fault = match outcome {
            Err(_) => Some(format!("no end after {took:.1?}")),
            Ok(Err(panic)) => Some(format!("panicked: {}", message(&*panic))),
            Ok(Ok(Err(fault))) => Some(fault),
            Ok(Ok(Ok((judged, grown)))) => {
                self.judged += usize::from(judged);
                self.largest.see(grown, what);
                let allowed = self.limits.bytes + self.limits.bytes_per_byte * text_bytes(path);
                (grown > allowed)
                    .then(|| format!("took {} MiB, not {} MiB", grown >> 20, allowed >> 20))
            }
        };
        if let Some(fault) = fault {
            let kept = self.at(&format!("fault-{}", self.faults.len()));
            let _ = std::fs::copy(path, &kept);
            self.faults
                .push(format!("{what}: {fault} (kept as {})", kept.display()));
        }
    }
}

/// Size of a file in bytes, uncompressed as far as a reader would.
fn text_bytes(path: &Path) -> u64 {
    const ENOUGH: u64 = 256 << 20;
    let bytes = std::fs::metadata(path).map_or(0, |m| m.len());
    let Ok(file) = std::fs::File::open(path) else {
        return bytes;
    };
    // If the file is not compressed or is damaged, the bytes decompressed so far count.
    let mut unpacked = flate2::read::MultiGzDecoder::new(file).take(ENOUGH);
    let mut counted = Counter(0);
    let _ = std::io::copy(&mut unpacked, &mut counted);
    bytes.max(counted.0)
}

struct Counter(u64);

impl std::io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Measures elapsed time.
struct Watch {
    clock: Instant,
    /// `None` if it cannot be measured.
    processor: Option<Duration>,
}

impl Watch {
    fn start() -> Watch {
        Watch {
            clock: Instant::now(),
            processor: processor_time(),
        }
    }

    /// CPU time, otherwise wall time.
    fn took(&self) -> Duration {
        match (self.processor, processor_time()) {
            (Some(before), Some(now)) => now.saturating_sub(before),
            _ => self.clock.elapsed(),
        }
    }

    fn wait<T>(&self, told: &mpsc::Receiver<T>, limit: Duration) -> Result<T, RecvTimeoutError> {
        const HOUR: Duration = Duration::from_secs(3600);
        loop {
            match told.recv_timeout(Duration::from_millis(500)) {
                Err(RecvTimeoutError::Timeout)
                    if self.took() < limit && self.clock.elapsed() < HOUR => {}
                outcome => return outcome,
            }
        }
    }
}

/// CPU time of the process, user and system, in units of 10 ms (`man 5 proc`: fields 14 and 15 of
/// `stat`, in ticks of `_SC_CLK_TCK`, which is 100 on Linux).
fn processor_time() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(11).take(2);
    let ticks: u64 = ticks.map(|t| t.parse::<u64>().unwrap_or(0)).sum();
    Some(Duration::from_millis(10 * ticks))
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|t| (*t).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_default()
}

/// Runs all stages. `Ok(false)` for a file that is rejected, which is a valid result.
pub(crate) fn road(path: &Path, rules: &RuleSet) -> Result<bool, String> {
    measured(path, rules, None).map(|(judged, _)| judged)
}

/// Whether a file could be analyzed, and the growth of memory in the meantime.
fn measured(path: &Path, rules: &RuleSet, undamaged: Option<Sum>) -> Result<(bool, u64), String> {
    reset_peak();
    let before = memory("VmRSS:");
    let copy = path.with_extension("scrubbed");
    let _ = std::fs::remove_file(&copy);
    // Matches in a copy may be coincidences in damaged bytes; only termination is checked here.
    let _ = scrub::scrub(path, &copy, false, &NoProgress);
    let _ = std::fs::remove_file(&copy);
    let Ok(profile) = read::open_pruned(path, &UnneededRanges, &NoProgress) else {
        return Ok((false, memory("VmHWM:").saturating_sub(before)));
    };
    let kernels = Kernels::of(&profile);
    let report = judged(profile, rules);
    if let Some(report) = &report {
        views(report)?;
    }
    // The sum below is work of the harness, so memory is measured before it.
    let grown = memory("VmHWM:").saturating_sub(before);
    match undamaged {
        Some(sum) => kernels.compare(sum)?,
        None => kernels.check(path)?,
    }
    Ok((report.is_some(), grown))
}

/// Checks that all views of a report can be rendered and contain no NaN or infinity.
fn views(report: &Report) -> Result<(), String> {
    report::markdown(report).map_err(|e| format!("no Markdown: {e}"))?;
    report::html(report).map_err(|e| format!("no HTML: {e}"))?;
    let _ = report::github(report);
    let terminal = report::text(report, 80);
    let sarif = report::sarif(report);
    serde_json::from_str::<Value>(&sarif).map_err(|e| format!("no SARIF: {e}"))?;
    let json: Value =
        serde_json::from_str(&report::json(report)).map_err(|e| format!("no JSON: {e}"))?;
    finite(&json.to_string())?;
    finite(&terminal)
}

/// The report of a profile; `None` if it cannot be read.
pub(crate) fn report(path: &Path, rules: &RuleSet) -> Option<Report> {
    judged(
        read::open_pruned(path, &UnneededRanges, &NoProgress).ok()?,
        rules,
    )
}

fn judged(profile: Profile, rules: &RuleSet) -> Option<Report> {
    let gpu = select::choose(Some("v100"), &profile).ok()?;
    let costed = estimate_costs(correlate(profile, &VOCABULARY), gpu);
    let facts = FactTable::new(&costed);
    let results = judge(rules, &facts);
    let options = Options {
        top: 10,
        max_sites: 100,
        ..Options::default()
    };
    Some(Report::new(&facts, &results, &options))
}

/// Checks that a text contains no NaN or infinity. In JSON these become `null`, as absent fields do, so
/// only texts show them.
fn finite(text: &str) -> Result<(), String> {
    let part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '+' | '.');
    let mut words = text.split(|c| !part(c));
    match words.find(|w| ["NaN", "inf", "-inf", "+inf"].contains(w)) {
        Some(word) => Err(format!("the report says `{word}`")),
        None => Ok(()),
    }
}

/// The kernels as read by a reader.
pub(crate) struct Kernels {
    rows: usize,
    /// Total time in ns.
    total: i128,
    /// Whether a note explains differences.
    explained: bool,
}

impl Kernels {
    pub(crate) fn of(profile: &Profile) -> Kernels {
        const EXPLAINS: [&str; 6] = [
            "rows_skipped",
            "reversed_times",
            "trace_cut",
            "trace_damaged",
            "counters_only",
            "gpus_left_out",
        ];
        Kernels {
            rows: profile.kernels.len(),
            total: profile
                .kernels
                .iter()
                .map(|k| i128::from(k.span.ns()))
                .sum(),
            explained: profile.notes.iter().any(|n| EXPLAINS.contains(&n.code)),
        }
    }

    /// Checks that their number and total time equal an independent count, or that a note explains the
    /// difference.
    pub(crate) fn check(&self, path: &Path) -> Result<(), String> {
        if self.explained {
            return Ok(());
        }
        match Sum::of(path) {
            Some(sum) => self.compare(sum),
            None => Ok(()),
        }
    }

    /// Checks that number and total time equal those of a count, or that a note explains the difference.
    fn compare(&self, sum: Sum) -> Result<(), String> {
        let same = (self.total - sum.total).abs() <= sum.tolerance && self.rows == sum.rows;
        if self.explained || same {
            return Ok(());
        }
        Err(format!(
            "a silent wrong total: {} kernels of {} ns were read, the file holds {} of {} ns",
            self.rows, self.total, sum.rows, sum.total
        ))
    }
}

/// The kernels of a file, by an independent count.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    rows: usize,
    /// Total time in ns.
    total: i128,
    tolerance: i128,
}

impl Sum {
    /// `None` for a trace that is not valid JSON.
    pub(crate) fn of(path: &Path) -> Option<Sum> {
        let bytes = std::fs::read(path).unwrap_or_default();
        let (rows, total, tolerance) = if bytes.starts_with(b"SQLite format 3\0") {
            let (rows, total) = sum_of_tables(path);
            (rows, total, 0)
        } else {
            let (rows, total) = sum_of_events(&bytes)?;
            // The times of each kernel are rounded to a nanosecond.
            (rows, total, 2 * rows as i128)
        };
        Some(Sum {
            rows,
            total,
            tolerance,
        })
    }
}

fn sum_of_tables(path: &Path) -> (usize, i128) {
    let Ok(db) = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY) else {
        return (0, 0);
    };
    let nvprof = db.prepare("SELECT 1 FROM StringTable").is_ok();
    let tables: &[&str] = if nvprof {
        &[
            "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
            "CUPTI_ACTIVITY_KIND_KERNEL",
        ]
    } else {
        &["CUPTI_ACTIVITY_KIND_KERNEL"]
    };
    let (mut rows, mut total) = (0, 0);
    for table in tables {
        let Ok(mut statement) = db.prepare(&format!("SELECT start, end FROM {table} NOT INDEXED"))
        else {
            continue;
        };
        let mut found = statement.query([]).expect("no parameters");
        while let Ok(Some(row)) = found.next() {
            let number = |at| match row.get_ref(at) {
                Ok(ValueRef::Integer(n)) => Some(i128::from(n)),
                Ok(ValueRef::Real(r)) => Some(r as i128),
                _ => None,
            };
            rows += 1;
            if let (Some(start), Some(end)) = (number(0), number(1)) {
                total += (end - start).max(0);
            }
        }
    }
    (rows, total)
}

/// Number and total time of kernel events in valid JSON; the reader accepts more.
fn sum_of_events(bytes: &[u8]) -> Option<(usize, i128)> {
    const MOST: u64 = 512 << 20;
    let trace: Value = if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut unpacked = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(bytes).take(MOST);
        decoder.read_to_end(&mut unpacked).ok()?;
        serde_json::from_slice(&unpacked).ok()?
    } else {
        serde_json::from_slice(bytes).ok()?
    };
    let events = trace.get("traceEvents").unwrap_or(&trace).as_array()?;
    let (mut rows, mut total) = (0, 0.0);
    for event in events {
        let is = |key: &str, value: &str| {
            event
                .get(key)
                .and_then(Value::as_str)
                .is_some_and(|v| v.eq_ignore_ascii_case(value))
        };
        // An event without a phase counts as complete, as in the reader.
        let whole = event.get("ph").is_none() || is("ph", "X");
        if whole && is("cat", "kernel") {
            rows += 1;
            total += event
                .get("dur")
                .and_then(Value::as_f64)
                .unwrap_or(0.0)
                .max(0.0)
                * 1000.0;
        }
    }
    Some((rows, total as i128))
}

// ---------------------------------------------------------------------------- memory

fn reset_peak() {
    // Linux: 5 resets the peak resident set size (`man 5 proc`).
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Resident memory of the process in bytes, from a line of its status: current or peak.
fn memory(line: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(line));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

// ---------------------------------------------------------------------------- a profile

/// Runs all damage for one profile.
pub(crate) fn torture(harness: &mut Harness, path: &Path, how: How, dice: &mut Dice) {
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let bytes = std::fs::read(path).expect("a profile");
    harness.file(&format!("{name} as it is"), path);
    cuts(harness, &name, &bytes, how.cuts);
    if bytes.starts_with(b"SQLite format 3\0") {
        flips(harness, &name, &bytes, how.flips, dice);
        edits(harness, &name, path, how.one_in, dice);
        if let Some(sum) = Sum::of(path) {
            trees(harness, &name, &bytes, sum, how.flips, dice);
        }
        return;
    }
    let text = if bytes.starts_with(&[0x1f, 0x8b]) {
        // The checksum detects most changes of compressed bytes, so few are made.
        packed_flips(
            harness,
            &name,
            &bytes,
            how.flips / 4,
            how.flips - how.flips / 4,
            dice,
        );
        let mut text = Vec::new();
        let mut decoder = flate2::read::MultiGzDecoder::new(&bytes[..]);
        let _ = decoder.read_to_end(&mut text);
        text
    } else {
        flips(harness, &name, &bytes, how.flips, dice);
        bytes
    };
    let text = String::from_utf8_lossy(&text).into_owned();
    texts(harness, &name, &text, how.one_in, dice);
    if let Some(sum) = Sum::of(path) {
        brackets(harness, &name, &text, sum, how.flips, dice);
    }
}

/// The amount of damage per profile.
#[derive(Clone, Copy)]
pub(crate) struct How {
    pub(crate) cuts: usize,
    /// Variants with bytes changed, and variants with pages or brackets changed.
    pub(crate) flips: usize,
    /// The fraction of the edits of columns and texts, as one in this number; dropped tables and
    /// reversed times are always included.
    pub(crate) one_in: usize,
}
