//! Ways to damage the bytes, the tables and the text of a profile.

use std::io::{Read, Write};
use std::path::Path;

use rusqlite::Connection;

use super::Harness;

/// `splitmix64` (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Truncates a file at `count` positions, including in the first bytes and before the last.
pub(crate) fn cuts(harness: &mut Harness, name: &str, bytes: &[u8], count: usize) {
    for n in 0..count {
        let at = bytes.len() * n / count.max(1);
        harness.bytes(
            &format!("{name} cut at {at}"),
            bytes.get(..at).unwrap_or_default(),
        );
    }
}

/// Changes 1 to 64 bytes, in `count` variants. Half of them in the first pages, which contain the
/// schema.
pub(crate) fn flips(
    harness: &mut Harness,
    name: &str,
    bytes: &[u8],
    count: usize,
    dice: &mut Dice,
) {
    for n in 0..count {
        let mut damaged = bytes.to_vec();
        let within = if n % 2 == 0 {
            damaged.len()
        } else {
            damaged.len().min(16 << 10)
        };
        for _ in 0..=dice.below(64) {
            let at = dice.below(within);
            if let Some(byte) = damaged.get_mut(at) {
                *byte = dice.next() as u8;
            }
        }
        harness.bytes(&format!("{name} with bytes changed, variant {n}"), &damaged);
    }
}

/// The same for a compressed trace: some variants of its compressed bytes, and some of its text,
/// compressed again.
pub(crate) fn packed_flips(
    harness: &mut Harness,
    name: &str,
    bytes: &[u8],
    outside: usize,
    inside: usize,
    dice: &mut Dice,
) {
    flips(harness, name, bytes, outside, dice);
    let mut text = Vec::new();
    let _ = flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut text);
    for n in 0..inside {
        let mut damaged = text.clone();
        for _ in 0..=dice.below(64) {
            let at = dice.below(damaged.len());
            if let Some(byte) = damaged.get_mut(at) {
                // Mostly syntax characters, so that much of the text can still be parsed.
                *byte = match dice.below(4) {
                    0 => dice.next() as u8,
                    _ => SIGNS[dice.below(SIGNS.len())],
                };
            }
        }
        let what = format!("{name} with its text changed, variant {n}");
        harness.bytes(&what, &packed(&damaged));
    }
}

const SIGNS: &[u8] = b"0123456789-+.eE\"\\{}[],: tfn\n\0";

pub(crate) fn packed(text: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(text).expect("memory");
    packer.finish().expect("memory")
}

/// The edits of every column: its name, then its values.
const VALUES: &[(&str, &str)] = &[
    ("NULL", "NULL"),
    ("text", "'x\u{1}|<'"),
    ("blob", "x'00ff41'"),
    ("negative", "-1"),
    ("the largest", "9223372036854775807"),
    ("the smallest", "-9223372036854775808"),
    ("real", "1e300"),
];

/// Drops tables and reverses times; renames columns and replaces values, every `one_in`th of them.
pub(crate) fn edits(
    harness: &mut Harness,
    name: &str,
    original: &Path,
    one_in: usize,
    dice: &mut Dice,
) {
    let path = harness.at("edited");
    let fresh = || -> Connection {
        let _ = std::fs::remove_file(&path);
        std::fs::copy(original, &path).expect("a copy");
        let mut permissions = std::fs::metadata(&path).expect("it is there").permissions();
        #[allow(clippy::permissions_set_readonly_false)]
        permissions.set_readonly(false);
        std::fs::set_permissions(&path, permissions).expect("one's own file");
        Connection::open(&path).expect("a database")
    };
    let mut always: Vec<String> = Vec::new();
    let mut sometimes: Vec<String> = Vec::new();
    {
        let db = fresh();
        let tables: Vec<String> = db
            .prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1")
            .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
            .unwrap_or_default();
        for table in tables {
            always.push(format!("DROP TABLE \"{table}\""));
            let columns: Vec<String> = db
                .prepare(&format!("PRAGMA table_info(\"{table}\")"))
                .and_then(|mut s| s.query_map([], |row| row.get(1))?.collect())
                .unwrap_or_default();
            for column in &columns {
                sometimes.push(format!(
                    "ALTER TABLE \"{table}\" RENAME COLUMN \"{column}\" TO renamed"
                ));
                for (_, value) in VALUES {
                    sometimes.push(format!("UPDATE \"{table}\" SET \"{column}\" = {value}"));
                }
                sometimes.push(format!(
                    "UPDATE \"{table}\" SET \"{column}\" = 9223372036854775807 WHERE rowid % 3 = 0"
                ));
            }
            if columns.iter().any(|c| c == "start") && columns.iter().any(|c| c == "end") {
                always.push(format!("UPDATE \"{table}\" SET start = end, end = start"));
                always.push(format!("UPDATE \"{table}\" SET end = NULL"));
                always.push(format!(
                    "UPDATE \"{table}\" SET start = 0, end = 9000000000000000000"
                ));
            }
        }
    }
    sometimes.retain(|_| one_in <= 1 || dice.below(one_in) == 0);
    for statement in always.into_iter().chain(sometimes) {
        let db = fresh();
        // Edits that a column does not allow are skipped.
        if db.execute_batch(&statement).is_ok() {
            drop(db);
            harness.file(&format!("{name} after {statement}"), &path);
        }
    }
}

