//! The kernel name decoder on every real profile: the family of each kernel is known, except that of
//! kernels of the program's own that are listed here.

use crate::shared;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use pyprof_advise::cost::kernel_name::decode;
use pyprof_advise::cost::{Family, TensorCore};
use rusqlite::{Connection, OpenFlags};

/// Nanoseconds per kernel name.
type Times = BTreeMap<String, f64>;

fn kineto(path: &Path) -> Times {
    let bytes = std::fs::read(path).unwrap();
    let mut text = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        flate2::read::MultiGzDecoder::new(bytes.as_slice())
            .read_to_end(&mut text)
            .unwrap();
    } else {
        text = bytes;
    }
    let json: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let events = json.get("traceEvents").unwrap_or(&json);
    let mut times = Times::new();
    for event in events.as_array().into_iter().flatten() {
        let is_kernel = matches!(event["cat"].as_str(), Some("kernel" | "Kernel"));
        if let (true, Some(name)) = (is_kernel, event["name"].as_str()) {
            let us = event["dur"].as_f64().unwrap_or_default();
            *times.entry(name.to_owned()).or_default() += us * 1000.0;
        }
    }
    times
}

fn sqlite(path: &Path) -> Times {
    let uri = format!("file:{}?immutable=1", path.display());
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let db = Connection::open_with_flags(uri, flags).unwrap();
    let has = |table: &str| {
        db.query_row(
            "select 1 from sqlite_master where name = ?",
            [table],
            |_| Ok(()),
        )
        .is_ok()
    };
    let mut times = Times::new();
    for table in [
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
    ] {
        if !has(table) {
            continue;
        }
        let names = if has("StringIds") {
            "StringIds s on s.id = k.demangledName"
        } else {
            "StringTable s on s._id_ = k.name"
        };
        let sql =
            format!("select s.value, sum(k.end - k.start) from {table} k join {names} group by 1");
        let mut query = db.prepare(&sql).unwrap();
        let rows = query
            .query_map([], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, f64>(1)?))
            })
            .unwrap();
        for row in rows {
            let (name, ns) = row.unwrap();
            *times.entry(name).or_default() += ns;
        }
    }
    times
}

/// The kernels of every real profile, read once for all tests.
static KERNELS: LazyLock<Vec<(String, Times)>> = LazyLock::new(|| {
    let mut paths = shared::profiles().unwrap_or_default();
    paths.extend(shared::pairs());
    let mut found = Vec::new();
    for path in paths {
        let name = shared::name(&path);
        let times = if name.ends_with(".json") || name.ends_with(".json.gz") {
            kineto(&path)
        } else {
            sqlite(&path)
        };
        if !times.is_empty() {
            found.push((name, times));
        }
    }
    found
});

fn profiles() -> Option<&'static [(String, Times)]> {
    shared::path("profiles").map(|_| KERNELS.as_slice())
}

/// Kernels that a program brings with it and whose names tell no kind of work, as beginnings of labels:
/// of a Triton attention kernel of Segment Anything, and of a thesis in raw CUDA.
const OF_THE_PROGRAM: &[&str] = &["_fwd_kernel_aligned", "p_out_kernel", "tauLo_kernel"];

/// Kernels of matrix products and attention whose names do not tell whether they use Tensor Cores:
/// file, and a part of the name.
const UNDECIDED: &[(&str, &str)] = &[
    ("deepseek_h800_train.json", "cutlass::device_kernel"),
    ("marcalph_t4_custom.pt.trace.json", "matmul_k"),
    (
        "ao_vit/4_tuned.json.gz",
        "matmul_kernel_with_block_pointers",
    ),
    ("lightllm/overlap_rank0.json.gz", "flashinfer::mla::hopper"),
    ("lightllm/plain_rank0.json.gz", "flashinfer::mla::hopper"),
];

#[test]
fn every_kernel_has_a_family_unless_it_is_of_the_program() {
    let Some(profiles) = profiles() else { return };
    assert!(
        profiles.len() > 20,
        "only {} profiles with kernels",
        profiles.len()
    );
    let mut unknown = Vec::new();
    for (file, times) in profiles {
        for name in times.keys() {
            let decoded = decode(name);
            let own = OF_THE_PROGRAM
                .iter()
                .any(|own| decoded.label.starts_with(own));
            if decoded.family == Family::Unknown && !own {
                unknown.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{}", unknown.join("\n"));
}

#[test]
fn tensor_core_use_of_math_kernels_is_known() {
    let Some(profiles) = profiles() else { return };
    let mut undecided = Vec::new();
    for (file, times) in profiles {
        for name in times.keys() {
            let decoded = decode(name);
            let judged = matches!(
                decoded.family,
                Family::Gemm | Family::Conv | Family::Attention
            );
            let exception = (UNDECIDED.iter())
                .any(|(named, part)| file.as_str() == *named && name.contains(part));
            if judged && !exception && !decoded.triton && decoded.tensor_core == TensorCore::Unknown
            {
                undecided.push(format!("{file}: {name}"));
            }
        }
    }
    assert!(undecided.is_empty(), "{}", undecided.join("\n"));
}

#[test]
fn labels_are_short_and_bases_are_clean() {
    let Some(profiles) = profiles() else { return };
    for (_, times) in profiles {
        for name in times.keys() {
            let decoded = decode(name);
            assert!(decoded.label.chars().count() <= 60, "{name}");
            assert!(!decoded.label.is_empty(), "{name}");
            assert!(
                !decoded.base.contains(['<', '>', '(', ' ']),
                "{}: {name}",
                decoded.base
            );
        }
    }
}

#[test]
#[ignore = "prints how every name is decoded, for reading"]
fn print_all() {
    for (_, times) in profiles().into_iter().flatten() {
        for name in times.keys() {
            let d = decode(name);
            println!(
                "{}|{:?}|{:?}|{:?}|{:?}|{}\t{}",
                d.family.name(),
                d.tensor_core,
                d.dtype,
                d.tile,
                d.strided,
                d.label,
                name.chars().take(150).collect::<String>()
            );
        }
    }
}
