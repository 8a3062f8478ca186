//! Writes a capture as nvprof does (`nvprof -o net.sqlite`): raw CUPTI records, calls by number,
//! markers as pairs of rows.

use indexmap::IndexSet;
use rusqlite::types::Value;
use rusqlite::{Connection, Result, params_from_iter};

use super::capture::{Capture, RangeKind, Where};

const TABLES: &[(&str, &str)] = &[
    ("StringTable", "value TEXT NOT NULL UNIQUE"),
    (
        "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
        "cacheConfig BLOB NOT NULL, sharedMemoryConfig INT NOT NULL, \
         registersPerThread INT NOT NULL, partitionedGlobalCacheRequested INT NOT NULL, \
         partitionedGlobalCacheExecuted INT NOT NULL, start INT NOT NULL, end INT NOT NULL, \
         completed INT NOT NULL, deviceId INT NOT NULL, contextId INT NOT NULL, \
         streamId INT NOT NULL, gridX INT NOT NULL, gridY INT NOT NULL, gridZ INT NOT NULL, \
         blockX INT NOT NULL, blockY INT NOT NULL, blockZ INT NOT NULL, \
         staticSharedMemory INT NOT NULL, dynamicSharedMemory INT NOT NULL, \
         localMemoryPerThread INT NOT NULL, localMemoryTotal INT NOT NULL, \
         correlationId INT NOT NULL, gridId INT NOT NULL, name INT NOT NULL, \
         queued INT NOT NULL, submitted INT NOT NULL, launchType INT NOT NULL, \
         isSharedMemoryCarveoutRequested INT NOT NULL, \
         sharedMemoryCarveoutRequested INT NOT NULL, sharedMemoryExecuted INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_RUNTIME",
        "cbid INT NOT NULL, start INT NOT NULL, end INT NOT NULL, processId INT NOT NULL, \
         threadId INT NOT NULL, correlationId INT NOT NULL, returnValue INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_DRIVER",
        "cbid INT NOT NULL, start INT NOT NULL, end INT NOT NULL, processId INT NOT NULL, \
         threadId INT NOT NULL, correlationId INT NOT NULL, returnValue INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMCPY",
        "copyKind INT NOT NULL, srcKind INT NOT NULL, dstKind INT NOT NULL, flags INT NOT NULL, \
         bytes INT NOT NULL, start INT NOT NULL, end INT NOT NULL, deviceId INT NOT NULL, \
         contextId INT NOT NULL, streamId INT NOT NULL, correlationId INT NOT NULL, \
         runtimeCorrelationId INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MEMSET",
        "value INT NOT NULL, bytes INT NOT NULL, start INT NOT NULL, end INT NOT NULL, \
         deviceId INT NOT NULL, contextId INT NOT NULL, streamId INT NOT NULL, \
         correlationId INT NOT NULL, flags INT NOT NULL, memoryKind INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
        "type INT NOT NULL, start INT NOT NULL, end INT NOT NULL, correlationId INT NOT NULL, \
         contextId INT NOT NULL, streamId INT NOT NULL, cudaEventId INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_OVERHEAD",
        "overheadKind INT NOT NULL, objectKind INT NOT NULL, objectId BLOB NOT NULL, \
         start INT NOT NULL, end INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_MARKER",
        "flags INT NOT NULL, timestamp INT NOT NULL, id INT NOT NULL, objectKind INT NOT NULL, \
         objectId BLOB NOT NULL, name INT NOT NULL, domain INT NOT NULL",
    ),
    (
        "CUPTI_ACTIVITY_KIND_DEVICE",
        "flags INT NOT NULL, globalMemoryBandwidth INT NOT NULL, globalMemorySize INT NOT NULL, \
         constantMemorySize INT NOT NULL, l2CacheSize INT NOT NULL, \
         numThreadsPerWarp INT NOT NULL, coreClockRate INT NOT NULL, \
         numMemcpyEngines INT NOT NULL, numMultiprocessors INT NOT NULL, maxIPC INT NOT NULL, \
         maxWarpsPerMultiprocessor INT NOT NULL, maxBlocksPerMultiprocessor INT NOT NULL, \
         maxSharedMemoryPerMultiprocessor INT NOT NULL, \
         maxRegistersPerMultiprocessor INT NOT NULL, maxRegistersPerBlock INT NOT NULL, \
         maxSharedMemoryPerBlock INT NOT NULL, maxThreadsPerBlock INT NOT NULL, \
         maxBlockDimX INT NOT NULL, maxBlockDimY INT NOT NULL, maxBlockDimZ INT NOT NULL, \
         maxGridDimX INT NOT NULL, maxGridDimY INT NOT NULL, maxGridDimZ INT NOT NULL, \
         computeCapabilityMajor INT NOT NULL, computeCapabilityMinor INT NOT NULL, \
         id INT NOT NULL, eccEnabled INT NOT NULL, uuid BLOB NOT NULL, name INT NOT NULL",
    ),
];

