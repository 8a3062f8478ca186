//! Counts rows that cannot be read, or only after a repair.

use crate::base::units;
use crate::profile::{Profile, Span};

/// Maximum time in ns (146 years either way); later times are damaged. nvprof counts from 1970, Nsight
/// Systems from the start of the capture.
const TIME_LIMIT: i64 = 1 << 62;
/// Maximum length of an activity or a call in ns (30 days); the end time of a longer one is damaged.
const LONGEST: i64 = 30 * 24 * 3600 * 1_000_000_000;

/// Counts the rows of one table that were skipped or repaired, by reason.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SkippedRows {
    /// Number of rows of the table that were read.
    pub(super) rows: u64,
    no_start: u64,
    no_end: u64,
    /// Both times are 0: CUPTI has no times for the record.
    untimed: u64,
    no_owner: u64,
    no_value: u64,
    reversed: u64,
}

impl SkippedRows {
    /// The start of a row, if it is plausible.
    pub(super) fn start(&mut self, start: Option<i64>) -> Option<i64> {
        let start = start.filter(|t| (-TIME_LIMIT..=TIME_LIMIT).contains(t));
        self.no_start += u64::from(start.is_none());
        start
    }

    /// A closed interval. One that ends before it starts keeps its start and has length 0.
    pub(super) fn span(&mut self, start: Option<i64>, end: Option<i64>) -> Option<Span> {
        let start = self.start(start)?;
        let end = end.filter(|&t| t <= TIME_LIMIT && t.saturating_sub(start) <= LONGEST);
        self.no_end += u64::from(end.is_none());
        let end = end?;
        self.reversed += u64::from(end < start);
        Some(Span {
            start,
            end: end.max(start),
        })
    }

    /// As [`SkippedRows::span`], for GPU records.
    pub(super) fn gpu_span(&mut self, start: Option<i64>, end: Option<i64>) -> Option<Span> {
        if (start, end) == (Some(0), Some(0)) {
            self.untimed += 1;
            return None;
        }
        self.span(start, end)
    }

    /// The device, thread or process of a row; a row without it is skipped.
    pub(super) fn owner<T>(&mut self, owner: Option<T>) -> Option<T> {
        self.no_owner += u64::from(owner.is_none());
        owner
    }

    /// A required value of a row; a row without it is skipped.
    pub(super) fn value<T>(&mut self, value: Option<T>) -> Option<T> {
        self.no_value += u64::from(value.is_none());
        value
    }

    /// Adds the counts of another part of the table.
    pub(super) fn add(&mut self, other: &SkippedRows) {
        self.rows += other.rows;
        self.no_start += other.no_start;
        self.no_end += other.no_end;
        self.untimed += other.untimed;
        self.no_owner += other.no_owner;
        self.no_value += other.no_value;
        self.reversed += other.reversed;
    }

    /// Adds notes about the skipped rows to the profile. `owner` and `value` name those columns of this
    /// table, `kind` its rows.
    pub(super) fn note(&self, profile: &mut Profile, kind: &str, owner: &str, value: &str) {
        let rows = units::count(self.rows);
        let mut note = |count: u64, code: &'static str, what: &str| {
            if count > 0 {
                let count = units::count(count);
                profile.note(code, format!("{count} of {rows} {kind} rows {what}"));
            }
        };
        for (count, what) in [
            (self.no_start, "start time"),
            (self.no_end, "end time"),
            (self.no_owner, owner),
            (self.no_value, value),
        ] {
            let what = format!("had no readable {what} and were skipped.");
            note(count, "rows_skipped", &what);
        }
        let untimed = "were skipped: the profiler could not collect their times.";
        note(self.untimed, "rows_skipped", untimed);
        let reversed = "end before they start; they are kept with a length of zero.";
        note(self.reversed, "reversed_times", reversed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_rows_are_counted_and_noted() {
        let mut skipped = SkippedRows {
            rows: 4010,
            ..SkippedRows::default()
        };
        assert_eq!(skipped.span(None, Some(1)), None);
        assert_eq!(skipped.span(Some(i64::MAX), Some(1)), None);
        assert_eq!(skipped.span(Some(1), Some(i64::MAX)), None);
        assert_eq!(skipped.gpu_span(Some(0), Some(0)), None);
        assert_eq!(
            skipped.span(Some(10), Some(4)),
            Some(Span { start: 10, end: 10 })
        );
        assert_eq!(
            skipped.span(Some(-10), Some(4)),
            Some(Span { start: -10, end: 4 })
        );
        let mut profile = Profile::new(&crate::read::NSYS_SQLITE, "x");
        skipped.note(&mut profile, "kernel", "device", "size");
        let notes: Vec<&str> = profile.notes.iter().map(|n| n.text.as_str()).collect();
        assert_eq!(
            notes,
            [
                "2 of 4,010 kernel rows had no readable start time and were skipped.",
                "1 of 4,010 kernel rows had no readable end time and were skipped.",
                "1 of 4,010 kernel rows were skipped: the profiler could not collect their times.",
                "1 of 4,010 kernel rows end before they start; they are kept with a length of \
                 zero.",
            ]
        );
    }
}
