//! Copies a profile without private data: environment variables, tokens, names of users and machines,
//! home folders.
//!
//! The copy is a new file that contains only content that is known to be harmless or was cleaned. So no
//! free page, deleted row, index, trigger, write-ahead log or compressed remainder can contain anything
//! else. Afterwards, the bytes of the copy are searched for everything that should have been removed.

use std::path::Path;

use crate::profile::Container;
use crate::read::{self, ChangeGuard, Progress};

mod credentials;
mod database;
mod forms;
mod host_profile;
mod outcome;
mod redactor;
mod rescan;
mod source;
mod trace;

use outcome::cannot_write;
pub use outcome::{ScrubError, ScrubSummary};
pub use redactor::RedactionKind;
pub use rescan::Rescan;
pub use source::SourceCleaner;

/// What is searched for by its form, and what is not.
#[derive(Debug, Clone)]
pub struct LookedFor {
    /// Sources of forms, with the number of forms of each.
    pub forms: Vec<(String, usize)>,
    /// Rules of those sources that are not searched for, and why.
    pub left_out: Vec<(String, String)>,
}

/// What [`scrub`] looks for by its form.
pub fn looked_for() -> LookedFor {
    let known = forms::known();
    let left_out = known.left_out.iter();
    LookedFor {
        forms: known.sources.clone(),
        left_out: left_out
            .map(|rule| {
                (
                    format!("{} ({})", rule.id, rule.source),
                    rule.because.clone(),
                )
            })
            .collect(),
    }
}

/// Writes a copy of the profile `from`, of a GPU or of the host, to `to`, an empty file, and searches it for private data.
/// `packed` compresses the copy of a trace.
///
/// # Errors
/// When `from` is not a profile, is damaged, or cannot be read to its end; when `to` cannot be written.
pub fn scrub(
    from: &Path,
    to: &Path,
    packed: bool,
    progress: &dyn Progress,
) -> Result<ScrubSummary, ScrubError> {
    let guard = ChangeGuard::of(from);
    let (copied, is_json) = match host_profile::copy(from, to) {
        Some(_) if packed => {
            let problem = "a profile of the host is copied without compression: leave out `.gz`";
            return Err(ScrubError::Write {
                file: to.display().to_string(),
                problem: problem.to_owned(),
            });
        }
        Some(copied) => (copied, true),
        None if read::recognize(from)?.container == Container::Json => {
            (trace::copy(from, to, packed, progress), true)
        }
        None => (database::copy(from, to, progress), false),
    };
    let (mut summary, redactor) = guard.confirm(from, copied)?;
    progress.phase("looking through the copy", None);
    let rescan = rescan::rescan(to, &redactor, is_json);
    summary.rescan = rescan.map_err(|e| cannot_write(to, &e))?;
    Ok(summary)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::read::NoProgress;
    use std::io::Read;

    /// Checks that secrets are in profiles of every kind, and no longer in their copies. Each is given with
    /// its name and the text around it.
    pub(super) fn all_leave(examples: &[(String, String, String)]) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let texts: Vec<&str> = examples.iter().map(|(_, text, _)| text.as_str()).collect();

        let db = rusqlite::Connection::open(at("net.sqlite")).unwrap();
        db.execute_batch(
            "BEGIN; CREATE TABLE StringIds (id INTEGER, value TEXT);
             CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, text TEXT, textId INTEGER);
             CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, shortName INTEGER);
             CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);",
        )
        .unwrap();
        for (id, text) in texts.iter().enumerate() {
            db.execute("INSERT INTO StringIds VALUES (?1, ?2)", (id as i64, text))
                .unwrap();
            db.execute(
                "INSERT INTO NVTX_EVENTS VALUES (1, 2, ?2, ?1)",
                (id as i64, text),
            )
            .unwrap();
            db.execute(
                "INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_PLATFORM', ?1)",
                [text],
            )
            .unwrap();
        }
        // The rows stay in pages that are not used any more.
        db.execute_batch(
            "CREATE TABLE gone AS SELECT * FROM NVTX_EVENTS; COMMIT; DROP TABLE gone;",
        )
        .unwrap();
        drop(db);

        let events: Vec<String> = texts
            .iter()
            .map(|text| {
                let name = serde_json::Value::from(*text);
                let nested = serde_json::Value::from(serde_json::json!({ "a": text }).to_string());
                format!("{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"ts\": 1, \"dur\": 1, \"name\": {name}, \"args\": {{\"b\": {nested}}}}}")
            })
            .collect();
        let trace = format!(
            "{{\"schemaVersion\": 1, \"traceEvents\": [{}]}}",
            events.join(",\n")
        );
        std::fs::write(at("net.json"), &trace).unwrap();

        for (from, to, packed) in [
            ("net.sqlite", "copy.sqlite", false),
            ("net.json", "copy.json", false),
            ("net.json", "copy.json.gz", true),
        ] {
            let summary = scrub(&at(from), &at(to), packed, &NoProgress).unwrap();
            assert!(summary.rescan.is_clean(), "{to}: {:?}", summary.rescan);
            let bytes = |name: &str| std::fs::read(at(name)).unwrap();
            let (original, mut copy) = (bytes(from), bytes(to));
            if packed {
                let mut text = Vec::new();
                flate2::read::MultiGzDecoder::new(copy.as_slice())
                    .read_to_end(&mut text)
                    .unwrap();
                copy = text;
            }
            for (id, text, secret) in examples {
                let has = |bytes: &[u8]| memchr::memmem::find(bytes, secret.as_bytes()).is_some();
                assert!(has(&original), "{id}: {secret} is not in {from}");
                assert!(!has(&copy), "{id}: {secret} of {text} is in {to}");
            }
        }
    }
}
