//! Looks at how the pages of a file refer to each other. Reads only the inner pages of trees, which are a
//! hundredth of a file.

use super::{
    Broken, INDEX_INTERIOR, INDEX_LEAF, INTERIOR, LEAF, MAX_DEPTH, PAGES_AT_ONCE, Pages, Reader,
    Used, array, children, damaged, header_at,
};

/// The page that contains this byte is never used: SQLite locks it.
const LOCKED_BYTE: u32 = 1 << 30;

impl Pages {
    /// Checks that no page belongs to two trees, and that every page of a table belongs to one. `roots` are
    /// the first pages of all tables and indexes.
    ///
    /// In a damaged file, rows may stand in pages that nothing refers to any more: a tree whose root was
    /// replaced by one of its leaves looks like a small table.
    pub(in crate::read::sqlite) fn survey(&self, roots: &[u32]) -> Result<(), Broken> {
        let mut reader = Reader::open(self)?;
        let mut used = Used::new(self.count);
        for root in std::iter::once(1).chain(roots.iter().copied()) {
            used.claim(root)?;
            tree(&mut reader, root, &mut used)?;
        }
        self.unused(&mut reader, &mut used)?;
        self.strays(&mut reader, &used)
    }

    /// Marks the pages that a file keeps for later use.
    fn unused(&self, reader: &mut Reader<'_>, used: &mut Used) -> Result<(), Broken> {
        let mut list = self.unused;
        while list != 0 {
            used.claim(list)?;
            let bytes = reader.page(list)?;
            let long = |at| array(bytes, at).map(u32::from_be_bytes);
            let cut = || damaged(format!("page {list} is cut"));
            let (next, count) = (long(0).ok_or_else(cut)?, long(4).ok_or_else(cut)?);
            for entry in 0..count as usize {
                used.claim(long(8 + 4 * entry).ok_or_else(cut)?)?;
            }
            list = next;
        }
        Ok(())
    }

    /// Looks at the pages that no tree refers to: the rests of long rows, and no page of a table.
    fn strays(&self, reader: &mut Reader<'_>, used: &Used) -> Result<(), Broken> {
        // The rest of a long row begins with the number of a page. Only in a file of more pages than this
        // can its first byte be that of a page of a table.
        if self.count >= u32::from(INTERIOR) << 24 {
            return Ok(());
        }
        let locked = LOCKED_BYTE / self.page_bytes + 1;
        let mut page = 1;
        while page <= self.count {
            let run = (page..=self.count.min(page + PAGES_AT_ONCE - 1))
                .take_while(|page| !used.has(*page))
                .count();
            let run = u32::try_from(run).unwrap_or_default();
            if run == 0 {
                page += 1;
                continue;
            }
            reader.fetch(page, run)?;
            for stray in page..page + run {
                let kind = reader.at(stray)?.first();
                if matches!(kind, Some(&(LEAF | INTERIOR)))
                    && stray != locked
                    && !self.is_map(stray)
                {
                    return Err(damaged(format!("page {stray} belongs to no table")));
                }
            }
            page += run;
        }
        Ok(())
    }

    /// Whether a page only records which page refers to which:
    /// <https://www.sqlite.org/fileformat2.html#pointer_map_or_ptrmap_pages>.
    fn is_map(&self, page: u32) -> bool {
        let entries = u32::try_from(self.usable / 5).unwrap_or(u32::MAX - 1);
        let locked = LOCKED_BYTE / self.page_bytes + 1;
        let map = page.saturating_sub(2) / (entries + 1) * (entries + 1) + 2;
        let map = if map == locked { map + 1 } else { map };
        self.has_maps && page == map
    }
}

/// Marks all pages of a tree below its root.
fn tree(reader: &mut Reader<'_>, root: u32, used: &mut Used) -> Result<(), Broken> {
    let mut open = vec![(root, 0)];
    while let Some((page, depth)) = open.pop() {
        let bytes = reader.page(page)?;
        let header = header_at(page);
        match bytes.get(header) {
            Some(&(LEAF | INDEX_LEAF)) => {}
            Some(&(INTERIOR | INDEX_INTERIOR)) if depth < MAX_DEPTH => {
                let below = children(bytes, header)
                    .ok_or_else(|| damaged(format!("page {page} ends too early")))?;
                for child in &below {
                    used.claim(*child)?;
                }
                // All children of a page are of the same kind.
                let first = below.first().copied().unwrap_or_default();
                let kind = reader.page(first)?.get(header_at(first));
                if !matches!(kind, Some(&(LEAF | INDEX_LEAF))) {
                    open.extend(below.into_iter().map(|page| (page, depth + 1)));
                }
            }
            _ => return Err(damaged(format!("page {page} is no page of a table"))),
        }
    }
    Ok(())
}
