//! Writes a capture like an export of Nsight Systems (`nsys export --type sqlite`): the tables that the
//! readers use, with the columns of schema 3.11. Tables without rows do not exist, as in the exporter's
//! lazy mode.

use std::collections::HashMap;

use indexmap::IndexSet;
use rusqlite::types::Value;
use rusqlite::{Connection, Result, params_from_iter};

use super::capture::{Capture, RangeKind, TextStyle, Where, Work};

/// Tables and their columns.
const TABLES: &[(&str, &str)] = &[
    (
        "StringIds",
        "id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL",
    ),
    ("META_DATA_EXPORT", "name TEXT NOT NULL, value TEXT"),
    ("PROCESSES", "globalPid INTEGER, pid INTEGER, name TEXT"),
    (
        "ThreadNames",
        "nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER",
    ),
    (
        "TARGET_INFO_GPU",
        "vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, \
         isDiscrete INTEGER, l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, \
         clockRate INTEGER, smCount INTEGER, pwGpuId INTEGER, uuid TEXT, luid INTEGER, \
         chipName TEXT, cuDevice INTEGER, ctxswDevPath TEXT, ctrlDevPath TEXT, revision INTEGER, \
         nodeMask INTEGER, constantMemory INTEGER, maxIPC INTEGER, maxRegistersPerBlock INTEGER, \
         maxShmemPerBlock INTEGER, maxShmemPerBlockOptin INTEGER, maxShmemPerSm INTEGER, \
         maxRegistersPerSm INTEGER, threadsPerWarp INTEGER, asyncEngines INTEGER, \
         maxWarpsPerSm INTEGER, maxBlocksPerSm INTEGER, maxThreadsPerBlock INTEGER, \
         maxBlockDimX INTEGER, maxBlockDimY INTEGER, maxBlockDimZ INTEGER, maxGridDimX INTEGER, \
         maxGridDimY INTEGER, maxGridDimZ INTEGER, computeMajor INTEGER, computeMinor INTEGER, \
         smMajor INTEGER, smMinor INTEGER",
    ),
    (
        "CUPTI_ACTIVITY_KIND_KERNEL",
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, \
         shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, \
         cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, \
         gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, \
         blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, \
         dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, \
         localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, \
         sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, \
         copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, \
         srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, \
         migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, \
         bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER",
    ),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, syncType INTEGER NOT NULL, \
         eventId INTEGER NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
        "start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, \
         contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, \
         correlationId INTEGER, globalPid INTEGER, graphId INTEGER NOT NULL, \
         graphExecId INTEGER NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, \
         globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, \
         returnValue INTEGER NOT NULL, callchainId INTEGER",
    ),
    (
        "PROFILER_OVERHEAD",
        "start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, \
         nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL",
    ),
    (
        "NVTX_EVENTS",
        "start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, \
         category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, \
         textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, \
         doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, \
         jsonTextId INTEGER, jsonText TEXT",
    ),
];

/// The table of an enumeration, with id, symbol and label of each value.
type Enumeration = (&'static str, &'static [(i64, &'static str, &'static str)]);

const ENUMS: &[Enumeration] = &[
    (
        "ENUM_NSYS_EVENT_TYPE",
        &[
            (34, "NvtxMark", "NvtxMark"),
            (59, "NvtxPushPopRange", "NvtxPushPopRange"),
            (60, "NvtxStartEndRange", "NvtxStartEndRange"),
            (75, "NvtxDomainCreate", "NvtxDomainCreate"),
        ],
    ),
    (
        "ENUM_NSYS_EVENT_CLASS",
        &[
            (0, "TRACE_PROCESS_EVENT_CUDA_RUNTIME", "CUDA runtime"),
            (1, "TRACE_PROCESS_EVENT_CUDA_DRIVER", "CUDA driver"),
        ],
    ),
    (
        "ENUM_CUDA_MEMCPY_OPER",
        &[
            (0, "CUDA_MEMCPY_KIND_UNKNOWN", "Unknown"),
            (1, "CUDA_MEMCPY_KIND_HTOD", "Host-to-Device"),
            (2, "CUDA_MEMCPY_KIND_DTOH", "Device-to-Host"),
            (8, "CUDA_MEMCPY_KIND_DTOD", "Device-to-Device"),
            (10, "CUDA_MEMCPY_KIND_PTOP", "Peer-to-Peer"),
        ],
    ),
    (
        "ENUM_CUDA_MEM_KIND",
        &[
            (0, "CUDA_MEMOPR_MEMORY_KIND_PAGEABLE", "Pageable"),
            (1, "CUDA_MEMOPR_MEMORY_KIND_PINNED", "Pinned"),
            (2, "CUDA_MEMOPR_MEMORY_KIND_DEVICE", "Device"),
        ],
    ),
    (
        "ENUM_CUPTI_SYNC_TYPE",
        &[
            (
                1,
                "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_EVENT_SYNCHRONIZE",
                "Event sync",
            ),
            (
                2,
                "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT",
                "Stream wait sync",
            ),
            (
                3,
                "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE",
                "Stream sync",
            ),
            (
                4,
                "CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_CONTEXT_SYNCHRONIZE",
                "Context sync",
            ),
        ],
    ),
];