/// Callback ids of the CUDA runtime calls (`cupti_runtime_cbid.h`).
const RUNTIME: &[(&str, i64)] = &[
    ("cudaSetDevice", 16),
    ("cudaGetDevice", 17),
    ("cudaMalloc", 20),
    ("cudaFree", 22),
    ("cudaMemcpy", 31),
    ("cudaMemcpyAsync", 41),
    ("cudaMemset", 49),
    ("cudaMemsetAsync", 51),
    ("cudaStreamSynchronize", 131),
    ("cudaEventRecord", 135),
    ("cudaEventSynchronize", 137),
    ("cudaStreamWaitEvent", 147),
    ("cudaDeviceSynchronize", 165),
    ("cudaLaunchKernel", 211),
];

/// Callback ids of the driver calls (`cupti_driver_cbid.h`).
const DRIVER: &[(&str, i64)] = &[("cuLaunchKernel", 307)];

struct Writer<'a> {
    database: &'a Connection,
    strings: IndexSet<String>,
}

/// Writes all tables; unlike nsys, nvprof creates them even without rows.
pub(super) fn write(capture: &Capture, database: &Connection) -> Result<()> {
    database
        .execute_batch("CREATE TABLE Version (version INTEGER); INSERT INTO Version VALUES (12)")?;
    for (table, columns) in TABLES {
        database.execute_batch(&format!(
            "CREATE TABLE {table} (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, {columns})"
        ))?;
    }
    let mut writer = Writer {
        database,
        strings: IndexSet::from(["-- null --".to_owned()]),
    };
    writer.devices(capture)?;
    writer.markers(capture)?;
    writer.calls(capture)?;
    writer.kernels(capture)?;
    writer.memory(capture)?;
    writer.syncs(capture)?;
    for (id, value) in writer.strings.iter().enumerate() {
        writer.row(
            "StringTable",
            &[("_id_", index(id)), ("value", value.clone().into())],
        )?;
    }
    Ok(())
}

