use super::pages::{INTERIOR, LEAF};
use super::*;

const COLUMNS: [&str; 7] = ["id", "a", "b|c", "c", "missing=7", "late", "z"];

/// Keeps every value as text.
#[derive(Clone, Default)]
struct Texts(Vec<String>);

impl Sink for Texts {
    fn row(&mut self, cells: &Cells<'_>) {
        let values = (0..=COLUMNS.len()).map(|at| format!("{:?}", cells.raw(at)));
        self.0.push(values.collect::<Vec<_>>().join(" "));
    }
}

/// Counts rows.
#[derive(Clone, Default)]
struct Counted(usize);

impl Sink for Counted {
    fn row(&mut self, _: &Cells<'_>) {
        self.0 += 1;
    }
}

/// The rows of a table, read from its pages and through SQLite.
fn both_ways(path: &Path) -> [Vec<String>; 2] {
    let mut db = Db::open(path).unwrap();
    assert!(db.pages.is_some());
    let rows = |db: &Db| {
        let parts = db
            .scan("t", &COLUMNS, &Texts::default(), &crate::read::NoProgress)
            .unwrap();
        parts.into_iter().flat_map(|part| part.0).collect()
    };
    let direct = rows(&db);
    db.pages = None;
    [direct, rows(&db)]
}

#[test]
fn pages_and_sqlite_yield_the_same_rows() {
    let folder = tempfile::tempdir().unwrap();
    let declarations = [
        "id INTEGER PRIMARY KEY, a, b TEXT, c REAL, z BLOB",
        "id INT, z, c, b, a",
        "a INTEGER, b, c, id INT PRIMARY KEY DESC, z",
    ];
    for (number, declared) in declarations.into_iter().enumerate() {
        for page_bytes in [512, 4096, 65_536] {
            let path = folder.path().join(format!("{number}-{page_bytes}.sqlite"));
            let conn = Connection::open(&path).unwrap();
            conn.execute_batch(&format!(
                "PRAGMA page_size = {page_bytes}; PRAGMA auto_vacuum = {number}; BEGIN;
                 CREATE TABLE other (x); CREATE TABLE t ({declared});"
            ))
            .unwrap();
            let mut insert = conn
                .prepare("INSERT INTO t (id, a, b, c, z) VALUES (?1, ?2, ?3, ?4, ?5)")
                .unwrap();
            for row in 0..3000_i64 {
                // Integers of every width and both signs; texts of up to several pages.
                let wide = (row % 7 - 3) * (1_i64 << (row % 61));
                let text = "\u{e9}x".repeat(((row * row) % 97 * (row % 3 / 2) * 30) as usize);
                let part = (row % 5 > 0).then_some(text);
                let real = (row % 4 > 0).then_some(row as f64 / 4.0);
                let blob = vec![0xFF_u8; (row % 11) as usize];
                insert
                    .execute(params![row * 3 - 50, wide, part, real, blob])
                    .unwrap();
            }
            drop(insert);
            conn.execute_batch(
                "COMMIT; DELETE FROM t WHERE id % 6 = 1; ALTER TABLE t ADD COLUMN late;
                 INSERT INTO t (id, late) VALUES (100000, 'now');",
            )
            .unwrap();
            drop(conn);
            let [direct, through] = both_ways(&path);
            assert!(direct.len() > 1400);
            assert_eq!(direct, through, "{declared}, {page_bytes}");
        }
    }
}

#[test]
fn other_tables_are_read_by_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    for (name, declared) in [
        ("computed", "a, b AS (a * 2), c"),
        ("default", "a, b DEFAULT 5, c"),
        (
            "keyed",
            "a PRIMARY KEY, b, c) WITHOUT ROWID; CREATE TABLE u (x",
        ),
        ("descending", "id INTEGER PRIMARY KEY DESC, a, b, c"),
    ] {
        let path = folder.path().join(name);
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(&format!(
            "CREATE TABLE t ({declared}); INSERT INTO t (a, c) VALUES (1, 2);"
        ))
        .unwrap();
        drop(conn);
        let table = Db::open(&path).unwrap().table("t").unwrap().unwrap();
        assert!(table.stored.is_none(), "{name}");
        let [direct, through] = both_ways(&path);
        assert_eq!((direct.len(), &direct), (1, &through), "{name}");
    }
}

