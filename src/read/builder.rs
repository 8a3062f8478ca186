//! Fills a [`Profile`]: the tables of processes, threads, devices and launch configurations, and the
//! final order of rows.

use rustc_hash::FxHashMap;

use crate::profile::{
    ConfigId, Device, DeviceId, Format, LaunchConfig, NumberedName, Process, ProcessId, Profile,
    RangeText, SerialNumber, StrId, Strings, Thread, ThreadId,
};

/// The parts of a range text that are fields of a range.
#[derive(Debug, Clone, Copy)]
pub(super) struct RangeName {
    pub(super) text: StrId,
    pub(super) seq: Option<SerialNumber>,
    pub(super) op_id: Option<SerialNumber>,
    pub(super) args: Option<StrId>,
}

impl RangeName {
    /// Splits a range text of the file, in which bytes that are not UTF-8 are replaced.
    pub(super) fn of_bytes(text: &[u8], strings: &mut Strings) -> RangeName {
        // The name of nearly every range has been seen, and need not be checked again.
        if let Some(parts) = NumberedName::of(text)
            && let Some(name) = strings.find_bytes(parts.name)
            && let args = parts.sizes.map(|sizes| strings.find_bytes(sizes))
            && args != Some(None)
        {
            return RangeName {
                text: name,
                seq: parts.seq.and_then(SerialNumber::new),
                op_id: parts.op_id.and_then(SerialNumber::new),
                args: args.flatten(),
            };
        }
        RangeName::split(&String::from_utf8_lossy(text), strings)
    }

    /// Splits a range text; `strings` receives its name and arguments.
    pub(super) fn split(text: &str, strings: &mut Strings) -> RangeName {
        let parts = RangeText::split(text);
        RangeName {
            text: strings.intern(parts.name),
            seq: parts.seq.and_then(SerialNumber::new),
            op_id: parts.op_id.and_then(SerialNumber::new),
            args: parts.sizes.map(|sizes| strings.intern(sizes)),
        }
    }
}

/// Sorts rows by start, ties in file order. Most files are in order already.
pub(super) fn sort_by_start<T>(rows: &mut [T], start: impl Fn(&T) -> i64) {
    if !rows.is_sorted_by_key(&start) {
        rows.sort_by_key(&start);
    }
}

/// Fills a profile, creating processes, threads, devices and configurations when rows refer to them.
pub(super) struct Builder {
    pub(super) profile: Profile,
    processes: FxHashMap<i64, ProcessId>,
    threads: FxHashMap<(i64, u64), ThreadId>,
    devices: FxHashMap<DeviceKey, DeviceId>,
    configs: FxHashMap<LaunchConfig, ConfigId>,
    last_process: Option<(i64, ProcessId)>,
    last_device: Option<(DeviceKey, DeviceId)>,
}

/// Identifies a GPU of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum DeviceKey {
    /// The CUDA ordinal, if the file contains nothing else.
    Ordinal(u32),
    /// The ordinal in a process, and the row of the GPU table that it refers to: with
    /// `CUDA_VISIBLE_DEVICES`, every process may number its GPU 0.
    Listed { ordinal: u32, gpu: i64 },
}

impl DeviceKey {
    /// The CUDA ordinal.
    pub(super) fn ordinal(self) -> u32 {
        match self {
            DeviceKey::Ordinal(ordinal) | DeviceKey::Listed { ordinal, .. } => ordinal,
        }
    }
}

impl Builder {
    /// An empty profile of the file at `path`.
    pub(super) fn new(format: &'static Format, path: &std::path::Path) -> Builder {
        let mut profile = Profile::new(format, &path.display().to_string());
        profile.file_bytes = std::fs::metadata(path).map_or(0, |m| m.len());
        Builder {
            profile,
            processes: FxHashMap::default(),
            threads: FxHashMap::default(),
            devices: FxHashMap::default(),
            configs: FxHashMap::default(),
            last_process: None,
            last_device: None,
        }
    }

    /// The process with this key; `pid` is called once per process.
    pub(super) fn process(&mut self, key: i64, pid: impl FnOnce() -> u64) -> ProcessId {
        if let Some((last, id)) = self.last_process
            && last == key
        {
            return id;
        }
        let processes = &mut self.profile.processes;
        let id = *self.processes.entry(key).or_insert_with(|| {
            processes.push(Process {
                pid: pid(),
                rank: None,
                world_size: None,
                group_size: None,
            });
            ProcessId::new(processes.len() - 1)
        });
        self.last_process = Some((key, id));
        id
    }

