//! Reads rows of ordinary tables directly from the pages of a file: without a statement per row, a page
//! cache or a call per column. A large export is read in a third of the time.
//!
//! The format is documented and stable: <https://www.sqlite.org/fileformat2.html>, sections 1.3
//! (header), 1.6 (b-tree pages) and 2.1 (records). Everything except ordinary tables of ordinary files
//! (a write-ahead log, another encoding, generated columns) is read by SQLite. A violation of the
//! format is an error, as it is for SQLite. So is a tree that contradicts itself, which SQLite reads without
//! a word unless asked for an integrity check: see [`survey`] and [`Bounds`].

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rusqlite::types::ValueRef;

mod survey;

/// Maximum depth of a table; SQLite's limit is 20 levels.
const MAX_DEPTH: u32 = 20;
/// Maximum number of neighbouring pages that are read by one call.
const PAGES_AT_ONCE: u32 = 64;

/// A violation of the file format, or the reason why the file cannot be read.
#[derive(Debug)]
pub(super) enum Broken {
    Damaged(String),
    Io(std::io::Error),
}

impl From<std::io::Error> for Broken {
    fn from(error: std::io::Error) -> Broken {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof => damaged("a page lies behind the end of the file"),
            _ => Broken::Io(error),
        }
    }
}

fn damaged(what: impl Into<String>) -> Broken {
    Broken::Damaged(what.into())
}

/// The size of a page in bytes, from the header of a file.
pub(super) fn page_bytes(head: &[u8]) -> Option<u32> {
    match u16::from_be_bytes(array(head, 16)?) {
        1 => Some(65_536),
        bytes => Some(bytes.into()),
    }
}

/// A file whose pages can be read directly.
#[derive(Debug, Clone)]
pub(super) struct Pages {
    path: PathBuf,
    page_bytes: u32,
    /// The bytes of a page, without those that extensions reserve at its end.
    usable: usize,
    count: u32,
    /// The first page of the list of unused pages, or 0.
    unused: u32,
    /// Whether some pages only record which page refers to which (`auto_vacuum`).
    has_maps: bool,
}

impl Pages {
    /// The pages of a file; `None` for a file that SQLite must read. There must be neither a log nor a
    /// journal.
    pub(super) fn of(path: &Path, head: &[u8]) -> Option<Pages> {
        const UTF_8: u32 = 1;
        let page_bytes = page_bytes(head)?;
        let [reserved] = array(head, 20)?;
        let schema_format = u32::from_be_bytes(array(head, 44)?);
        let encoding = u32::from_be_bytes(array(head, 56)?);
        let long = |at| array(head, at).map(u32::from_be_bytes);
        let ordinary = head.starts_with(b"SQLite format 3\0")
            && page_bytes.is_power_of_two()
            && page_bytes >= 512
            && (1..=4).contains(&schema_format)
            && encoding == UTF_8;
        let bytes = std::fs::metadata(path).ok()?.len();
        // The number of pages in the header counts if the header was written by the last change.
        let counted = Some(long(28)?).filter(|count| *count > 0 && long(24) == long(92));
        let count = u32::try_from(bytes / u64::from(page_bytes)).ok()?;
        ordinary.then_some(Pages {
            path: path.to_path_buf(),
            page_bytes,
            usable: (page_bytes as usize).checked_sub(usize::from(reserved))?,
            count: counted.map_or(count, |counted| count.min(counted)),
            unused: long(32)?,
            has_maps: long(52)? != 0,
        })
    }

    fn bytes(&self) -> u64 {
        u64::from(self.count) * u64::from(self.page_bytes)
    }

