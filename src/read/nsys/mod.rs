//! SQLite exports of Nsight Systems (`nsys export --type sqlite`), schema 2.x to 3.25.
//!
//! Tables and columns differ between versions, and with the default lazy export a table without rows
//! does not exist; see <https://docs.nvidia.com/nsight-systems/UserGuide/> ("SQLite Schema Reference").
//! Threads are `globalTid` = hardware (8 bits), VM (8), process (24), thread (24); a process is the
//! same number with the last 24 bits cleared.

use std::path::Path;

use rustc_hash::FxHashMap;

use super::builder::{Builder, sort_by_start};
use super::integer_rows;
use super::names::StringTable;
use super::pruning::Pruning;
use super::reader::{Input, NoProgress, Progress, ReadError, Reader};
use super::sqlite::Db;
use crate::base::units;
use crate::profile::{Container, Format, ProcessId, Profile, RangeArgs, Switch, ThreadId};

mod activities;
mod calls;
mod devices;
mod enums;
mod graph_nodes;
mod host;
mod kernels;
mod nccl;
mod ranges;

use ranges::Ranges;

/// Reads exports of Nsight Systems.
pub(super) struct Nsys;

const KERNELS: &str = "CUPTI_ACTIVITY_KIND_KERNEL";
const RUNTIME: &str = "CUPTI_ACTIVITY_KIND_RUNTIME";
/// Older exports have a separate table of driver calls.
const DRIVER: &str = "CUPTI_ACTIVITY_KIND_DRIVER";
const RANGES: &str = "NVTX_EVENTS";
const STRINGS: &str = "StringIds";

/// The format of SQLite exports of Nsight Systems.
pub static FORMAT: Format = Format {
    id: "nsys_sqlite",
    name: "Nsight Systems SQLite export",
    ranges: "NVTX ranges",
    container: Container::Sqlite,
    range_args: RangeArgs::Sizes,
    how_to_capture: super::cupti::HOW_TO_CAPTURE,
    record_operators: super::cupti::RECORD_OPERATORS,
    name_operators: super::cupti::RECORD_OPERATORS,
    is_of_pytorch: false,
    has_stacks: false,
    has_graph_captures: true,
    how_to_record: &[],
};

impl Reader for Nsys {
    fn format(&self) -> &'static Format {
        &FORMAT
    }

    fn recognizes(&self, input: &Input<'_>) -> bool {
        // `StringIds` alone does not identify Nsight Systems.
        const OWN: [&str; 6] = [
            "CUPTI_ACTIVITY_KIND_",
            "NVTX_EVENTS",
            "META_DATA_EXPORT",
            "EXPORT_META_DATA",
            "TARGET_INFO_",
            "ENUM_NSYS_",
        ];
        // `StringTable` is nvprof's.
        !input.has_table("StringTable") && OWN.iter().any(|name| input.has_table_like(name))
    }

    /// Ranges that are not needed are removed while they are read: they are most of a large file.
    fn read(
        &self,
        path: &Path,
        pruning: Option<&dyn Pruning>,
        progress: &dyn Progress,
    ) -> Result<Profile, ReadError> {
        let db = Db::open(path)?;
        db.survey()?;
        let mut builder = Builder::new(&FORMAT, path);
        read_versions(&db, &mut builder.profile)?;
        let pids = Pids::read(&db)?;

        let gpus = devices::Gpus::read(&db, progress)?;

        let mut calls = calls::UnnamedCalls::default();
        for table in [RUNTIME, DRIVER] {
            calls.read(&db, table, &pids, &mut builder, progress)?;
        }
        let nodes = graph_nodes::GraphNodes::read(&db, &mut builder.profile, progress)?;
        let mut records = activities::NsysRecords::of(&db, &pids, &gpus, nodes)?;
        let mut kernels = kernels::UnnamedKernels::default();
        kernels.read(&db, KERNELS, &mut records, &mut builder, progress)?;
        let overheads = activities::overheads(&db, progress)?;
        #[allow(clippy::redundant_closure_for_method_calls)] // The method is not general enough.
        let name_ids = (overheads.iter().flat_map(|part| part.name_ids()))
            .chain(calls.name_ids())
            .chain(kernels.name_ids());
        let strings = StringTable::read(&db, STRINGS, name_ids.collect(), progress)?;
        calls.name(&strings, &mut builder);
        kernels.name(&strings, &mut builder);
        activities::add_overheads(overheads, &strings, &pids, &mut builder);
        activities::add(&db, &mut records, &mut builder, progress)?;
        drop(records);
        graph_nodes::forget_updated(&mut builder.profile);

        let kinds = enums::event_kinds(&db)?;
        let pruner = pruning.and_then(|pruning| pruning.start(&builder.profile));
        // Reading the ranges takes longest, and does not need the calls.
        let mut calls = std::mem::take(&mut builder.profile.calls);
        let ranges = rayon::in_place_scope(|scope| {
            scope.spawn(|_| sort_by_start(&mut calls, |call| call.span.start));
            Ranges::read(&db, &kinds, pruner, &pids, &mut builder, progress)
        })?;
        builder.profile.calls = calls;
        let strings = StringTable::read(&db, STRINGS, ranges.ids().collect(), progress)?;
        let payloads = ranges.payloads;
        let sampler_domains = ranges.domains_named(host::SAMPLER_DOMAIN, &strings);
        ranges.name(&strings, pruning, &mut builder);

        let messages = match payloads {
            true => nccl::Messages::read(&db, &pids, &mut builder, progress)?,
            false => nccl::Messages::default(),
        };
        host::add(&db, &sampler_domains, &mut builder, progress)?;
        builder.profile.unix_zero_ns = session_start(&db, progress)?;
        builder.profile.switches = switches(&db)?;
        gpus.add_idle(&mut builder);
        record(&db, &mut builder.profile)?;
        let mut profile = builder.finish(|key, device| gpus.describe(key, device));
        messages.attach(&mut profile);
        Ok(profile)
    }
}

