//! Ranges of rowids, in which tables are read in parallel.

/// Rows per range. A smaller table is read by one thread, because opening another connection and
/// parsing the schema takes longer than reading the rows.
const CHUNK_ROWS: u64 = 65_536;
/// Maximum number of ranges of a table. Bounds the work for hostile rowids that are far apart.
pub(super) const MAX_CHUNKS: u64 = 256;

/// A closed range of rowids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) low: i64,
    pub(super) high: i64,
}

impl Chunk {
    pub(super) const ALL: Chunk = Chunk {
        low: i64::MIN,
        high: i64::MAX,
    };

    /// The number of rows if no rowid is missing.
    pub(super) fn rows(&self) -> u64 {
        if self.high < self.low {
            return 0;
        }
        self.high.abs_diff(self.low).saturating_add(1)
    }

    /// Parts of about [`CHUNK_ROWS`] rows, if there are at most `most` rows.
    pub(super) fn split(self, most: u64) -> Vec<Chunk> {
        let rows = self.rows().min(most);
        let count = rows.div_ceil(CHUNK_ROWS).clamp(1, MAX_CHUNKS);
        let step = i64::try_from(self.rows().div_ceil(count)).unwrap_or(i64::MAX);
        let mut out = Vec::new();
        let mut low = self.low;
        loop {
            let high = low.saturating_add(step.saturating_sub(1)).min(self.high);
            out.push(Chunk { low, high });
            if high >= self.high {
                return out;
            }
            low = high.saturating_add(1);
        }
    }
}