    /// The leaf pages of a table, in order of rowid.
    pub(super) fn leaves(&self, root: u32) -> Result<Vec<Leaf>, Broken> {
        let mut reader = Reader::open(self)?;
        let mut used = Used::new(self.count);
        let mut leaves = Vec::new();
        let mut leaf_depth = None;
        let root = Leaf {
            page: root,
            bounds: Bounds::default(),
        };
        used.claim(root.page)?;
        let mut open = vec![(root, 0)];
        while let Some((at, depth)) = open.pop() {
            let page = at.page;
            let bytes = reader.page(page)?;
            let header = header_at(page);
            match bytes.get(header) {
                Some(&LEAF) => {
                    if *leaf_depth.get_or_insert(depth) != depth {
                        return Err(damaged(format!("page {page} is not as deep as others")));
                    }
                    leaves.push(at);
                }
                Some(&INTERIOR) if depth < MAX_DEPTH => {
                    let mut below = children_between(bytes, header, at.bounds)
                        .ok_or_else(|| damaged(format!("page {page} contradicts itself")))?;
                    for child in &below {
                        used.claim(child.page)?;
                    }
                    // All children of a page are of the same kind.
                    let first = below.first().map_or(0, |child| child.page);
                    if reader.page(first)?.get(header_at(first)) == Some(&LEAF) {
                        if *leaf_depth.get_or_insert(depth + 1) != depth + 1 {
                            return Err(damaged(format!("page {page} is not as deep as others")));
                        }
                        leaves.append(&mut below);
                    } else {
                        open.extend(below.into_iter().rev().map(|child| (child, depth + 1)));
                    }
                }
                _ => return Err(damaged(format!("page {page} is no page of a table"))),
            }
        }
        Ok(leaves)
    }
}

/// A page of a table, with the rowids that may be in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaf {
    page: u32,
    bounds: Bounds,
}

/// The range of rowids that the pages above allow. Together with rowids that rise within each page, it
/// guarantees that they rise over the whole table, so that no row is read twice.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    /// All rowids are greater.
    after: Option<i64>,
    /// No rowid is greater.
    up_to: Option<i64>,
}

impl Bounds {
    /// Moves the lower bound to a rowid; `None` if it is outside of the bounds.
    #[inline]
    fn rise(&mut self, id: i64) -> Option<()> {
        let fits =
            self.after.is_none_or(|after| id > after) && self.up_to.is_none_or(|to| id <= to);
        self.after = Some(id);
        fits.then_some(())
    }
}

/// The pages that were referred to.
#[derive(Debug)]
struct Used(Vec<u64>);

impl Used {
    fn new(pages: u32) -> Used {
        Used(vec![0; pages as usize / 64 + 1])
    }

    fn has(&self, page: u32) -> bool {
        let word = self.0.get(page as usize / 64).copied().unwrap_or_default();
        word & (1 << (page % 64)) != 0
    }

    /// Marks a page as used; an error if it is used already.
    fn claim(&mut self, page: u32) -> Result<(), Broken> {
        let word = self.0.get_mut(page as usize / 64);
        let word = word.ok_or_else(|| damaged(format!("there is no page {page}")))?;
        let bit = 1 << (page % 64);
        if *word & bit != 0 {
            return Err(damaged(format!("page {page} is used twice")));
        }
        *word |= bit;
        Ok(())
    }
}

pub(super) const INTERIOR: u8 = 5;
pub(super) const LEAF: u8 = 13;
const INDEX_INTERIOR: u8 = 2;
const INDEX_LEAF: u8 = 10;
/// Bytes that the smallest cell takes in a page.
const SMALLEST_CELL: usize = 4;

