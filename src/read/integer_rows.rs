//! Reads tables of whole numbers without a separate [`Sink`].

use super::reader::{Progress, ReadError};
use super::sqlite::{Cells, Db, Sink};

/// Rows of whole numbers; `None` if a column is absent or has another type.
#[derive(Clone)]
struct IntegerRows<C, const N: usize> {
    rows: Vec<[Option<i64>; N]>,
    columns: std::marker::PhantomData<C>,
}

/// The columns of a table that are read.
pub(super) trait Columns: Clone + Send + Sync + 'static {
    /// In the notation of [`Sink::COLUMNS`].
    const COLUMNS: &'static [&'static str];
}

impl<C: Columns, const N: usize> Sink for IntegerRows<C, N> {
    const COLUMNS: &'static [&'static str] = C::COLUMNS;

    fn row(&mut self, cells: &Cells<'_, '_>) {
        self.rows
            .push(std::array::from_fn(|column| cells.int(column)));
    }
}

/// The rows of `table`, in row order; `None` for values that are not whole numbers.
pub(super) fn rows<C: Columns, const N: usize>(
    db: &Db,
    table: &str,
    columns: C,
    progress: &dyn Progress,
) -> Result<Vec<[Option<i64>; N]>, ReadError> {
    let mut rows = Vec::new();
    for_each_row(db, table, columns, progress, |row| rows.push(row))?;
    Ok(rows)
}

/// Passes the rows of `table` to `take` one by one, in row order, while other threads read the
/// following rows.
pub(super) fn for_each_row<C: Columns, const N: usize>(
    db: &Db,
    table: &str,
    _columns: C,
    progress: &dyn Progress,
    mut take: impl FnMut([Option<i64>; N]) + Send,
) -> Result<(), ReadError> {
    let empty = IntegerRows::<C, N> {
        rows: Vec::new(),
        columns: std::marker::PhantomData,
    };
    db.stream(table, &empty, progress, |part| {
        part.rows.drain(..).for_each(&mut take);
    })
}

/// Declares a type that names the columns to read, in the notation of [`Sink::COLUMNS`].
macro_rules! columns {
    ($name:ident, [$($column:literal),+ $(,)?]) => {
        #[derive(Clone)]
        struct $name;
        impl $crate::read::integer_rows::Columns for $name {
            const COLUMNS: &'static [&'static str] = &[$($column),+];
        }
    };
}
pub(super) use columns;
