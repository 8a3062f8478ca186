//! GPUs of an nvprof database.

use crate::profile::Device;
use crate::read::builder::{Builder, DeviceKey};
use crate::read::cupti::{self, count32};
use crate::read::integer_rows;
use crate::read::names::StringTable;
use crate::read::reader::{Progress, ReadError};
use crate::read::sqlite::Db;

/// The GPUs of a file.
pub(super) struct Devices {
    rows: Vec<[Option<i64>; 13]>,
}

const DEVICE_COLUMNS: [&str; 13] = [
    "id",
    "name",
    "numMultiprocessors",
    "computeCapabilityMajor",
    "computeCapabilityMinor",
    "globalMemoryBandwidth",
    "coreClockRate",
    "l2CacheSize",
    "globalMemorySize",
    "maxWarpsPerMultiprocessor",
    "maxBlocksPerMultiprocessor",
    "maxRegistersPerMultiprocessor",
    "maxSharedMemoryPerMultiprocessor",
];

impl Devices {
    pub(super) fn read(db: &Db, progress: &dyn Progress) -> Result<Devices, ReadError> {
        let rows = integer_rows::rows(db, "CUPTI_ACTIVITY_KIND_DEVICE", DEVICE_COLUMNS, progress)?;
        let listed = rows.into_iter();
        let listed = listed.filter(|[_, _, sms, ..]| !sms.is_some_and(|sms| sms <= 0));
        Ok(Devices {
            rows: listed.collect(),
        })
    }

    /// Ids of `StringTable`.
    pub(super) fn names(&self) -> impl Iterator<Item = i64> {
        self.rows.iter().filter_map(|[_, name, ..]| *name)
    }

    /// Counts the listed GPUs. If nothing ran on any of them, they become the devices of the profile.
    pub(super) fn add_idle(&self, builder: &mut Builder) {
        builder.profile.listed_gpus = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        if builder.profile.devices.is_empty() {
            for [id, ..] in &self.rows {
                if let Some(ordinal) = count32(*id) {
                    builder.device(DeviceKey::Ordinal(ordinal));
                }
            }
        }
    }

    /// Fills in the description of a device.
    pub(super) fn describe(&self, key: DeviceKey, strings: &StringTable, device: &mut Device) {
        let ordinal = key.ordinal();
        let mut rows = self.rows.iter();
        let found = rows.find(|[id, ..]| count32(*id) == Some(ordinal));
        if let Some(&[_, name, numbers @ ..]) = found {
            let name = name.and_then(|id| strings.get(id)).map(str::to_owned);
            // CUPTI uses kB/s and kHz.
            *device = Device {
                ordinal,
                ..cupti::device(name, numbers, 1e3)
            };
        }
    }
}