/// The offset of the header of a page: the first page begins with the header of the file.
fn header_at(page: u32) -> usize {
    if page == 1 { 100 } else { 0 }
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn short(bytes: &[u8], at: usize) -> Option<usize> {
    Some(usize::from(u16::from_be_bytes(array(bytes, at)?)))
}

/// The pages below an interior page, in order.
fn children(bytes: &[u8], header: usize) -> Option<Vec<u32>> {
    let cells = short(bytes, header + 3)?;
    let mut below = Vec::with_capacity(cells + 1);
    for cell in 0..cells {
        let at = short(bytes, header + 12 + 2 * cell)?;
        below.push(u32::from_be_bytes(array(bytes, at)?));
    }
    below.push(u32::from_be_bytes(array(bytes, header + 8)?));
    Some(below)
}

/// The pages below an interior page of a table, in order, with the rowids that may be in them; `None` if
/// the page contradicts itself.
fn children_between(bytes: &[u8], header: usize, mut bounds: Bounds) -> Option<Vec<Leaf>> {
    let cells = short(bytes, header + 3)?;
    // Only the first page may have a single child: its header leaves less room.
    if cells == 0 && header == 0 {
        return None;
    }
    let mut below = Vec::with_capacity(cells + 1);
    let mut used = 0;
    for cell in 0..cells {
        let at = short(bytes, header + 12 + 2 * cell)?;
        let page = u32::from_be_bytes(array(bytes, at)?);
        let key = bytes.get(at + 4..)?;
        let (id, rest) = varint(key)?;
        used += 4 + key.len() - rest.len();
        let id = id.cast_signed();
        let after = bounds.after;
        bounds.rise(id)?;
        below.push(Leaf {
            page,
            bounds: Bounds {
                after,
                up_to: Some(id),
            },
        });
    }
    below.push(Leaf {
        page: u32::from_be_bytes(array(bytes, header + 8)?),
        bounds,
    });
    accounts_for(bytes, header, used).then_some(below)
}

/// Whether the cells of a page, its free blocks and its fragments fill the area that its header states,
/// so that no cell was left out of the count: <https://www.sqlite.org/fileformat2.html#b_tree_pages>.
fn accounts_for(bytes: &[u8], header: usize, cells: usize) -> bool {
    let account = || -> Option<usize> {
        let content = match short(bytes, header + 5)? {
            0 => 65_536,
            at => at,
        };
        let mut free = 0;
        let mut block = short(bytes, header + 1)?;
        while block != 0 {
            let (next, size) = (short(bytes, block)?, short(bytes, block + 2)?);
            if block < content || size < 4 || (next != 0 && next < block + size) {
                return None;
            }
            free += size;
            block = next;
        }
        let fragments = usize::from(*bytes.get(header + 7)?);
        Some(content + cells + free + fragments)
    };
    account() == Some(bytes.len())
}

/// Reads pages, several neighbouring ones at a time.
struct Reader<'p> {
    pages: &'p Pages,
    file: File,
    buffer: Vec<u8>,
    /// The first page in the buffer.
    first: u32,
}

impl<'p> Reader<'p> {
    fn open(pages: &'p Pages) -> Result<Reader<'p>, Broken> {
        Ok(Reader {
            pages,
            file: File::open(&pages.path)?,
            buffer: Vec::new(),
            first: 0,
        })
    }

    /// One page.
    fn page(&mut self, page: u32) -> Result<&[u8], Broken> {
        self.fetch(page, 1)?;
        self.at(page)
    }

    /// Reads `count` pages into the buffer.
    fn fetch(&mut self, page: u32, count: u32) -> Result<(), Broken> {
        let before = page.checked_sub(1).filter(|_| page <= self.pages.count);
        let before = before.ok_or_else(|| damaged(format!("there is no page {page}")))?;
        let bytes = self.pages.page_bytes;
        self.buffer.resize(bytes as usize * count as usize, 0);
        let place = u64::from(before) * u64::from(bytes);
        self.file.seek(SeekFrom::Start(place))?;
        self.file.read_exact(&mut self.buffer)?;
        self.first = page;
        Ok(())
    }

    /// A page in the buffer, without its reserved end.
    fn at(&self, page: u32) -> Result<&[u8], Broken> {
        let bytes = self.pages.page_bytes as usize;
        let start = (page - self.first) as usize * bytes;
        (self.buffer.get(start..start + self.pages.usable))
            .ok_or_else(|| damaged(format!("page {page} is cut")))
    }
}

/// A wanted column.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    /// Its index in the record; `None` if the table has no such column.
    pub(super) column: Option<usize>,
    /// Columns that are used if the preceding ones are NULL.
    pub(super) others: Vec<usize>,
    /// The value if the table has no such column.
    pub(super) default: Option<i64>,
}

/// The wanted columns of a table.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) wanted: Vec<Wanted>,
    /// The column that is another name of the rowid; records contain NULL there.
    pub(super) rowid: Option<usize>,
    /// The number of columns that the table declares.
    pub(super) columns: usize,
}

/// The type and position of a value in a record.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    /// Its serial type.
    kind: u32,
    /// The offset of its first byte.
    at: u32,
}

