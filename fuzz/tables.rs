//! Interprets bytes as edits of a small database. A fuzzer would hardly reach these by changing bytes
//! of a file, because SQLite rejects most changes before a reader sees them.

use std::path::Path;
use std::sync::OnceLock;

use rusqlite::types::Value;
use rusqlite::{Connection, params};

/// Maximum number of edits of one file; more only make a case slow.
const MAX_EDITS: usize = 48;
/// Maximum number of rows of a table.
const MAX_ROWS: i64 = 2_000;

/// Consumes values from the input until it is empty, then returns zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn below(&mut self, n: usize) -> usize {
        usize::from(self.byte()) % n.max(1)
    }

    fn word(&mut self) -> i64 {
        i64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    fn value(&mut self) -> Value {
        match self.byte() {
            0 => Value::Null,
            1 => Value::Integer(i64::MAX),
            2 => Value::Integer(i64::MIN),
            3 => Value::Integer(-1),
            4 => Value::Real(f64::from_bits(self.word() as u64)),
            5 | 6 => {
                let length = self.below(40);
                let bytes: Vec<u8> = (0..length).map(|_| self.byte()).collect();
                Value::Text(String::from_utf8_lossy(&bytes).into_owned())
            }
            7 => Value::Blob((0..8).map(|_| self.byte()).collect()),
            8 => Value::Integer(self.word()),
            9..=40 => Value::Text(TEXTS[self.below(TEXTS.len())].to_owned()),
            small => Value::Integer(i64::from(small) - 60),
        }
    }
}

/// Texts with a meaning in some format.
const TEXTS: &[&str] = &[
    "aten::mm, seq = 5, op_id = 9, sizes = [[2, 3], [3, 4]]",
    "aten::linear, seq = 5, sizes = [[8, 0, 16], [99999999999, 16], []]",
    "aten::conv2d, seq = 1, sizes = [[1, 3, 8, 8], [4, 3, 3, 3], [4], [], [], [], []]",
    "aten::_scaled_dot_product_flash_attention, sizes = [[2, 8, 64, 64], [2, 8, 64, 64], [2, 8, 64, 64]]",
    "AddmmBackward0, seq = 5",
    "autograd::engine::evaluate_function: MmBackward0, seq = 5",
    "{'mod': 'torch', 'op': 'matmul', 'args': [{'name': '', 'type': 'tensor', 'shape': (2, 3), 'dtype': 'float16'}]}",
    "{'traceMarker': ['net.py:3', 'layer:net/fc']}",
    "layer:net/conv1",
    "ProfilerStep#3",
    "iteration 7",
    "iteration 9223372036854775807",
    "FSDP::pre_forward (Block)",
    "FSDP::post_forward (Block)",
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
    "void cutlass::Kernel<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_64x6_tn_align2>",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_NNT",
    "cudaLaunchKernel_v7000",
    "cudaGraphLaunch_v10000",
    "cudaStreamSynchronize_v3020",
    "NVIDIA A100-SXM4-40GB",
    "3.11.1",
];

/// Small complete databases, as bytes: the start of the example, and the seeds of the two readers, one of them
/// with nodes of CUDA graphs.
fn bases() -> &'static [Vec<u8>] {
    static BASES: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    BASES.get_or_init(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let example = root.join("../fixtures/net.sqlite");
        let mut bases = vec![crate::with_bytes_of(&example, |copy| {
            shorten(copy).expect("the example can be edited");
        })];
        for seed in [
            "corpus/nsys/seed.sqlite",
            "corpus/nvprof/seed.sql",
            "corpus/nsys/seed_graph.sqlite",
        ] {
            bases.push(std::fs::read(root.join(seed)).expect("a seed"));
        }
        bases
    })
}

/// Keeps the first rows of every table, without constraints.
fn shorten(path: &Path) -> rusqlite::Result<()> {
    let db = Connection::open(path)?;
    for table in tables(&db)? {
        db.execute_batch(&format!(
            "CREATE TABLE shortened AS SELECT * FROM \"{table}\" LIMIT 60;
             DROP TABLE \"{table}\";
             ALTER TABLE shortened RENAME TO \"{table}\";"
        ))?;
    }
    db.execute_batch("VACUUM")
}

fn tables(db: &Connection) -> rusqlite::Result<Vec<String>> {
    db.prepare("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY 1")?
        .query_map([], |row| row.get(0))?
        .collect()
}

fn columns(db: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    db.prepare(&format!("PRAGMA table_info(\"{table}\")"))?
        .query_map([], |row| row.get(1))?
        .collect()
}

/// Runs all stages on an edited database.
///
/// # Panics
/// On every violation.
pub fn edited(data: &[u8]) {
    let mut bytes = Bytes(data);
    let bases = bases();
    let base = &bases[bytes.below(bases.len())];
    crate::with_file(base, |path| {
        let db = Connection::open(path).expect("a database");
        let _ = db.execute_batch("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN");
        for _ in 0..MAX_EDITS {
            if bytes.0.is_empty() {
                break;
            }
            // Edits that this table does not allow are ignored.
            let _ = edit(&db, &mut bytes);
        }
        let _ = db.execute_batch("COMMIT");
        drop(db);
        crate::road(path);
    });
}

fn edit(db: &Connection, bytes: &mut Bytes<'_>) -> rusqlite::Result<()> {
    let tables = tables(db)?;
    let Some(table) = tables.get(bytes.below(tables.len())) else {
        return Ok(());
    };
    let columns = columns(db, table)?;
    let Some(column) = columns.get(bytes.below(columns.len())) else {
        return Ok(());
    };
    let rows = match bytes.byte() {
        0..=99 => format!("rowid = {}", bytes.byte()),
        100..=199 => format!("rowid % {} = {}", 1 + bytes.below(9), bytes.below(9)),
        _ => "1".to_owned(),
    };
    match bytes.byte() {
        0..=159 => {
            let sql = format!("UPDATE \"{table}\" SET \"{column}\" = ?1 WHERE {rows}");
            db.execute(&sql, params![bytes.value()])?;
        }
        160..=199 => {
            let sql = format!("UPDATE \"{table}\" SET \"{column}\" = \"{column}\" + ?1 WHERE {rows}");
            db.execute(&sql, params![bytes.value()])?;
        }
        200..=229 => {
            let count = format!("SELECT count(*) FROM \"{table}\"");
            let count: i64 = db.query_row(&count, [], |row| row.get(0))?;
            if count < MAX_ROWS / 2 {
                let sql = format!("INSERT INTO \"{table}\" SELECT * FROM \"{table}\" WHERE {rows}");
                db.execute(&sql, [])?;
            }
        }
        230..=239 => db.execute_batch(&format!("DELETE FROM \"{table}\" WHERE {rows}"))?,
        240..=245 => db.execute_batch(&format!("ALTER TABLE \"{table}\" DROP COLUMN \"{column}\""))?,
        246..=250 => {
            let sql = format!("ALTER TABLE \"{table}\" RENAME COLUMN \"{column}\" TO renamed");
            db.execute_batch(&sql)?;
        }
        _ => db.execute_batch(&format!("DROP TABLE \"{table}\""))?,
    }
    Ok(())
}