#[test]
fn trees_that_violate_the_format_are_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(
        "PRAGMA page_size = 512; CREATE TABLE t (a, b);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 4000)
         INSERT INTO t SELECT i, 'some text' FROM n;",
    )
    .unwrap();
    drop(conn);
    let good = std::fs::read(&path).unwrap();
    let root = 512;
    assert_eq!(good[root], 5, "the root is an interior page");
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        std::fs::write(&path, bytes).unwrap();
        let db = Db::open(&path)?;
        db.scan("t", &COLUMNS, &Texts::default(), &crate::read::NoProgress)
    };
    assert!(with(&|_| {}).is_ok());
    // The last child of the root is the root, page 0, or a page after the end; a leaf has an invalid
    // kind, more rows than fit, or rows outside of it.
    let last = good.len() - 512;
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>);
    let changes: [Change<'_>; 6] = [
        &|b| b[root + 8..root + 12].copy_from_slice(&2_u32.to_be_bytes()),
        &|b| b[root + 8..root + 12].copy_from_slice(&0_u32.to_be_bytes()),
        &|b| b[root + 8..root + 12].copy_from_slice(&u32::MAX.to_be_bytes()),
        &|b| b[last] = 7,
        &|b| b[last + 3..last + 5].copy_from_slice(&[0xFF, 0xFF]),
        &|b| b[last + 8..last + 10].copy_from_slice(&[0x01, 0xFF]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let error = with(change).err().map(|e| e.to_string());
        let error = error.unwrap_or_else(|| format!("change {number} went unseen"));
        assert!(error.contains("damaged"), "{error}");
    }
}

#[test]
fn special_characters_of_file_names_are_escaped_in_uris() {
    assert_eq!(
        file_uri(Path::new("/a b/c?d#e%f.sqlite")),
        "file:/a%20b/c%3Fd%23e%25f.sqlite"
    );
    assert!(file_uri(Path::new("//net/x")).starts_with("file:////net"));
}

#[test]
fn existing_columns_are_read_and_defaults_replace_missing_ones() {
    let table = Table {
        name: "t".into(),
        columns: vec!["Start".into(), "b".into(), "c".into()],
        rowid: Some("rowid"),
        stored: None,
    };
    assert_eq!(
        table.select(&["start", "a|b|c", "z", "d=0"]),
        "SELECT \"start\", coalesce(\"b\", \"c\"), NULL, 0 FROM \"t\" NOT INDEXED"
    );
}

#[test]
fn long_rows_that_share_their_pages_are_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA page_size = 512; CREATE TABLE t (a, b);")
        .unwrap();
    // Of so many bytes, few are in the page of the row itself.
    let long = "x".repeat(100_110);
    conn.execute("INSERT INTO t VALUES (1, ?1)", [&long])
        .unwrap();
    drop(conn);
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(both_ways(&path)[0].len(), 1);
    // The only row a second time, as row 2 before it: both refer to the same pages.
    let leaf = 512;
    assert_eq!(bytes[leaf..leaf + 5], [13, 0, 0, 0, 1]);
    let cell = usize::from(bytes[leaf + 8]) << 8 | usize::from(bytes[leaf + 9]);
    let copy = cell - (512 - cell);
    bytes.copy_within(leaf + cell..leaf + 512, leaf + copy);
    // The length takes three bytes, the row id one.
    bytes[leaf + copy + 3] = 2;
    bytes[leaf + 4] = 2;
    bytes[leaf + 5..leaf + 7].copy_from_slice(&(copy as u16).to_be_bytes());
    bytes[leaf + 10..leaf + 12].copy_from_slice(&(copy as u16).to_be_bytes());
    std::fs::write(&path, bytes).unwrap();
    let db = Db::open(&path).unwrap();
    let read = db.scan("t", &COLUMNS, &Texts::default(), &crate::read::NoProgress);
    let error = read.err().unwrap().to_string();
    assert!(error.contains("longer than the file"), "{error}");
}