/// Edits the text of a trace.
pub(crate) fn texts(harness: &mut Harness, name: &str, text: &str, one_in: usize, dice: &mut Dice) {
    let mut case = |what: &str, bytes: Vec<u8>| {
        if one_in <= 1 || dice.below(one_in) == 0 {
            harness.bytes(&format!("{name}: {what}"), &bytes);
        }
    };
    let quotes: Vec<usize> = text.match_indices('"').map(|(at, _)| at).collect();
    for part in 1..20 {
        if let Some(at) = quotes.get(quotes.len() * part / 20) {
            let cut = text
                .get(..at + 2)
                .or_else(|| text.get(..at + 1))
                .unwrap_or_default();
            case("cut inside a string", cut.into());
        }
    }
    for key in [
        "ts",
        "dur",
        "pid",
        "tid",
        "correlation",
        "device",
        "stream",
        "Input Dims",
        "name",
        "cat",
        "args",
    ] {
        let quoted = format!("\"{key}\":");
        for value in [
            "1e400",
            "-1e400",
            "-1",
            "9223372036854775808",
            "18446744073709551616",
            "null",
            "\"x\"",
            "[]",
            "{}",
            "true",
            "NaN",
            "[[[[9999999999,9999999999],[-1]]]]",
            "1e-400",
            "0.1e",
        ] {
            // The old value is kept under an unused key.
            let replaced = text.replace(&quoted, &format!("{quoted} {value}, \"was\":"));
            case(&format!("{key} is {value}"), replaced.into());
        }
        case(
            &format!("{key} twice"),
            text.replace(&quoted, &format!("{quoted} 1, {quoted}"))
                .into(),
        );
        case(
            &format!("no {key}"),
            text.replace(&quoted, "\"gone\":").into(),
        );
    }
    case(
        "a member twice",
        text.replacen(
            "\"traceEvents\":",
            "\"traceEvents\": [], \"traceEvents\":",
            1,
        )
        .into(),
    );
    case(
        "no end to any event",
        text.replace("\"ph\": \"X\"", "\"ph\": \"B\"")
            .replace("\"ph\":\"X\"", "\"ph\":\"B\"")
            .into(),
    );
    case(
        "half a surrogate in every name",
        text.replace("\"name\": \"", "\"name\": \"\\ud800").into(),
    );
    case(
        "an escape that is none",
        text.replace("\"name\": \"", "\"name\": \"\\x").into(),
    );
    case("a byte order mark", format!("\u{feff}{text}").into());
    case(
        "UTF-16",
        text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
    );
    case("zero bytes", text.replace(' ', "\0").into());
    case(
        "two traces behind each other",
        format!("{text}{text}").into(),
    );
    case(
        "two packed traces behind each other",
        [packed(text.as_bytes()), packed(text.as_bytes())].concat(),
    );
    case("packed twice", packed(&packed(text.as_bytes())));
    case(
        "packed, with something behind",
        [packed(text.as_bytes()), b"something".to_vec()].concat(),
    );
    let mut invalid = text.as_bytes().to_vec();
    for at in (0..invalid.len()).step_by(97) {
        if let Some(byte) = invalid.get_mut(at) {
            *byte = 0xff;
        }
    }
    case("bytes that are not UTF-8", invalid);
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        let nested = text.replacen("\"args\":", &format!("\"args\": {deep}, \"was\":"), 1);
        case("nested 100,000 deep", nested.into());
        case(
            "nested and never closed",
            format!("{{\"traceEvents\": [{}", open.repeat(100_000)).into(),
        );
        case(
            "a member nested deep",
            format!("{{\"x\": {deep}, \"traceEvents\": []}}").into(),
        );
    }
}
