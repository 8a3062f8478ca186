//! Reports that were written with `--format json`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::output::Failure;
use crate::base::units;
use crate::report::{self, Report};

/// Maximum size of a report file, in bytes; real reports are smaller.
const MAX_BYTES: u64 = 256 << 20;
/// Bytes of a file that [`is_report`] reads.
const HEAD_BYTES: u64 = 64 << 10;

/// Reads one of several reports. The report of a job is an error, because it cannot be split.
pub(super) fn one(path: &Path) -> Result<Report, Failure> {
    let report = read(path)?;
    if report.job.is_some() {
        return Err(Failure::Unusable(format!(
            "{}: this report is of several profiles already\n  give the reports that it was merged from",
            path.display()
        )));
    }
    Ok(report)
}

/// Reads a report of one profile or of a job.
pub(super) fn read(path: &Path) -> Result<Report, Failure> {
    let fail = |why: String| Failure::Unusable(format!("{}: {why}", path.display()));
    let mut text = String::new();
    let bytes = File::open(path)
        .and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text))
        .map_err(|error| match error.kind() {
            std::io::ErrorKind::InvalidData => fail(
                "not a JSON report (it is not text)\n  give profiles to `pyprof-advise` itself; this takes \
                 what it wrote with `--format json`"
                    .into(),
            ),
            _ => fail(error.to_string()),
        })?;
    if bytes as u64 > MAX_BYTES {
        return Err(fail(format!(
            "expected a report, found a file of more than {}",
            units::bytes(MAX_BYTES as f64)
        )));
    }
    report::read_json(&text).map_err(|error| fail(error.to_string()))
}

/// Whether a file looks like a JSON report of this program, by the beginning of its text.
pub(super) fn is_report(path: &Path) -> bool {
    let mut head = Vec::new();
    let read = std::fs::metadata(path)
        .ok()
        .filter(std::fs::Metadata::is_file)
        .and_then(|_| File::open(path).ok())
        .and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head).ok());
    let text = String::from_utf8_lossy(&head);
    read.is_some()
        && text.trim_start().starts_with('{')
        && text.contains("\"schema_version\"")
        && !text.contains("\"traceEvents\"")
}