/// The environment variables that change performance, if the export lists them by name.
fn switches(db: &Db) -> Result<Vec<Switch>, ReadError> {
    let rows = db.pairs("TARGET_INFO_SYSTEM_ENV", ["name", "value"])?;
    let switches = rows.iter();
    let switches = switches.filter_map(|(name, value)| Switch::of(name, value));
    let mut switches: Vec<Switch> = switches.collect();
    switches.sort_by(|a, b| a.name.cmp(&b.name));
    switches.dedup();
    Ok(switches)
}

/// When the session began, to which all times are relative, in ns since 1970 (UTC).
fn session_start(db: &Db, progress: &dyn Progress) -> Result<Option<i64>, ReadError> {
    const COLUMNS: [&str; 1] = ["utcEpochNs"];
    let rows = integer_rows::rows(db, "TARGET_INFO_SESSION_START_TIME", COLUMNS, progress)?;
    Ok(rows.first().and_then(|[start]| *start).filter(|ns| *ns > 0))
}

/// The process ids of `globalPid`s, if the export lists them.
struct Pids(FxHashMap<i64, u64>);

impl Pids {
    fn read(db: &Db) -> Result<Pids, ReadError> {
        const COLUMNS: [&str; 2] = ["globalPid", "pid"];
        let rows = integer_rows::rows(db, "PROCESSES", COLUMNS, &NoProgress)?;
        Ok(Pids(
            rows.into_iter()
                .filter_map(|[global, pid]| Some((global?, u64::try_from(pid?).ok()?)))
                .collect(),
        ))
    }

    /// The process of a `globalPid` or `globalTid`.
    fn process(&self, builder: &mut Builder, global: i64) -> ProcessId {
        let key = process_key(global);
        builder.process(key, || self.pid(key))
    }

    /// The thread of a `globalTid`.
    fn thread(&self, builder: &mut Builder, global: i64) -> ThreadId {
        let key = process_key(global);
        let tid = (global & THREAD_BITS).cast_unsigned();
        builder.thread(key, || self.pid(key), tid)
    }

    fn pid(&self, key: i64) -> u64 {
        let packed = ((key >> 24) & THREAD_BITS).cast_unsigned();
        self.0.get(&key).copied().unwrap_or(packed)
    }
}

const THREAD_BITS: i64 = 0xFF_FFFF;

/// The process part of a `globalTid`.
fn process_key(global: i64) -> i64 {
    global & !THREAD_BITS
}

