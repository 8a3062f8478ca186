//! Damage to the structure of a profile: pages of a database copied, halved, repeated and exchanged,
//! brackets of a trace moved. What is left looks well-formed piece by piece, so only a comparison with
//! the undamaged profile shows what is missing.

use super::damage::{Dice, packed};
use super::{Harness, Sum};

/// The pages of the tables of kernels, and all pages of tables, numbered from 0.
fn pages(harness: &Harness, bytes: &[u8], page_bytes: usize) -> (Vec<usize>, Vec<usize>) {
    let at = |page: usize| page * page_bytes;
    let long = |at: usize| -> usize {
        let bytes: [u8; 4] = bytes
            .get(at..at + 4)
            .and_then(|b| b.try_into().ok())
            .unwrap_or_default();
        u32::from_be_bytes(bytes) as usize
    };
    let short = |at: usize| long(at) >> 16;
    let all: Vec<usize> = (1..bytes.len() / page_bytes)
        .filter(|page| matches!(bytes.get(at(*page)), Some(5 | 13)))
        .collect();
    // The declaration of a table follows the number of its first page in the schema; instead of parsing
    // it, SQLite is asked.
    let path = harness.at("undamaged");
    std::fs::write(&path, bytes).expect("a copy");
    let db = rusqlite::Connection::open(&path).expect("a database");
    let mut roots: Vec<i64> = db
        .prepare("SELECT rootpage FROM sqlite_schema WHERE type = 'table' AND name LIKE '%KERNEL'")
        .and_then(|mut s| s.query_map([], |row| row.get(0))?.collect())
        .unwrap_or_default();
    let mut kernels = Vec::new();
    while let Some(root) = roots.pop() {
        let page = root as usize - 1;
        kernels.push(page);
        if bytes.get(at(page)) == Some(&5) {
            let cells = (0..short(at(page) + 3)).map(|n| short(at(page) + 12 + 2 * n));
            roots.extend(cells.map(|cell| long(at(page) + cell) as i64));
            roots.push(long(at(page) + 8) as i64);
        }
    }
    (kernels, all)
}

/// Changes one page of a database, in `count` variants; half of them are pages of kernels.
pub(crate) fn trees(
    harness: &mut Harness,
    name: &str,
    bytes: &[u8],
    sum: Sum,
    count: usize,
    dice: &mut Dice,
) {
    let page_bytes = match bytes.get(16..18) {
        Some([0, 1]) => 65_536,
        Some([high, low]) => usize::from(*high) << 8 | usize::from(*low),
        _ => return,
    };
    let (kernels, all) = pages(harness, bytes, page_bytes);
    if kernels.is_empty() || all.is_empty() {
        return;
    }
    for n in 0..count {
        let of = |list: &[usize], dice: &mut Dice| list[dice.below(list.len())];
        let page = of(if n % 2 == 0 { &kernels } else { &all }, dice);
        let other = of(if n % 4 < 2 { &kernels } else { &all }, dice);
        let (at, from) = (page * page_bytes, other * page_bytes);
        let mut damaged = bytes.to_vec();
        let header = if damaged[at] == 5 { 12 } else { 8 };
        let cells = usize::from(damaged[at + 3]) << 8 | usize::from(damaged[at + 4]);
        let cell = |n: usize| at + header + 2 * n;
        let what = match dice.below(6) {
            0 => {
                damaged.copy_within(from..from + page_bytes, at);
                format!("page {other} copied over page {page}")
            }
            1 => {
                let half = ((cells / 2) as u16).to_be_bytes();
                damaged[at + 3..at + 5].copy_from_slice(&half);
                format!("half of page {page}")
            }
            2 if cells > 1 => {
                let same = dice.below(cells);
                for n in 0..cells {
                    damaged.copy_within(cell(same)..cell(same + 1), cell(n));
                }
                format!("one cell of page {page} repeated")
            }
            3 => {
                let (first, second) = damaged.split_at_mut(at.max(from));
                let (low, high) = (at.min(from), page_bytes);
                if at != from {
                    first[low..low + high].swap_with_slice(&mut second[..high]);
                }
                format!("page {page} exchanged with page {other}")
            }
            4 => {
                // A child of an inner page, the last or one of its cells; bytes of a cell in a leaf.
                let number = (other as u32 + 1).to_be_bytes();
                let child = match dice.below(cells + 1) {
                    n if header == 12 && n < cells => {
                        let cell = cell(n);
                        at + (usize::from(damaged[cell]) << 8 | usize::from(damaged[cell + 1]))
                    }
                    _ => at + 8,
                };
                damaged[child..child + 4].copy_from_slice(&number);
                format!("page {page} leads to page {other}")
            }
            _ => {
                let fewer = cells.saturating_sub(1 + dice.below(3)) as u16;
                damaged[at + 3..at + 5].copy_from_slice(&fewer.to_be_bytes());
                format!("page {page} of {fewer} cells")
            }
        };
        if !is_sound(harness, &damaged) {
            harness.restructured(&format!("{name}: {what}"), &damaged, sum);
        }
    }
}

