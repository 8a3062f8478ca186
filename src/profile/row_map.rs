//! Values for some rows of a table.

/// Values by row number. A look-up is two reads, which for millions of rows takes a fraction of the time of a hash
/// table.
#[derive(Debug, Clone)]
pub(crate) struct RowMap<V> {
    /// Per row of the table: one more than the place of its value; 0 where there is none.
    places: Vec<u32>,
    values: Vec<V>,
}

impl<V> RowMap<V> {
    /// No values for a table of so many rows. Rows beyond them have none.
    pub(crate) fn for_rows(rows: usize) -> RowMap<V> {
        RowMap {
            places: vec![0; rows],
            values: Vec::new(),
        }
    }

    /// Sets the value of a row.
    pub(crate) fn insert(&mut self, row: usize, value: V) {
        let Some(place) = self.places.get_mut(row) else {
            return;
        };
        match (*place as usize).checked_sub(1) {
            Some(known) => {
                if let Some(known) = self.values.get_mut(known) {
                    *known = value;
                }
            }
            None => {
                self.values.push(value);
                *place = u32::try_from(self.values.len()).unwrap_or(0);
            }
        }
    }

    /// The value of a row.
    pub(crate) fn get(&self, row: usize) -> Option<&V> {
        let place = *self.places.get(row)? as usize;
        self.values.get(place.checked_sub(1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::RowMap;

    #[test]
    fn rows_have_the_value_set_last() {
        let mut map = RowMap::for_rows(4);
        for (row, value) in [(3, 'a'), (0, 'b'), (3, 'c'), (4, 'd')] {
            map.insert(row, value);
        }
        let values: Vec<Option<char>> = (0..5).map(|row| map.get(row).copied()).collect();
        assert_eq!(values, [Some('b'), None, None, Some('c'), None]);
    }
}