/// A table of three levels beside another, with a list of unused pages; its bytes, and its rows.
fn tree(folder: &Path, settings: &str) -> (Vec<u8>, usize) {
    let path = folder.join("tree.sqlite");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch(&format!(
        "PRAGMA page_size = 512; {settings}
         CREATE TABLE u (id INTEGER PRIMARY KEY, a, b, c, z); CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c, z);
         CREATE TABLE gone (x); CREATE TABLE v (id INTEGER PRIMARY KEY, a);
         WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000)
         INSERT INTO t SELECT i, 'some text', 2, 3, iif(i % 500 = 0, zeroblob(2000), NULL) FROM n;
         INSERT INTO u SELECT * FROM t WHERE id < 900; INSERT INTO v SELECT id, a FROM t WHERE id < 300; INSERT INTO gone SELECT a FROM u; DROP TABLE gone;
         DELETE FROM t WHERE id % 7 = 3; CREATE INDEX i ON t (a, id);"
    ))
    .unwrap();
    let rows = conn.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    let rows = rows.unwrap() as usize;
    drop(conn);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    (bytes, rows)
}

/// The number of rows of the table `t`, or the error.
fn rows_of(path: &Path) -> Result<usize, ReadError> {
    let db = Db::open(path)?;
    db.survey()?;
    let parts = db.scan(
        "t",
        &["id", "z"],
        &Counted::default(),
        &crate::read::NoProgress,
    )?;
    Ok(parts.iter().map(|part| part.0).sum())
}

#[test]
fn trees_that_contradict_themselves_are_never_read_as_whole() {
    const PAGE: usize = 512;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    for settings in ["", "PRAGMA auto_vacuum = 1;"] {
        let (good, rows) = tree(folder.path(), settings);
        std::fs::write(&path, &good).unwrap();
        assert_eq!(rows_of(&path).unwrap(), rows, "{settings}");
        let pages = good.len() / PAGE;
        let (mut refused, mut cases) = (0, 0);
        let mut case = |what: &str, page: usize, bytes: Vec<u8>| {
            std::fs::write(&path, &bytes).unwrap();
            cases += 1;
            match rows_of(&path) {
                Ok(read) => assert_eq!(read, rows, "{what} of page {page}, {settings}"),
                Err(_) => refused += 1,
            }
        };
        // The first page holds the schema, whose changes are changes of the tables.
        for page in 1..pages {
            let at = page * PAGE;
            let kind = good[at];
            let (header, is_tree) = match kind {
                INTERIOR => (12, true),
                LEAF => (8, true),
                _ => (0, false),
            };
            let mut with = |what: &str, change: &dyn Fn(&mut Vec<u8>)| {
                let mut bytes = good.clone();
                change(&mut bytes);
                case(what, page, bytes);
            };
            for other in [1, 2, page.wrapping_sub(1), page + 1, pages / 2, pages - 1] {
                if (1..pages).contains(&other) && other != page {
                    with("a copy over another", &|b| {
                        b.copy_within(other * PAGE..(other + 1) * PAGE, at);
                    });
                }
            }
            with("blanks", &|b| b[at..at + PAGE].fill(0));
            if !is_tree || (kind == LEAF && page % 4 > 0) {
                continue;
            }
            let cells = usize::from(good[at + 3]) << 8 | usize::from(good[at + 4]);
            let cell = |n: usize| at + header + 2 * n;
            with("an empty page in place", &|b| {
                b[at..at + 8].copy_from_slice(&[kind, 0, 0, 0, 0, 2, 0, 0]);
            });
            with("half", &|b| {
                b[at + 3..at + 5].copy_from_slice(&((cells / 2) as u16).to_be_bytes());
            });
            with("one less", &|b| b[at + 4] = b[at + 4].wrapping_sub(1));
            with("one more", &|b| b[at + 4] = b[at + 4].wrapping_add(1));
            if cells > 1 {
                with("the same cell twice", &|b| {
                    b.copy_within(cell(0)..cell(1), cell(1));
                });
                with("two cells exchanged", &|b| {
                    let first = [b[cell(0)], b[cell(0) + 1]];
                    b.copy_within(cell(1)..cell(2), cell(0));
                    b[cell(1)..cell(2)].copy_from_slice(&first);
                });
            }
            let right = u32::from_be_bytes(good[at + 8..at + 12].try_into().unwrap()) as usize;
            // Pages of `auto_vacuum` may begin with the same byte.
            if kind == INTERIOR && right <= pages && cells < 200 {
                let child = |b: &[u8], n: usize| {
                    at + (usize::from(b[cell(n)]) << 8 | usize::from(b[cell(n) + 1]))
                };
                with("the same child everywhere", &|b| {
                    let right: [u8; 4] = b[at + 8..at + 12].try_into().unwrap();
                    for n in 0..cells {
                        let child = child(b, n);
                        b[child..child + 4].copy_from_slice(&right);
                    }
                });
                with("the last child of another page", &|b| {
                    let other = (2..pages)
                        .find(|p| b[p * PAGE] == INTERIOR && *p != page && *p != 1)
                        .unwrap();
                    b.copy_within(other * PAGE + 8..other * PAGE + 12, at + 8);
                });
                with("a leaf in its place", &|b| {
                    let right =
                        u32::from_be_bytes(b[at + 8..at + 12].try_into().unwrap()) as usize - 1;
                    b.copy_within(right * PAGE..(right + 1) * PAGE, at);
                });
            }
        }
        assert!(cases > 1000 && refused > cases / 2, "{refused} of {cases}");
    }
}