/// Reads the versions of tool and schema. Before schema 3, their table was `EXPORT_META_DATA`.
fn read_versions(db: &Db, profile: &mut Profile) -> Result<(), ReadError> {
    let mut rows = db.pairs("META_DATA_EXPORT", ["name", "value"])?;
    rows.extend(db.pairs("EXPORT_META_DATA", ["name", "value"])?);
    let find = |name: &str| {
        rows.iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.chars().take(40).collect::<String>())
    };
    profile.tool_version = find("EXPORT_PRODUCT_VERSION");
    profile.schema_version = find("EXPORT_SCHEMA_VERSION").or_else(|| {
        let major = find("EXPORT_SCHEMA_VERSION_MAJOR")?;
        let minor = find("EXPORT_SCHEMA_VERSION_MINOR")?;
        Some(format!("{major}.{minor}"))
    });
    Ok(())
}

/// Fills in which data was recorded. CUDA tracing is one switch: if kernels or calls were recorded,
/// copies and synchronizations were too.
fn record(db: &Db, profile: &mut Profile) -> Result<(), ReadError> {
    let recorded = &mut profile.recorded;
    recorded.kernels = !profile.kernels.is_empty();
    recorded.api_calls = !profile.calls.is_empty();
    recorded.ranges = !profile.ranges.is_empty() || db.has(RANGES);
    let cuda = recorded.kernels || recorded.api_calls || !profile.graphs.is_empty();
    recorded.copies = cuda || db.has(activities::COPIES);
    recorded.syncs = cuda || db.has(activities::SYNCS);
    recorded.environment = db.has_rows("TARGET_INFO_SYSTEM_ENV")? || captured_environment(db)?;
    recorded.windows = recorded_on_windows(db)?;
    notes(profile);
    Ok(())
}

fn recorded_on_windows(db: &Db) -> Result<bool, ReadError> {
    let settings = db.pairs("META_DATA_CAPTURE", ["name", "value"])?;
    let mut settings = settings.iter();
    Ok(settings.any(|(name, value)| name == "DEVICE_TYPE" && value == "Windows"))
}

/// Whether the capture settings list environment variables. Reads only names of settings.
fn captured_environment(db: &Db) -> Result<bool, ReadError> {
    let rows = db.pairs("META_DATA_CAPTURE", ["id", "name"])?;
    let named = db.pairs("META_DATA_CAPTURE", ["name", "name"])?;
    Ok(rows.iter().chain(&named).any(|(_, name)| {
        let name = name.to_ascii_uppercase();
        name.contains("ENVIRONMENT") || name.contains("ENV_VAR") || name.ends_with(":ENV")
    }))
}

fn notes(profile: &mut Profile) {
    const AGAIN: &str = "capture again with `nsys profile -t cuda,nvtx -o net python train.py`";
    let recorded = profile.recorded;
    let graphs = profile.graphs.len() as u64;
    if !recorded.kernels {
        let what = if graphs > 0 {
            "The file holds no single kernels"
        } else {
            "The file holds no kernels: CUDA was not traced, or nothing ran on the GPU"
        };
        profile.note("kernels_missing", format!("{what}; {AGAIN}."));
    }
    if graphs > 0 {
        profile.note(
            "graphs_whole",
            format!(
                "{} CUDA graph launches are recorded as a whole, without the kernels inside; \
                 capture again with `nsys profile --cuda-graph-trace=node` to see them, from before \
                 the graphs are captured to see their operators as well.",
                units::count(graphs)
            ),
        );
    }
    if !recorded.api_calls {
        profile.note(
            "calls_missing",
            format!(
                "The file holds no CUDA API calls, so kernels cannot be tied to the code that \
                 launched them; {AGAIN}."
            ),
        );
    }
    if profile.ranges.is_empty() {
        profile.note(
            "ranges_missing",
            "The file holds no NVTX ranges, so kernels cannot be tied to operators and layers; \
             run the model under `torch.autograd.profiler.emit_nvtx(record_shapes=True)` and \
             capture with `nsys profile -t cuda,nvtx`.",
        );
    }
    if recorded.environment {
        profile.note(
            "environment_block",
            "The export carries the environment of the captured machine (variables, host \
             details), which may hold secrets; nothing of it is read or printed here, but think \
             before you share the file.",
        );
    }
}
