//! Reads tables of whole numbers without a separate [`Sink`].

use super::reader::{Progress, ReadError};
use super::sqlite::{Cells, Db, Sink};

/// Rows of whole numbers; `None` if a column is absent or has another type.
#[derive(Clone)]
struct IntegerRows<const N: usize>(Vec<[Option<i64>; N]>);

impl<const N: usize> Sink for IntegerRows<N> {
    fn row(&mut self, cells: &Cells<'_>) {
        self.0.push(std::array::from_fn(|column| cells.int(column)));
    }
}

/// The rows of `table`, in row order; `None` for values that are not whole numbers. Columns are in the notation of
/// [`Db::stream`].
pub(super) fn rows<const N: usize>(
    db: &Db,
    table: &str,
    columns: [&'static str; N],
    progress: &dyn Progress,
) -> Result<Vec<[Option<i64>; N]>, ReadError> {
    let mut rows = Vec::new();
    for_each_row(db, table, columns, progress, |row| rows.push(row))?;
    Ok(rows)
}

/// Passes the rows of `table` to `take` one by one, in row order, while other threads read the
/// following rows.
pub(super) fn for_each_row<const N: usize>(
    db: &Db,
    table: &str,
    columns: [&'static str; N],
    progress: &dyn Progress,
    mut take: impl FnMut([Option<i64>; N]) + Send,
) -> Result<(), ReadError> {
    let empty = IntegerRows(Vec::new());
    db.stream(table, &columns, &empty, progress, |part| {
        part.0.drain(..).for_each(&mut take);
    })
}