#[test]
fn tables_that_sqlite_reads_are_checked_by_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let (good, rows) = tree(folder.path(), "PRAGMA encoding = 'UTF-16';");
    std::fs::write(&path, &good).unwrap();
    assert!(Db::open(&path).unwrap().pages.is_none());
    assert_eq!(rows_of(&path).unwrap(), rows);
    // The cell count of every leaf of the table, halved.
    let leaves: Vec<usize> = (1..good.len() / 512)
        .filter(|p| good[p * 512] == LEAF)
        .collect();
    let mut refused = 0;
    for page in leaves.iter().step_by(5) {
        let mut bytes = good.clone();
        bytes[page * 512 + 4] /= 2;
        std::fs::write(&path, bytes).unwrap();
        match rows_of(&path) {
            Ok(read) => assert_eq!(read, rows, "page {page}"),
            Err(_) => refused += 1,
        }
    }
    assert!(refused * 10 > leaves.len());
}

#[test]
fn rows_out_of_order_are_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    for order in [[1_usize, 0, 2], [2, 1, 0], [0, 2, 1], [0, 0, 1]] {
        let path = folder.path().join(format!("{order:?}.sqlite"));
        let conn = Connection::open(&path).unwrap();
        conn.execute_batch(
            "PRAGMA page_size = 512; CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c, z);
             INSERT INTO t (a) VALUES ('x'), ('y'), ('z');",
        )
        .unwrap();
        drop(conn);
        // The cell pointers follow the eight bytes of the header of a leaf page.
        let mut bytes = std::fs::read(&path).unwrap();
        let cells = bytes[520..526].to_vec();
        for (to, from) in order.into_iter().enumerate() {
            bytes[520 + 2 * to..522 + 2 * to].copy_from_slice(&cells[2 * from..2 * from + 2]);
        }
        std::fs::write(&path, bytes).unwrap();
        let mut db = Db::open(&path).unwrap();
        for _ in 0..2 {
            let read = db.scan("t", &COLUMNS, &Texts::default(), &crate::read::NoProgress);
            let error = read.err().unwrap().to_string();
            assert!(error.contains("damaged"), "{error}");
            db.pages = None;
        }
    }
}
