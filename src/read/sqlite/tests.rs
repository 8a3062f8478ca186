use super::chunk::MAX_CHUNKS;
use super::*;

#[test]
fn row_ranges_cover_every_row_once() {
    for (low, high) in [
        (1, 1),
        (1, 65_536),
        (1, 65_537),
        (5, 1_000_000),
        (-3, 3),
        (i64::MIN, i64::MAX),
        (i64::MAX - 1, i64::MAX),
    ] {
        let chunks = Chunk { low, high }.split(u64::MAX);
        assert!(chunks.len() as u64 <= MAX_CHUNKS + 1);
        assert_eq!(chunks.first().unwrap().low, low);
        assert_eq!(chunks.last().unwrap().high, high);
        for pair in chunks.windows(2) {
            assert_eq!(pair[0].high + 1, pair[1].low);
        }
    }
    assert_eq!(
        Chunk {
            low: 1,
            high: 65_536
        }
        .split(u64::MAX)
        .len(),
        1
    );
    assert_eq!(Chunk { low: 0, high: -1 }.split(u64::MAX).len(), 1);
}

/// Keeps every value as text.
#[derive(Clone, Default)]
struct Said(Vec<String>);

impl Sink for Said {
    const COLUMNS: &'static [&'static str] = &["id", "a", "b|c", "c", "missing=7", "late", "z"];

    fn row(&mut self, cells: &Cells<'_, '_>) {
        let values = (0..=Self::COLUMNS.len()).map(|at| format!("{:?}", cells.raw(at)));
        self.0.push(values.collect::<Vec<_>>().join(" "));
    }
}

/// The rows of a table, read from its pages and through SQLite.
fn both_ways(path: &Path) -> [Vec<String>; 2] {
    let mut db = Db::open(path).unwrap();
    assert!(db.pages.is_some());
    let rows = |db: &Db| {
        let parts = db
            .scan("t", &Said::default(), &crate::read::NoProgress)
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
        db.scan("t", &Said::default(), &crate::read::NoProgress)
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
        ["\"start\"", "coalesce(\"b\", \"c\")", "NULL", "0", "\"t\""]
    );
}

#[test]
fn long_rows_that_share_their_pages_are_reported_as_damage() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.sqlite");
    let conn = Connection::open(&path).unwrap();
    conn.execute_batch("PRAGMA page_size = 512; CREATE TABLE t (a, b);")
        .unwrap();
    let long = "x".repeat(100_000);
    conn.execute("INSERT INTO t VALUES (1, ?1)", [&long])
        .unwrap();
    drop(conn);
    let mut bytes = std::fs::read(&path).unwrap();
    assert_eq!(both_ways(&path)[0].len(), 1);
    // The only row a second time: another pointer to the same cell.
    let leaf = 512;
    assert_eq!(bytes[leaf..leaf + 5], [13, 0, 0, 0, 1]);
    bytes[leaf + 4] = 2;
    let cell = [bytes[leaf + 8], bytes[leaf + 9]];
    bytes[leaf + 10..leaf + 12].copy_from_slice(&cell);
    std::fs::write(&path, bytes).unwrap();
    let db = Db::open(&path).unwrap();
    let read = db.scan("t", &Said::default(), &crate::read::NoProgress);
    let error = read.err().unwrap().to_string();
    assert!(error.contains("longer than the file"), "{error}");
}

#[test]
fn rows_out_of_order_are_found() {
    let folder = tempfile::tempdir().unwrap();
    for order in [[1_usize, 0, 2], [2, 1, 0], [0, 2, 1]] {
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
        let [direct, through] = both_ways(&path);
        assert_eq!((direct.len(), direct), (3, through), "{order:?}");
    }
}