    /// The thread of a process.
    pub(super) fn thread(&mut self, key: i64, pid: impl FnOnce() -> u64, tid: u64) -> ThreadId {
        let process = self.process(key, pid);
        let threads = &mut self.profile.threads;
        *self.threads.entry((key, tid)).or_insert_with(|| {
            threads.push(Thread { process, tid });
            ThreadId::new(threads.len() - 1)
        })
    }

    /// The threads by their number in Nsight Systems, which combines process key and thread.
    pub(super) fn global_threads(&self) -> Vec<(i64, ThreadId)> {
        let global = |(key, tid): &(i64, u64)| key | tid.cast_signed();
        (self.threads.iter())
            .map(|(key, thread)| (global(key), *thread))
            .collect()
    }

    /// The device with this key.
    pub(super) fn device(&mut self, key: DeviceKey) -> DeviceId {
        if let Some((last, id)) = self.last_device
            && last == key
        {
            return id;
        }
        let devices = &mut self.profile.devices;
        let id = *self.devices.entry(key).or_insert_with(|| {
            devices.push(Device {
                ordinal: key.ordinal(),
                ..Device::default()
            });
            DeviceId::new(devices.len() - 1)
        });
        self.last_device = Some((key, id));
        id
    }

    /// The launch configuration, interned.
    pub(super) fn config(&mut self, config: LaunchConfig) -> ConfigId {
        let configs = &mut self.profile.configs;
        *self.configs.entry(config).or_insert_with(|| {
            configs.push(config);
            ConfigId::new(configs.len() - 1)
        })
    }

    /// The processes of correlation ids, for GPU records that do not contain theirs: the process of the
    /// only call with that id, otherwise the only process.
    pub(super) fn owners(&self) -> Owners {
        let mut by_correlation: FxHashMap<SerialNumber, Option<ProcessId>> = FxHashMap::default();
        for call in &self.profile.calls {
            let process = self.profile.process_of(call.thread);
            let Some(correlation) = call.correlation else {
                continue;
            };
            by_correlation
                .entry(correlation)
                .and_modify(|p| {
                    if *p != process {
                        *p = None;
                    }
                })
                .or_insert(process);
        }
        Owners {
            by_correlation,
            only: match self.profile.processes.as_slice() {
                [_] => Some(ProcessId(0)),
                _ => None,
            },
        }
    }

    /// The finished profile: `describe` fills in the devices, and all tables are sorted.
    pub(super) fn finish(mut self, describe: impl Fn(DeviceKey, &mut Device)) -> Profile {
        self.sort_devices(describe);
        let mut profile = self.profile;
        leave_out_gpus(&mut profile);
        let (kernels, calls, ranges) = (
            &mut profile.kernels,
            &mut profile.calls,
            &mut profile.ranges,
        );
        rayon::join(
            || sort_by_start(ranges, |r| r.span.start),
            || {
                sort_by_start(kernels, |k| k.span.start);
                sort_by_start(calls, |c| c.span.start);
            },
        );
        sort_by_start(&mut profile.copies, |c| c.span.start);
        sort_by_start(&mut profile.sets, |s| s.span.start);
        sort_by_start(&mut profile.graphs, |g| g.span.start);
        sort_by_start(&mut profile.syncs, |s| s.span.start);
        sort_by_start(&mut profile.overheads, |o| o.span.start);
        profile.memory.sort_unstable();
        note_overflow(&mut profile);
        profile
    }

    fn sort_devices(&mut self, describe: impl Fn(DeviceKey, &mut Device)) {
        let mut order: Vec<(DeviceKey, DeviceId)> =
            self.devices.iter().map(|(k, id)| (*k, *id)).collect();
        order.sort_unstable_by_key(|(key, id)| (key.ordinal(), *key, *id));
        // Two GPUs with the same ordinal differ only in their numbers in the file.
        let ambiguous = order
            .windows(2)
            .any(|pair| matches!(pair, [a, b] if a.0.ordinal() == b.0.ordinal()));
        let mut devices: Vec<(Device, DeviceId)> = order
            .iter()
            .map(|&(key, old)| {
                let mut device = self
                    .profile
                    .devices
                    .get(old.idx())
                    .cloned()
                    .unwrap_or_default();
                describe(key, &mut device);
                if let (true, DeviceKey::Listed { gpu, .. }) = (ambiguous, key) {
                    device.ordinal = u32::try_from(gpu).unwrap_or(device.ordinal);
                }
                (device, old)
            })
            .collect();
        devices.sort_by_key(|(device, _)| device.ordinal);
        let mut renamed = vec![DeviceId(0); devices.len()];
        for (new, (_, old)) in devices.iter().enumerate() {
            if let Some(slot) = renamed.get_mut(old.idx()) {
                *slot = DeviceId::new(new);
            }
        }
        self.profile.devices = devices.into_iter().map(|(device, _)| device).collect();
        if renamed.iter().enumerate().all(|(i, id)| id.idx() == i) {
            return;
        }
        let rename = |id: &mut DeviceId| {
            if let Some(new) = renamed.get(id.idx()) {
                *id = *new;
            }
        };
        let profile = &mut self.profile;
        let kernels = profile.kernels.iter_mut().map(|k| &mut k.device);
        let copies = profile.copies.iter_mut().map(|c| &mut c.device);
        let sets = profile.sets.iter_mut().map(|s| &mut s.device);
        let graphs = profile.graphs.iter_mut().map(|g| &mut g.device);
        let work = kernels.chain(copies).chain(sets).chain(graphs);
        work.for_each(rename);
    }
}