/// The version suffixes of runtime calls in nsys.
const API_VERSIONS: &[(&str, &str)] = &[
    ("cudaLaunchKernel", "_v7000"),
    ("cudaLaunchKernelExC", "_v11060"),
    ("cudaGraphLaunch", "_v10000"),
];

struct Writer<'a> {
    database: &'a Connection,
    strings: IndexSet<String>,
}

/// Writes all tables.
pub(super) fn write(capture: &Capture, database: &Connection) -> Result<()> {
    let mut writer = Writer {
        database,
        strings: IndexSet::from(["[Unknown]".to_owned()]),
    };
    writer.about(capture)?;
    writer.gpus(capture)?;
    writer.ranges(capture)?;
    writer.calls(capture)?;
    writer.kernels(capture)?;
    writer.memory(capture)?;
    writer.syncs_and_graphs(capture)?;
    for (table, values) in ENUMS {
        database.execute_batch(&format!(
            "CREATE TABLE {table} (id INTEGER NOT NULL PRIMARY KEY, name TEXT, label TEXT)"
        ))?;
        for (id, name, label) in *values {
            writer.row(
                table,
                &[
                    ("id", (*id).into()),
                    ("name", text(name)),
                    ("label", text(label)),
                ],
            )?;
        }
    }
    for (id, value) in writer.strings.iter().enumerate() {
        writer.row("StringIds", &[("id", index(id)), ("value", text(value))])?;
    }
    Ok(())
}

