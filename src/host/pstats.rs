//! Tables that `pstats.Stats.print_stats()` prints: of cProfile, and of Lightning's `AdvancedProfiler`.

use super::model::{HostLine, HostProfile};

/// How the table begins.
const HEADER: [&str; 6] = [
    "ncalls",
    "tottime",
    "percall",
    "cumtime",
    "percall",
    "filename:lineno(function)",
];
/// How Lightning begins the table of each action.
const ACTION: &str = "Profile stats for: ";

/// `None` if the text has no such table.
pub(super) fn read(text: &str) -> Option<HostProfile> {
    let is_header = |line: &str| line.split_whitespace().eq(HEADER);
    text.lines().any(is_header).then_some(())?;
    let lightning = text.lines().any(|line| line.starts_with(ACTION));
    let profiler = if lightning {
        "Lightning AdvancedProfiler"
    } else {
        super::cprofile::PROFILER
    };
    let mut table = Table::default();
    let mut lines = Vec::new();
    for line in text.lines() {
        if let Some(action) = line.strip_prefix(ACTION) {
            table = Table {
                action,
                ..Table::default()
            };
        } else if is_header(line) {
            table.inside = true;
        } else if line.trim().is_empty() {
            lines.extend(table.end());
        } else if table.inside {
            if let Some(row) = row(line) {
                table.listed_ns += row.self_ns;
                lines.push(row);
            }
        } else {
            table.reduced |= line.trim_start().starts_with(REDUCED);
            table.total_ns = seconds(line).unwrap_or(table.total_ns);
        }
    }
    lines.extend(table.end());
    Some(HostProfile::of(profiler, lines))
}

/// Says that only some of the functions are listed.
const REDUCED: &str = "List reduced from ";

/// What stands above a table, and the sum of its rows.
#[derive(Debug, Default)]
struct Table<'a> {
    /// The action that Lightning measured; empty in other tables.
    action: &'a str,
    total_ns: f64,
    listed_ns: f64,
    /// Whether functions are left out.
    reduced: bool,
    inside: bool,
}

impl Table<'_> {
    /// The functions that a table leaves out, as one row, where its rows end.
    fn end(&mut self) -> Option<HostLine> {
        if !std::mem::take(&mut self.inside) {
            return None;
        }
        let table = std::mem::take(self);
        let rest_ns = table.total_ns - table.listed_ns;
        (table.reduced && rest_ns > 0.0).then(|| HostLine {
            function: match table.action {
                "" => "functions that the list leaves out".to_owned(),
                action => format!("{action}: functions that its list leaves out"),
            },
            self_ns: rest_ns,
            ..HostLine::default()
        })
    }
}

/// `0.149` of `536 function calls (530 primitive calls) in 0.149 seconds`, in ns.
fn seconds(line: &str) -> Option<f64> {
    let (_, after) = line.split_once(" function calls ")?;
    let (_, time) = after.rsplit_once("in ")?;
    let seconds: f64 = time.trim_end().strip_suffix(" seconds")?.parse().ok()?;
    seconds.is_finite().then_some(seconds * 1e9)
}

/// `60/12  0.021  0.000  0.048  0.001 job.py:3(decode)` or `... {built-in method time.sleep}`.
fn row(line: &str) -> Option<HostLine> {
    let mut rest = line.trim_start();
    let mut cells = [""; 5];
    for cell in &mut cells {
        let (head, tail) = rest.split_once(char::is_whitespace)?;
        (*cell, rest) = (head, tail.trim_start());
    }
    let [calls, own, _, _, _] = cells;
    let calls = calls.split('/').next()?.parse().ok()?;
    let seconds: f64 = own.parse().ok()?;
    let (file, number, function) = place(rest.trim_end()).unwrap_or(("", 0, rest.trim_end()));
    Some(HostLine {
        file: file.to_owned(),
        line: number,
        function: function.to_owned(),
        calls,
        self_ns: seconds * 1e9,
        ..HostLine::default()
    })
}

/// The parts of `file:line(function)`.
fn place(text: &str) -> Option<(&str, u32, &str)> {
    let (head, function) = text.strip_suffix(')')?.split_once('(')?;
    let (file, line) = head.rsplit_once(':')?;
    Some((file, line.parse().ok()?, function))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The functions of a table with their own times in ms.
    fn own_times(above: &str) -> Vec<(String, f64)> {
        let header = HEADER.join("  ");
        let text = format!(
            "{above}\n\n   {header}\n   8  0.020  0.002  0.149  0.019 job.py:3(decode)\n\n"
        );
        let lines = read(&text).unwrap().lines;
        (lines.into_iter())
            .map(|line| (line.function, (line.self_ns / 1e6).round()))
            .collect()
    }

    #[test]
    fn functions_that_a_list_leaves_out_keep_their_time() {
        let total = "536 function calls (530 primitive calls) in 0.149 seconds";
        let reduced = "   List reduced from 53 to 1 due to restriction <1>";
        let decode = ("decode".to_owned(), 20.0);
        assert_eq!(own_times(total), std::slice::from_ref(&decode));
        let rest = ("functions that the list leaves out".to_owned(), 129.0);
        assert_eq!(
            own_times(&format!("{total}\n\n{reduced}")),
            [rest, decode.clone()]
        );
        let of_action = format!("{ACTION}train\n{total}\n\n{reduced}");
        let rest = (
            "train: functions that its list leaves out".to_owned(),
            129.0,
        );
        assert_eq!(own_times(&of_action), [rest, decode]);
    }
}