/// The processes of GPU records that do not contain theirs.
pub(super) struct Owners {
    by_correlation: FxHashMap<SerialNumber, Option<ProcessId>>,
    only: Option<ProcessId>,
}

impl Owners {
    /// The process of a record with this correlation id.
    pub(super) fn of(&self, correlation: Option<SerialNumber>) -> Option<ProcessId> {
        let caller = correlation.and_then(|id| *self.by_correlation.get(&id)?);
        caller.or(self.only)
    }
}

/// Most GPUs of one file that are analysed. A file has those of one machine, or of the ranks that were merged
/// into it; each takes memory for its timeline, and some sums are made per pair of GPU and process.
const MOST_GPUS: usize = 4096;

/// Leaves out the work of all GPUs but the first, with a note, if there are more than any job has.
fn leave_out_gpus(profile: &mut Profile) {
    let gpus = profile.devices.len();
    if gpus <= MOST_GPUS {
        return;
    }
    profile.devices.truncate(MOST_GPUS);
    let stays = |device: DeviceId| device.idx() < MOST_GPUS;
    let kernels = profile.kernels.len();
    profile.kernels.retain(|k| stays(k.device));
    profile.copies.retain(|c| stays(c.device));
    profile.sets.retain(|s| stays(s.device));
    profile.graphs.retain(|g| stays(g.device));
    let left_out = kernels - profile.kernels.len();
    profile.note(
        "gpus_left_out",
        format!(
            "The file names {gpus} GPUs, more than any job has: only the first {MOST_GPUS} are analyzed, and \
             {left_out} kernels of the others are left out."
        ),
    );
}

/// Adds a note if the kernels take more time than sums can hold.
fn note_overflow(profile: &mut Profile) {
    let total: i128 = profile
        .kernels
        .iter()
        .map(|k| i128::from(k.span.ns()))
        .sum();
    if total > i128::from(i64::MAX) {
        profile.note(
            "times_too_large",
            "The kernels take more than 292 years in all, which no profile does: sums of times end at that \
             limit, and figures made of them are wrong.",
        );
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;
    use crate::profile::Span;

    #[test]
    fn rows_with_equal_starts_keep_their_order() {
        for stride in [1, 7, 8191] {
            let mut rows: Vec<(i64, usize)> = (0..20_000_usize)
                .map(|at| ((at * stride % 20_011 / 3) as i64, at))
                .collect();
            let mut expected = rows.clone();
            expected.sort_by_key(|row| row.0);
            sort_by_start(&mut rows, |row| row.0);
            assert_eq!(rows, expected);
        }
    }

    #[test]
    fn rows_refer_to_their_device_after_devices_are_sorted() {
        let mut builder = Builder::new(&crate::read::NSYS_SQLITE, std::path::Path::new("x"));
        let one = builder.device(DeviceKey::Ordinal(1));
        let zero = builder.device(DeviceKey::Ordinal(0));
        let process = builder.process(7, || 7);
        for device in [one, zero] {
            builder.profile.sets.push(crate::profile::MemorySet {
                span: Span { start: 0, end: 1 },
                device,
                process,
                stream: 0,
                correlation: None,
                bytes: 0,
                mem: crate::profile::MemoryKind::Unknown,
                captured: None,
            });
        }
        let profile = builder.finish(|_, _| {});
        let ordinals: Vec<u32> = profile.devices.iter().map(|d| d.ordinal).collect();
        assert_eq!(ordinals, [0, 1]);
        let of = |i: usize| profile.devices[profile.sets[i].device.idx()].ordinal;
        assert_eq!((of(0), of(1)), (1, 0));
    }
}