/// A row in its page.
#[derive(Debug, Clone, Copy)]
pub(in crate::read) struct Row<'a> {
    layout: &'a Layout,
    places: &'a [Place],
    /// The record and what follows it in the page. All places are inside of the record.
    bytes: &'a [u8],
    id: i64,
}

impl<'a> Row<'a> {
    #[inline]
    pub(super) fn value(&self, wanted: usize) -> ValueRef<'a> {
        let Some(wanted) = self.layout.wanted.get(wanted) else {
            return ValueRef::Null;
        };
        let Some(column) = wanted.column else {
            return wanted.default.map_or(ValueRef::Null, ValueRef::Integer);
        };
        match self.column(column) {
            ValueRef::Null => self.first(&wanted.others),
            value => value,
        }
    }

    /// The integer in a wanted column; `None` for any other value. Nearly all values that are read are integers.
    #[inline]
    pub(super) fn int(&self, wanted: usize) -> Option<i64> {
        let column = self.layout.wanted.get(wanted)?.column;
        let place = column.and_then(|column| self.places.get(column));
        match place {
            Some(&Place {
                kind: kind @ 1..=6,
                at,
            }) => integer(self.bytes, at as usize, kind),
            Some(&Place {
                kind: kind @ (8 | 9),
                ..
            }) => Some(i64::from(kind - 8)),
            _ => super::int(self.value(wanted)),
        }
    }

    /// The value of the first of these columns that is not NULL.
    #[inline]
    fn first(&self, columns: &[usize]) -> ValueRef<'a> {
        let values = columns.iter().map(|column| self.column(*column));
        let mut values = values.filter(|value| *value != ValueRef::Null);
        values.next().unwrap_or(ValueRef::Null)
    }

    /// The value of a column. NULL after the end of the record, because columns may have been added to
    /// the table later; the rowid where the column is another name of it.
    #[inline]
    fn column(&self, column: usize) -> ValueRef<'a> {
        let Place { kind, at } = self.places.get(column).copied().unwrap_or_default();
        let at = at as usize;
        match kind {
            0 if self.layout.rowid == Some(column) => ValueRef::Integer(self.id),
            0 => ValueRef::Null,
            1..=6 => integer(self.bytes, at, kind).map_or(ValueRef::Null, ValueRef::Integer),
            7 => array(self.bytes, at)
                .map_or(ValueRef::Null, |b| ValueRef::Real(f64::from_be_bytes(b))),
            8 => ValueRef::Integer(0),
            9 => ValueRef::Integer(1),
            10 | 11 => ValueRef::Null,
            _ => {
                let end = at + length(kind) as usize;
                let bytes = self.bytes.get(at..end).unwrap_or_default();
                match kind % 2 {
                    0 => ValueRef::Blob(bytes),
                    _ => ValueRef::Text(bytes),
                }
            }
        }
    }
}

/// The integer of a serial type from 1 to 6 at an offset: big-endian, with a sign. Lengths vary from value to value, so
/// there is no branch for each: eight bytes are read where there are as many.
#[inline]
fn integer(bytes: &[u8], at: usize, kind: u32) -> Option<i64> {
    let length = length(kind) as usize;
    let eight = array(bytes, at).or_else(|| {
        let mut eight = [0; 8];
        let own = bytes.get(at..at + length)?;
        eight.get_mut(..length)?.copy_from_slice(own);
        Some(eight)
    })?;
    Some(i64::from_be_bytes(eight) >> (64 - 8 * length))
}

/// The length of a value in bytes, by its serial type.
#[inline]
fn length(kind: u32) -> u32 {
    match SHORT_LENGTHS.get(kind as usize) {
        Some(bytes) => u32::from(*bytes),
        None => (kind - 12) / 2,
    }
}

/// The lengths of values whose serial types take one byte.
#[allow(clippy::indexing_slicing)] // Evaluated by the compiler.
const SHORT_LENGTHS: [u8; 128] = {
    let mut lengths = [0; 128];
    let mut kind = 0;
    while kind < 128 {
        lengths[kind] = match kind {
            0 | 8..=11 => 0,
            1..=4 => kind as u8,
            5 => 6,
            6 | 7 => 8,
            _ => (kind as u8 - 12) / 2,
        };
        kind += 1;
    }
    lengths
};