impl Writer<'_> {
    /// Inserts a row, creating the table first if necessary.
    fn row(&self, table: &str, values: &[(&str, Value)]) -> Result<()> {
        if let Some((_, columns)) = TABLES.iter().find(|(name, _)| *name == table) {
            self.database
                .prepare_cached(&format!("CREATE TABLE IF NOT EXISTS {table} ({columns})"))?
                .execute([])?;
        }
        let columns: Vec<&str> = values.iter().map(|(column, _)| *column).collect();
        let places = vec!["?"; values.len()].join(", ");
        let insert = format!(
            "INSERT INTO {table} ({}) VALUES ({places})",
            columns.join(", ")
        );
        self.database
            .prepare_cached(&insert)?
            .execute(params_from_iter(values.iter().map(|(_, value)| value)))?;
        Ok(())
    }

    fn string(&mut self, text: &str) -> Value {
        index(self.strings.insert_full(text.to_owned()).0)
    }

    fn about(&mut self, capture: &Capture) -> Result<()> {
        let mut parts = capture.schema.split('.');
        let mut part = || parts.next().unwrap_or("0").to_owned();
        for (name, value) in [
            ("EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems".to_owned()),
            ("EXPORT_PRODUCT_VERSION", capture.tool.clone()),
            ("EXPORT_SCHEMA_VERSION", capture.schema.clone()),
            ("EXPORT_SCHEMA_VERSION_MAJOR", part()),
            ("EXPORT_SCHEMA_VERSION_MINOR", part()),
            ("EXPORT_SCHEMA_VERSION_MICRO", part()),
        ] {
            self.row(
                "META_DATA_EXPORT",
                &[("name", text(name)), ("value", text(&value))],
            )?;
        }
        for (pid, _) in &capture.processes {
            self.row(
                "PROCESSES",
                &[
                    ("globalPid", global_pid(*pid)),
                    ("pid", (*pid).into()),
                    ("name", text("python")),
                ],
            )?;
        }
        for thread in &capture.threads {
            let name = self.string(&thread.name);
            self.row(
                "ThreadNames",
                &[
                    ("nameId", name),
                    ("priority", 20.into()),
                    ("globalTid", global_tid(thread.at)),
                ],
            )?;
        }
        Ok(())
    }

    fn gpus(&self, capture: &Capture) -> Result<()> {
        const COLUMNS: [(&str, &str); 14] = [
            ("l2CacheSize", "l2"),
            ("totalMemory", "memory"),
            ("memoryBandwidth", "bandwidth"),
            ("clockRate", "clock"),
            ("smCount", "sms"),
            ("maxShmemPerBlockOptin", "optin"),
            ("maxShmemPerSm", "shared"),
            ("maxRegistersPerSm", "regs"),
            ("maxWarpsPerSm", "warps"),
            ("maxBlocksPerSm", "blocks"),
            ("computeMajor", "major"),
            ("computeMinor", "minor"),
            ("smMajor", "major"),
            ("smMinor", "minor"),
        ];
        for device in &capture.devices {
            let mut row = vec![
                ("vmId", Value::from(1i64 << 48)),
                ("id", device.id.into()),
                ("name", text(&device.name)),
                ("isDiscrete", 1.into()),
                ("cuDevice", device.id.into()),
                ("threadsPerWarp", 32.into()),
                ("maxThreadsPerBlock", 1024.into()),
            ];
            for (column, key) in COLUMNS {
                if let Some(value) = device.attributes.get(key) {
                    row.push((column, (*value).into()));
                }
            }
            self.row("TARGET_INFO_GPU", &row)?;
        }
        Ok(())
    }

    fn ranges(&mut self, capture: &Capture) -> Result<()> {
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for range in &capture.ranges {
            *seen.entry(&range.text).or_default() += 1;
        }
        for range in &capture.ranges {
            let registered = match capture.text {
                TextStyle::Inline => false,
                TextStyle::Registered => true,
                TextStyle::Mixed => seen
                    .get(range.text.as_str())
                    .is_some_and(|times| *times > 1),
            };
            let (kind, end) = match range.kind {
                RangeKind::Mark => (34, Value::Null),
                // Ranges that are open when the capture stops end with it.
                RangeKind::PushPop => (59, range.end.unwrap_or(capture.end).into()),
                RangeKind::StartEnd => (60, range.end.unwrap_or(capture.end).into()),
            };
            let said = if registered {
                ("textId", self.string(&range.text))
            } else {
                ("text", text(&range.text))
            };
            self.row(
                "NVTX_EVENTS",
                &[
                    ("start", range.start.into()),
                    ("end", end),
                    ("eventType", Value::from(kind)),
                    said,
                    ("globalTid", global_tid(range.at)),
                    ("domainId", 0.into()),
                ],
            )?;
        }
        Ok(())
    }

    fn calls(&mut self, capture: &Capture) -> Result<()> {
        for call in &capture.calls {
            let driver = !call.name.starts_with("cuda");
            let version = API_VERSIONS.iter().find(|(name, _)| *name == call.name);
            let version = if driver {
                ""
            } else {
                version.map_or("_v3020", |(_, v)| v)
            };
            let name = self.string(&format!("{}{version}", call.name));
            self.row(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                &[
                    ("start", call.start.into()),
                    ("end", call.end.into()),
                    ("eventClass", i64::from(driver).into()),
                    ("globalTid", global_tid(call.at)),
                    ("correlationId", call.correlation.into()),
                    ("nameId", name),
                    ("returnValue", 0.into()),
                ],
            )?;
        }
        for (at, start, end) in &capture.overheads {
            let name = self.string("CUDA profiling data flush");
            self.row(
                "PROFILER_OVERHEAD",
                &[
                    ("start", (*start).into()),
                    ("end", (*end).into()),
                    ("globalTid", global_tid(*at)),
                    ("nameId", name),
                    ("returnValue", 0.into()),
                ],
            )?;
        }
        Ok(())
    }

    fn kernels(&mut self, capture: &Capture) -> Result<()> {
        for (number, kernel) in capture.kernels.iter().enumerate() {
            let shape = &kernel.shape;
            let full = self.string(&shape.name);
            let short = self.string(short_name(&shape.name));
            let mut row = work(&kernel.work);
            row.extend([
                ("demangledName", full),
                ("shortName", short),
                ("launchType", 1.into()),
                ("cacheConfig", 1.into()),
                ("registersPerThread", shape.regs.into()),
                ("gridX", kernel.grid[0].into()),
                ("gridY", kernel.grid[1].into()),
                ("gridZ", kernel.grid[2].into()),
                ("blockX", shape.block[0].into()),
                ("blockY", shape.block[1].into()),
                ("blockZ", shape.block[2].into()),
                ("staticSharedMemory", shape.fixed.into()),
                ("dynamicSharedMemory", shape.dynamic.into()),
                ("localMemoryPerThread", shape.local.into()),
                ("localMemoryTotal", 0.into()),
                ("gridId", index(number + 1)),
                (
                    "graphNodeId",
                    kernel.work.node.map_or(Value::Null, Value::from),
                ),
                ("sharedMemoryLimitConfig", 0.into()),
            ]);
            self.row("CUPTI_ACTIVITY_KIND_KERNEL", &row)?;
        }
        Ok(())
    }

    fn memory(&self, capture: &Capture) -> Result<()> {
        for copy in &capture.copies {
            let mut row = work(&copy.work);
            row.extend([
                ("bytes", copy.bytes.into()),
                ("copyKind", (copy.direction as i64).into()),
                ("srcKind", (copy.from as i64).into()),
                ("dstKind", (copy.to as i64).into()),
            ]);
            self.row("CUPTI_ACTIVITY_KIND_MEMCPY", &row)?;
        }
        for set in &capture.sets {
            let mut row = work(&set.work);
            row.extend([
                ("value", 0.into()),
                ("bytes", set.bytes.into()),
                ("memKind", 2.into()),
            ]);
            self.row("CUPTI_ACTIVITY_KIND_MEMSET", &row)?;
        }
        Ok(())
    }

    fn syncs_and_graphs(&self, capture: &Capture) -> Result<()> {
        for sync in &capture.syncs {
            let mut row = work(&sync.work);
            row.extend([
                ("syncType", sync.kind.into()),
                ("eventId", i64::from(u32::MAX).into()),
            ]);
            self.row("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &row)?;
        }
        for graph in &capture.graphs {
            let mut row = work(&graph.work);
            row.extend([
                ("graphId", graph.id.into()),
                ("graphExecId", graph.id.into()),
            ]);
            self.row("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &row)?;
        }
        Ok(())
    }
}

/// The columns of all GPU work.
fn work(work: &Work) -> Vec<(&'static str, Value)> {
    vec![
        ("start", work.start.into()),
        ("end", work.end.into()),
        ("deviceId", work.device.into()),
        ("contextId", 1.into()),
        ("greenContextId", 0.into()),
        ("streamId", work.stream.into()),
        ("correlationId", work.correlation.into()),
        ("globalPid", global_pid(work.pid)),
    ]
}

fn text(value: &str) -> Value {
    Value::from(value.to_owned())
}

fn index(value: usize) -> Value {
    Value::from(i64::try_from(value).unwrap_or(i64::MAX))
}

/// The pid in bits 24 to 47, the hardware id above.
fn global_pid(pid: i64) -> Value {
    Value::from((1 << 48) | (pid << 24))
}

fn global_tid(at: Where) -> Value {
    Value::from((1 << 48) | (at.pid << 24) | at.tid)
}

/// The name of the function without return type, namespaces, template arguments and parameters.
fn short_name(full: &str) -> &str {
    let unnamed = "(anonymous namespace)::";
    // Only namespaces before the first template argument belong to the function.
    let tail = match full.find(unnamed) {
        Some(at) if !full[..at].contains('<') => &full[at + unnamed.len()..],
        _ => full,
    };
    let end = tail.find(['<', '(']).unwrap_or(tail.len());
    let head = tail[..end].trim_end();
    let head = head.rsplit(' ').next().unwrap_or(head);
    head.rsplit("::").next().unwrap_or(head)
}
