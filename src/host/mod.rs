//! Floor 2: reads profiles of the host that other profilers wrote: cProfile, line_profiler, py-spy and others.
//!
//! A format is recognized by its content. Files are read as data only: nothing in them is imported,
//! called or evaluated.

use std::io::Read;
use std::path::Path;

mod arena;
mod chrome;
mod classes;
mod collapsed;
mod cprofile;
mod line_profiler;
mod memory;
mod model;
mod pickle;
mod pstats;
mod safe_copy;
mod scalene;
mod speedscope;
mod tables;

pub use classes::{Classes, schema as classes_schema};
pub use model::{
    CodePlace, HostLine, HostProfile, HostSample, IMPORT_TIME, MemorySample, TimedSamples,
    WorkerStack,
};
pub(crate) use safe_copy::write as write_safe_copy;

/// What a file must be.
const EXPECTED: &str = "a cProfile dump or table, an .lprof file or its text, a file of py-spy, a \
                        JSON profile of Scalene, a file or table of memory_profiler, a table of Lightning, torch.profiler or `-X importtime`";

/// A file cannot be read, or is no profile of the host. The message names the file and what was expected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct HostProfileError(String);

/// Reads the profile in a file.
///
/// # Errors
/// When the file cannot be read or is no such profile.
pub fn open(path: &Path) -> Result<HostProfile, HostProfileError> {
    let failed = |problem: String| HostProfileError(format!("{}: {problem}", path.display()));
    let data = bytes(path).map_err(|e| failed(e.to_string()))?;
    let data = data.ok_or_else(|| {
        let limit = crate::base::units::bytes(model::MAX_BYTES as f64);
        failed(format!("larger than {limit}, the limit for host profiles"))
    })?;
    read(&data).ok_or_else(|| failed(format!("not a profile of the host; expected {EXPECTED}")))
}

/// The bytes of a file; `None` if it is too large for a profile of the host.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn bytes(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    let file = std::fs::File::open(path)?;
    let mut data = Vec::new();
    file.take(model::MAX_BYTES + 1).read_to_end(&mut data)?;
    Ok((data.len() as u64 <= model::MAX_BYTES).then_some(data))
}

/// Reads a profile; `None` if the format is not known or the file is damaged.
pub fn read(data: &[u8]) -> Option<HostProfile> {
    if pickle::is_pickle(data) {
        return line_profiler::read(data);
    }
    if let Some(profile) = cprofile::is_dump(data)
        .then(|| cprofile::read(data))
        .flatten()
    {
        return Some(profile);
    }
    let text = std::str::from_utf8(data).ok()?;
    if text.trim_start().starts_with('{') {
        let readers = [speedscope::read, scalene::read, safe_copy::read];
        return readers.iter().find_map(|read| read(text));
    }
    if text.trim_start().starts_with('[') {
        return chrome::read(text);
    }
    let readers: [fn(&str) -> Option<HostProfile>; 8] = [
        pstats::read,
        line_profiler::read_text,
        memory::dat,
        memory::table,
        tables::lightning,
        tables::import_time,
        tables::key_averages,
        collapsed::read,
    ];
    readers.iter().find_map(|read| read(text))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests;