/// A number of one to nine bytes, and the bytes after it.
#[inline]
fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    match bytes {
        [first @ ..0x80, rest @ ..] => Some((u64::from(*first), rest)),
        _ => long_varint(bytes),
    }
}

/// A number of two to nine bytes, and the bytes after it.
fn long_varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    for (at, byte) in bytes.iter().take(8).enumerate() {
        number = (number << 7) | u64::from(byte & 0x7F);
        if *byte < 0x80 {
            return Some((number, bytes.get(at + 1..)?));
        }
    }
    let (last, rest) = bytes.get(8..)?.split_first()?;
    Some(((number << 8) | u64::from(*last), rest))
}

/// Reads the rows of leaf pages.
pub(super) struct Leaves<'p> {
    reader: Reader<'p>,
    /// Reads overflow pages, which hold the rest of long records.
    more: Reader<'p>,
    layout: &'p Layout,
    /// The positions of the needed columns and those before them.
    places: Vec<Place>,
    long: Vec<u8>,
    /// Bytes that may still follow in overflow pages. Rows do not share them, so there are at most as
    /// many as the file has.
    outside: u64,
}

impl<'p> Leaves<'p> {
    pub(super) fn open(pages: &'p Pages, layout: &'p Layout) -> Result<Leaves<'p>, Broken> {
        let wanted = layout.wanted.iter();
        let last = wanted.flat_map(|w| w.column.iter().chain(&w.others)).max();
        Ok(Leaves {
            reader: Reader::open(pages)?,
            more: Reader::open(pages)?,
            layout,
            places: vec![Place::default(); last.map_or(0, |last| last + 1)],
            long: Vec::new(),
            outside: pages.bytes(),
        })
    }

    /// Passes every row of these pages to `take`; returns the number of rows.
    pub(super) fn rows(
        &mut self,
        leaves: &[Leaf],
        mut take: impl FnMut(Row<'_>),
    ) -> Result<u64, Broken> {
        let mut rows = 0;
        let mut rest = leaves;
        while let Some(first) = rest.first().map(|leaf| leaf.page) {
            let neighbours = rest.iter().zip(0..PAGES_AT_ONCE);
            let run = neighbours
                .take_while(|(leaf, n)| Some(leaf.page) == first.checked_add(*n))
                .count();
            let (together, others) = rest.split_at(run);
            rest = others;
            self.reader
                .fetch(first, u32::try_from(run).unwrap_or(PAGES_AT_ONCE))?;
            for leaf in together {
                rows += self.page(*leaf, &mut take)?;
            }
        }
        Ok(rows)
    }

    fn page(&mut self, leaf: Leaf, take: &mut impl FnMut(Row<'_>)) -> Result<u64, Broken> {
        let Leaf { page, mut bounds } = leaf;
        let mut used = 0;
        let mut columns = 0;
        let cut = || damaged(format!("a row of page {page} is cut"));
        let bytes = self.reader.at(page)?;
        let header = header_at(page);
        if bytes.get(header) != Some(&LEAF) {
            return Err(damaged(format!("page {page} is no leaf of a table")));
        }
        let cells = short(bytes, header + 3).ok_or_else(cut)?;
        // Only an empty table has an empty page.
        if cells == 0 && (bounds.after.is_some() || bounds.up_to.is_some()) {
            return Err(damaged(format!("page {page} of a table is empty")));
        }
        for cell in 0..cells {
            let at = short(bytes, header + 8 + 2 * cell).ok_or_else(cut)?;
            let whole = bytes.get(at..).ok_or_else(cut)?;
            let (size, cell) = varint(whole).ok_or_else(cut)?;
            let (id, cell) = varint(cell).ok_or_else(cut)?;
            let id = id.cast_signed();
            bounds
                .rise(id)
                .ok_or_else(|| damaged(format!("row {id} of page {page} is out of order")))?;
            let size = usize::try_from(size).map_err(|_| cut())?;
            let here = in_page(size, bytes.len());
            // The number of the page with the rest follows a record that does not fit.
            let rest = if here == size { 0 } else { 4 };
            used += (whole.len() - cell.len() + here + rest).max(SMALLEST_CELL);
            let record = cell.get(..here).ok_or_else(cut)?;
            let (record, bytes) = if here == size {
                (record, cell)
            } else {
                self.long.clear();
                self.long.extend_from_slice(record);
                let next = array(cell, here).map(u32::from_be_bytes).ok_or_else(cut)?;
                self.outside = (self.outside.checked_sub((size - here) as u64))
                    .ok_or_else(|| damaged("rows are longer than the file"))?;
                overflow(&mut self.more, next, size, &mut self.long)?;
                (self.long.as_slice(), self.long.as_slice())
            };
            // Pages are exchanged as a whole, so one row of each is enough.
            if columns == 0 {
                columns = count_columns(record).ok_or_else(cut)?;
            }
            let known = places(record, &mut self.places).ok_or_else(cut)?;
            take(Row {
                layout: self.layout,
                places: self.places.get(..known).unwrap_or_default(),
                bytes,
                id,
            });
        }
        // Rows from before a column was added are shorter, but none is longer.
        if columns > self.layout.columns {
            return Err(damaged(format!("page {page} belongs to another table")));
        }
        if !accounts_for(self.reader.at(page)?, header, used) {
            return Err(damaged(format!(
                "page {page} does not hold the rows that it states"
            )));
        }
        Ok(cells as u64)
    }
}

/// The number of bytes of a record in its leaf; the rest is in overflow pages.
fn in_page(size: usize, usable: usize) -> usize {
    let most = usable.saturating_sub(35);
    if size <= most {
        return size;
    }
    let least = (usable.saturating_sub(12) * 32 / 255).saturating_sub(23);
    let kept = least + (size - least) % usable.saturating_sub(4).max(1);
    if kept <= most { kept } else { least }
}

/// Appends the bytes of a record in overflow pages.
fn overflow(
    reader: &mut Reader<'_>,
    mut page: u32,
    size: usize,
    into: &mut Vec<u8>,
) -> Result<(), Broken> {
    while into.len() < size {
        let bytes = reader.page(page)?;
        let next = array(bytes, 0).map(u32::from_be_bytes);
        let part = bytes.get(4..).unwrap_or_default();
        let part = part.get(..size - into.len()).unwrap_or(part);
        if part.is_empty() {
            return Err(damaged(format!("page {page} is cut")));
        }
        into.extend_from_slice(part);
        page = next.unwrap_or_default();
    }
    Ok(())
}

/// The number of columns of a record.
fn count_columns(record: &[u8]) -> Option<usize> {
    let (header, rest) = varint(record)?;
    let header = usize::try_from(header).ok()?;
    let mut kinds = record.get(record.len() - rest.len()..header)?;
    let mut count = 0;
    while !kinds.is_empty() {
        (_, kinds) = varint(kinds)?;
        count += 1;
    }
    Some(count)
}

/// Finds the positions of the first columns of a record and returns how many of them it has; `None` for
/// a record that ends within them.
#[inline]
fn places(record: &[u8], into: &mut [Place]) -> Option<usize> {
    let (header, rest) = varint(record)?;
    let header = usize::try_from(header).ok()?;
    let before = record.len() - rest.len();
    let mut kinds = record.get(before..header)?;
    // Positions beyond 32 bits lie behind the end of the record, which is checked last.
    let mut at = header as u64;
    let mut known = 0;
    loop {
        let places = into.get_mut(known..)?;
        let mut passed = 0;
        for (place, kind) in places.iter_mut().zip(kinds) {
            let Some(bytes) = SHORT_LENGTHS.get(usize::from(*kind)) else {
                break;
            };
            *place = Place {
                kind: u32::from(*kind),
                at: at as u32,
            };
            at += u64::from(*bytes);
            passed += 1;
        }
        known += passed;
        kinds = kinds.get(passed..)?;
        // The type of a long text takes several bytes.
        let Some(place) = into.get_mut(known).filter(|_| !kinds.is_empty()) else {
            return (at <= record.len() as u64).then_some(known);
        };
        let (kind, rest) = varint(kinds)?;
        kinds = rest;
        let kind = u32::try_from(kind).ok()?;
        *place = Place {
            kind,
            at: at as u32,
        };
        at += u64::from(length(kind));
        known += 1;
    }
}
