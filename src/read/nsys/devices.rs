//! GPUs of an export, and the ordinals by which rows refer to them.

use rustc_hash::FxHashMap;

use super::process_key;
use crate::profile::Device;
use crate::read::builder::{Builder, DeviceKey};
use crate::read::cupti::{count32, device};
use crate::read::integer_rows;
use crate::read::reader::{Progress, ReadError};
use crate::read::sqlite::{Cells, Db, Sink};

/// The GPUs an export lists.
pub(super) struct Gpus {
    /// By `TARGET_INFO_GPU.id`.
    listed: Vec<Gpu>,
    /// `TARGET_INFO_CUDA_DEVICE`: (process id, CUDA ordinal) to `TARGET_INFO_GPU.id`.
    by_process: FxHashMap<(i64, u32), i64>,
}

#[derive(Clone)]
struct Gpu {
    id: i64,
    /// The CUDA ordinal, if the export has it; otherwise rows refer to `id`.
    cuda: Option<i64>,
    discrete: bool,
    device: Device,
}

/// Rows of `TARGET_INFO_GPU`.
#[derive(Clone, Default)]
struct Listed(Vec<Gpu>);

const GPU_COLUMNS: [&str; 16] = [
    "id",
    "cuDevice",
    "name",
    "isDiscrete",
    "smCount",
    "computeMajor",
    "computeMinor",
    "memoryBandwidth",
    "clockRate",
    "l2CacheSize",
    "totalMemory",
    "maxWarpsPerSm",
    "maxBlocksPerSm",
    "maxRegistersPerSm",
    "maxShmemPerSm",
    "maxShmemPerBlockOptin",
];

impl Sink for Listed {
    fn row(&mut self, cells: &Cells<'_>) {
        let int = |at: usize| cells.int(at);
        // Displays and headless controllers are listed with 0 multiprocessors.
        if int(4).is_some_and(|sms| sms <= 0) {
            return;
        }
        let Some(id) = int(0).or(int(1)) else { return };
        let name = cells.bytes(2).map(String::from_utf8_lossy);
        let name = name.map(|name| name.trim().to_owned());
        // `smMajor`/`smMinor` use another numbering.
        let numbers = std::array::from_fn(|at| int(4 + at));
        self.0.push(Gpu {
            id,
            cuda: int(1).filter(|&ordinal| ordinal >= 0),
            discrete: int(3) != Some(0),
            device: Device {
                shared_per_block_optin: count32(int(15).filter(|&bytes| bytes > 0)),
                ..device(name.filter(|name| !name.is_empty()), numbers, 1.0)
            },
        });
    }
}

impl Gpus {
    pub(super) fn read(db: &Db, progress: &dyn Progress) -> Result<Gpus, ReadError> {
        const COLUMNS: [&str; 3] = ["gpuId", "cudaId", "pid"];
        let parts = db.scan(
            "TARGET_INFO_GPU",
            &GPU_COLUMNS,
            &Listed::default(),
            progress,
        )?;
        let mapped = integer_rows::rows(db, "TARGET_INFO_CUDA_DEVICE", COLUMNS, progress)?;
        Ok(Gpus {
            listed: parts.into_iter().flat_map(|part| part.0).collect(),
            by_process: mapped
                .into_iter()
                .filter_map(|[gpu, cuda, pid]| Some(((pid?, count32(cuda)?), gpu?)))
                .collect(),
        })
    }

    /// The device with this ordinal in a process (its `globalPid`).
    pub(super) fn key(&self, process: Option<i64>, ordinal: u32) -> DeviceKey {
        let pid = process.map(|key| (process_key(key) >> 24) & 0xFF_FFFF);
        match pid.and_then(|pid| self.by_process.get(&(pid, ordinal))) {
            Some(&gpu) => DeviceKey::Listed { ordinal, gpu },
            None => DeviceKey::Ordinal(ordinal),
        }
    }

    /// Fills in the description of a device, if the export has one.
    pub(super) fn describe(&self, key: DeviceKey, device: &mut Device) {
        let found = match key {
            DeviceKey::Listed { gpu, .. } => self.listed.iter().find(|g| g.id == gpu),
            DeviceKey::Ordinal(ordinal) => self
                .listed
                .iter()
                .find(|g| g.cuda.unwrap_or(g.id) == i64::from(ordinal)),
        };
        if let Some(gpu) = found {
            *device = Device {
                ordinal: device.ordinal,
                ..gpu.device.clone()
            };
        }
    }

    /// Counts the listed GPUs. If nothing ran on any of them, they become the devices of the profile,
    /// so that a report can still name the GPU.
    pub(super) fn add_idle(&self, builder: &mut Builder) {
        let discrete = self.listed.iter().filter(|g| g.discrete).count();
        builder.profile.listed_gpus = u32::try_from(discrete).unwrap_or(u32::MAX);
        if builder.profile.devices.is_empty() {
            for gpu in &self.listed {
                if let Some(ordinal) = count32(Some(gpu.cuda.unwrap_or(gpu.id))) {
                    builder.device(DeviceKey::Ordinal(ordinal));
                }
            }
        }
    }
}