/// Whether SQLite's own check finds nothing wrong: an exchange of pages between two tables of the same form
/// leaves two sound tables with other rows.
fn is_sound(harness: &Harness, bytes: &[u8]) -> bool {
    let path = harness.at("damaged");
    std::fs::write(&path, bytes).expect("a case can be written");
    let db = rusqlite::Connection::open(&path).expect("a database");
    let said = db.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
    said.is_ok_and(|said| said == "ok")
}

/// Removes, doubles, replaces and moves one bracket, brace or comma of a trace, in `count` variants; then
/// adds what follows a trace that was appended to.
pub(crate) fn brackets(
    harness: &mut Harness,
    name: &str,
    text: &str,
    sum: Sum,
    count: usize,
    dice: &mut Dice,
) {
    const SIGNS: &[u8] = b"[]{},";
    let mut signs = Vec::new();
    let (mut inside, mut escaped) = (false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = inside,
            b'"' => inside = !inside,
            byte if !inside && SIGNS.contains(&byte) => signs.push(at),
            _ => {}
        }
    }
    if signs.is_empty() {
        return;
    }
    for _ in 0..count {
        let at = signs[dice.below(signs.len())];
        let to = signs[dice.below(signs.len())];
        let mut damaged = text.as_bytes().to_vec();
        let sign = char::from(damaged[at]);
        let what = match dice.below(4) {
            0 => {
                damaged.remove(at);
                format!("`{sign}` at {at} removed")
            }
            1 => {
                damaged.insert(at, damaged[at]);
                format!("`{sign}` at {at} doubled")
            }
            2 => {
                let new = SIGNS[dice.below(SIGNS.len())];
                damaged[at] = new;
                format!("`{sign}` at {at} became `{}`", char::from(new))
            }
            _ => {
                let byte = damaged.remove(at);
                damaged.insert(to.min(damaged.len()), byte);
                format!("`{sign}` at {at} moved to {to}")
            }
        };
        harness.restructured(&format!("{name}: {what}"), &damaged, sum);
    }
    for (what, behind) in [
        ("itself", text),
        ("a brace", "}"),
        ("a word", "x"),
        ("a zero", "\0"),
    ] {
        let longer = format!("{text}{behind}").into_bytes();
        harness.restructured(&format!("{name} followed by {what}"), &longer, sum);
        harness.restructured(
            &format!("{name} followed by {what}, packed"),
            &packed(&longer),
            sum,
        );
    }
    let twice = text.replacen(
        "\"traceEvents\":",
        "\"traceEvents\":[{\"a\":1}],\"traceEvents\":",
        1,
    );
    harness.restructured(&format!("{name} with two lists"), twice.as_bytes(), sum);
}