impl Writer<'_> {
    fn row(&self, table: &str, values: &[(&str, Value)]) -> Result<()> {
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

    fn devices(&mut self, capture: &Capture) -> Result<()> {
        for device in &capture.devices {
            let name = self.string(&device.name);
            let of = |key: &str| device.attributes.get(key).copied().unwrap_or_default();
            self.row(
                "CUPTI_ACTIVITY_KIND_DEVICE",
                &[
                    ("flags", 1.into()),
                    // kB/s and kHz, unlike nsys.
                    ("globalMemoryBandwidth", (of("bandwidth") / 1000).into()),
                    ("globalMemorySize", of("memory").into()),
                    ("constantMemorySize", 65_536.into()),
                    ("l2CacheSize", of("l2").into()),
                    ("numThreadsPerWarp", 32.into()),
                    ("coreClockRate", (of("clock") / 1000).into()),
                    ("numMemcpyEngines", 2.into()),
                    ("numMultiprocessors", of("sms").into()),
                    ("maxIPC", 4.into()),
                    ("maxWarpsPerMultiprocessor", of("warps").into()),
                    ("maxBlocksPerMultiprocessor", of("blocks").into()),
                    ("maxSharedMemoryPerMultiprocessor", of("shared").into()),
                    ("maxRegistersPerMultiprocessor", of("regs").into()),
                    ("maxRegistersPerBlock", of("regs").into()),
                    ("maxSharedMemoryPerBlock", 49_152.into()),
                    ("maxThreadsPerBlock", 1024.into()),
                    ("maxBlockDimX", 1024.into()),
                    ("maxBlockDimY", 1024.into()),
                    ("maxBlockDimZ", 64.into()),
                    ("maxGridDimX", i64::from(i32::MAX).into()),
                    ("maxGridDimY", 65_535.into()),
                    ("maxGridDimZ", 65_535.into()),
                    ("computeCapabilityMajor", of("major").into()),
                    ("computeCapabilityMinor", of("minor").into()),
                    ("id", device.id.into()),
                    ("eccEnabled", 1.into()),
                    ("uuid", Value::Blob(vec![0; 16])),
                    ("name", name),
                ],
            )?;
        }
        Ok(())
    }

    /// A range is two rows with one id: flags 2 with the text, flags 4 without. A point is one row
    /// with flags 1.
    fn markers(&mut self, capture: &Capture) -> Result<()> {
        let mut rows: Vec<(i64, i64, usize)> = Vec::new();
        for (id, range) in capture.ranges.iter().enumerate() {
            let flags = if range.kind == RangeKind::Mark { 1 } else { 2 };
            rows.push((range.start, flags, id));
            rows.extend(range.end.map(|end| (end, 4, id)));
        }
        rows.sort_unstable();
        for (time, flags, id) in rows {
            let range = &capture.ranges[id];
            let name = if flags == 4 {
                0.into()
            } else {
                self.string(&range.text)
            };
            self.row(
                "CUPTI_ACTIVITY_KIND_MARKER",
                &[
                    ("flags", flags.into()),
                    ("timestamp", time.into()),
                    ("id", index(id + 1)),
                    ("objectKind", 2.into()),
                    ("objectId", object_id(range.at)),
                    ("name", name),
                    ("domain", 0.into()),
                ],
            )?;
        }
        Ok(())
    }

    fn calls(&self, capture: &Capture) -> Result<()> {
        for call in &capture.calls {
            let known = |table: &[(&str, i64)]| {
                table
                    .iter()
                    .find(|(name, _)| *name == call.name)
                    .map(|(_, cbid)| *cbid)
            };
            let (table, cbid) = match (known(RUNTIME), known(DRIVER)) {
                (Some(cbid), _) => ("CUPTI_ACTIVITY_KIND_RUNTIME", cbid),
                (_, Some(cbid)) => ("CUPTI_ACTIVITY_KIND_DRIVER", cbid),
                _ => {
                    return Err(rusqlite::Error::InvalidParameterName(format!(
                        "no callback id for {}",
                        call.name
                    )));
                }
            };
            self.row(
                table,
                &[
                    ("cbid", cbid.into()),
                    ("start", call.start.into()),
                    ("end", call.end.into()),
                    ("processId", call.at.pid.into()),
                    ("threadId", call.at.tid.into()),
                    ("correlationId", call.correlation.into()),
                    ("returnValue", 0.into()),
                ],
            )?;
        }
        for (at, start, end) in &capture.overheads {
            self.row(
                "CUPTI_ACTIVITY_KIND_OVERHEAD",
                &[
                    ("overheadKind", 0x2_0000.into()),
                    ("objectKind", 1.into()),
                    ("objectId", object_id(Where { tid: 0, ..*at })),
                    ("start", (*start).into()),
                    ("end", (*end).into()),
                ],
            )?;
        }
        Ok(())
    }

    fn kernels(&mut self, capture: &Capture) -> Result<()> {
        for (number, kernel) in capture.kernels.iter().enumerate() {
            let (work, shape) = (&kernel.work, &kernel.shape);
            let name = self.string(&shape.name);
            self.row(
                "CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL",
                &[
                    ("cacheConfig", Value::Blob(vec![0])),
                    ("sharedMemoryConfig", 0.into()),
                    ("registersPerThread", shape.regs.into()),
                    ("partitionedGlobalCacheRequested", 1.into()),
                    ("partitionedGlobalCacheExecuted", 1.into()),
                    ("start", work.start.into()),
                    ("end", work.end.into()),
                    ("completed", work.end.into()),
                    ("deviceId", work.device.into()),
                    ("contextId", 1.into()),
                    ("streamId", work.stream.into()),
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
                    ("correlationId", work.correlation.into()),
                    ("gridId", index(number + 1)),
                    ("name", name),
                    ("queued", 0.into()),
                    ("submitted", 0.into()),
                    ("launchType", 0.into()),
                    ("isSharedMemoryCarveoutRequested", 0.into()),
                    ("sharedMemoryCarveoutRequested", 0.into()),
                    ("sharedMemoryExecuted", 0.into()),
                ],
            )?;
        }
        Ok(())
    }

    fn memory(&self, capture: &Capture) -> Result<()> {
        for copy in &capture.copies {
            self.row(
                "CUPTI_ACTIVITY_KIND_MEMCPY",
                &[
                    ("copyKind", (copy.direction as i64).into()),
                    ("srcKind", (copy.from as i64 + 1).into()),
                    ("dstKind", (copy.to as i64 + 1).into()),
                    ("flags", 1.into()),
                    ("bytes", copy.bytes.into()),
                    ("start", copy.work.start.into()),
                    ("end", copy.work.end.into()),
                    ("deviceId", copy.work.device.into()),
                    ("contextId", 1.into()),
                    ("streamId", copy.work.stream.into()),
                    ("correlationId", copy.work.correlation.into()),
                    ("runtimeCorrelationId", 0.into()),
                ],
            )?;
        }
        for set in &capture.sets {
            self.row(
                "CUPTI_ACTIVITY_KIND_MEMSET",
                &[
                    ("value", 0.into()),
                    ("bytes", set.bytes.into()),
                    ("start", set.work.start.into()),
                    ("end", set.work.end.into()),
                    ("deviceId", set.work.device.into()),
                    ("contextId", 1.into()),
                    ("streamId", set.work.stream.into()),
                    ("correlationId", set.work.correlation.into()),
                    ("flags", 1.into()),
                    ("memoryKind", 3.into()),
                ],
            )?;
        }
        Ok(())
    }

    fn syncs(&self, capture: &Capture) -> Result<()> {
        for sync in &capture.syncs {
            self.row(
                "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION",
                &[
                    ("type", sync.kind.into()),
                    ("start", sync.work.start.into()),
                    ("end", sync.work.end.into()),
                    ("correlationId", sync.work.correlation.into()),
                    ("contextId", 1.into()),
                    ("streamId", sync.work.stream.into()),
                    ("cudaEventId", (-1).into()),
                ],
            )?;
        }
        Ok(())
    }
}

/// A thread in CUPTI's layout: process id, then thread id, little endian.
fn object_id(at: Where) -> Value {
    let pid = u32::try_from(at.pid).unwrap_or(u32::MAX).to_le_bytes();
    let tid = u64::try_from(at.tid).unwrap_or(u64::MAX).to_le_bytes();
    Value::Blob([&pid[..], &tid[..]].concat())
}

fn index(value: usize) -> Value {
    Value::from(i64::try_from(value).unwrap_or(i64::MAX))
}
