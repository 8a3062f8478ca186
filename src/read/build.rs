//! What the readers share while they fill a [`Profile`]: small interners for the rows of one rowid
//! range, the tables of processes, threads, devices and launch configurations, the account of rows
//! that could not be read, and the order rows are left in.

use std::hash::Hash;

use rustc_hash::FxHashMap;

use super::sync_kind_of_call;
use crate::base::units;
use crate::profile::{
    ApiCall, ConfigId, CorrelationMap, Device, DeviceId, Format, HostRange, LaunchConfig, Process,
    ProcessId, Profile, RangeText, SerialNumber, Span, StrId, Strings, SyncKind, Thread, ThreadId,
};

/// Later or earlier than this (146 years either way) is not a time but damage. nvprof counts from
/// 1970, Nsight Systems from the start of the capture.
const TIME_LIMIT: i64 = 1 << 62;
/// Longer than this (30 days) is not a GPU activity or a call but a damaged end time.
const LONGEST: i64 = 30 * 24 * 3600 * 1_000_000_000;

/// Numbers distinct values; the last one is remembered, for neighbours are often equal.
#[derive(Debug, Clone)]
pub(super) struct Distinct<T> {
    last: Option<(T, u32)>,
    numbers: FxHashMap<T, u32>,
    values: Vec<T>,
}

impl<T> Default for Distinct<T> {
    fn default() -> Self {
        Distinct {
            last: None,
            numbers: FxHashMap::default(),
            values: Vec::new(),
        }
    }
}

impl<T: Copy + Eq + Hash> Distinct<T> {
    pub(super) fn number(&mut self, value: T) -> u32 {
        if let Some((last, number)) = self.last
            && last == value
        {
            return number;
        }
        let next = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(value).or_insert(next);
        if number == next {
            self.values.push(value);
        }
        self.last = Some((value, number));
        number
    }

    pub(super) fn values(&self) -> &[T] {
        &self.values
    }
}

/// Names: ids of a string table, or text standing in the row itself.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    ids: Distinct<i64>,
    texts: Strings,
    /// Places of `ids` and `texts` among the names of the whole table, as far as they have one.
    whole: [Vec<NameKey>; 2],
}

/// A name in [`Names`]: an id where even, a text where odd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct NameKey(u32);

impl NameKey {
    /// Stands in for the string until [`Names::resolve`].
    pub(super) fn placeholder(self) -> StrId {
        StrId(self.0)
    }
}

impl Names {
    pub(super) fn id(&mut self, id: i64) -> NameKey {
        NameKey(self.ids.number(id) << 1)
    }

    pub(super) fn text(&mut self, bytes: &[u8]) -> NameKey {
        let text = String::from_utf8_lossy(bytes);
        NameKey((self.texts.intern(&text).row() << 1) | 1)
    }

    pub(super) fn ids(&self) -> &[i64] {
        self.ids.values()
    }

    /// Adds the names of one rowid range to those of the whole table.
    pub(super) fn add(&mut self, part: &mut Names) {
        let [ids, texts] = &mut part.whole;
        for id in part.ids.values().iter().skip(ids.len()) {
            ids.push(self.id(*id));
        }
        for (_, text) in part.texts.iter().skip(texts.len()) {
            texts.push(self.text(text.as_bytes()));
        }
    }

    /// The name in the whole table that a row of a rowid range means.
    pub(super) fn whole(&self, key: StrId) -> StrId {
        let [ids, texts] = &self.whole;
        let key = key.row();
        let list = if key & 1 == 0 { ids } else { texts };
        list.get((key >> 1) as usize)
            .map_or(StrId(u32::MAX), |key| key.placeholder())
    }

    /// Gives every name its place among the strings of a profile. Ids that no string table
    /// explains are called `string N`.
    pub(super) fn resolve(&self, table: &StringTable, into: &mut Strings) -> Resolved {
        Resolved {
            ids: self
                .ids
                .values()
                .iter()
                .map(|id| match table.get(*id) {
                    Some(text) => into.intern(text),
                    None => into.intern(&format!("string {id}")),
                })
                .collect(),
            texts: self.texts.iter().map(|(_, t)| into.intern(t)).collect(),
        }
    }
}

/// [`Names`] with their places in a profile.
#[derive(Debug)]
pub(super) struct Resolved {
    ids: Vec<StrId>,
    texts: Vec<StrId>,
}

impl Resolved {
    pub(super) fn get(&self, key: NameKey) -> StrId {
        self.of(key.placeholder())
    }

    /// More than the row of any placeholder.
    pub(super) fn places(&self) -> usize {
        2 * self.ids.len().max(self.texts.len())
    }

    /// The string of a placeholder.
    pub(super) fn of(&self, key: StrId) -> StrId {
        let key = key.row();
        let list = if key & 1 == 0 { &self.ids } else { &self.texts };
        list.get((key >> 1) as usize)
            .copied()
            .unwrap_or(StrId(u32::MAX))
    }
}

/// The strings of a file that some row refers to.
#[derive(Debug, Clone, Default)]
pub(super) struct StringTable(pub(super) FxHashMap<i64, Box<str>>);

impl StringTable {
    pub(super) fn get(&self, id: i64) -> Option<&str> {
        self.0.get(&id).map(|s| &**s)
    }
}

/// Rows of one table that could not be taken as they stand.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SkippedRows {
    pub(super) rows: u64,
    no_start: u64,
    no_end: u64,
    /// Both times are 0: CUPTI's way to say that it has no times for this record.
    untimed: u64,
    no_owner: u64,
    no_value: u64,
    reversed: u64,
}

impl SkippedRows {
    /// The start of a row, if it is a time at all.
    pub(super) fn start(&mut self, start: Option<i64>) -> Option<i64> {
        let start = start.filter(|t| (-TIME_LIMIT..=TIME_LIMIT).contains(t));
        if start.is_none() {
            self.no_start = self.no_start.saturating_add(1);
        }
        start
    }

    /// A closed interval; one that ends before it starts keeps its start and has no length.
    pub(super) fn span(&mut self, start: Option<i64>, end: Option<i64>) -> Option<Span> {
        let start = self.start(start)?;
        let end = end.filter(|&t| t <= TIME_LIMIT && t.saturating_sub(start) <= LONGEST);
        let Some(end) = end else {
            self.no_end = self.no_end.saturating_add(1);
            return None;
        };
        if end < start {
            self.reversed = self.reversed.saturating_add(1);
        }
        Some(Span {
            start,
            end: end.max(start),
        })
    }

    /// As [`SkippedRows::span`], for records of the GPU.
    pub(super) fn gpu_span(&mut self, start: Option<i64>, end: Option<i64>) -> Option<Span> {
        if (start, end) == (Some(0), Some(0)) {
            self.untimed = self.untimed.saturating_add(1);
            return None;
        }
        self.span(start, end)
    }

    /// A device, thread or process without which a row means nothing.
    pub(super) fn owner<T>(&mut self, owner: Option<T>) -> Option<T> {
        if owner.is_none() {
            self.no_owner = self.no_owner.saturating_add(1);
        }
        owner
    }

    /// A quantity without which a row means nothing.
    pub(super) fn value<T>(&mut self, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.no_value = self.no_value.saturating_add(1);
        }
        value
    }

    pub(super) fn add(&mut self, other: &SkippedRows) {
        self.rows += other.rows;
        self.no_start += other.no_start;
        self.no_end += other.no_end;
        self.untimed += other.untimed;
        self.no_owner += other.no_owner;
        self.no_value += other.no_value;
        self.reversed += other.reversed;
    }

    /// Says in the profile what was skipped. `owner` and `value` name what those are in this table.
    pub(super) fn note(&self, profile: &mut Profile, kind: &str, owner: &str, value: &str) {
        let rows = units::count(self.rows);
        for (count, what) in [
            (self.no_start, "start time"),
            (self.no_end, "end time"),
            (self.no_owner, owner),
            (self.no_value, value),
        ] {
            if count > 0 {
                let count = units::count(count);
                profile.note(
                    "rows_skipped",
                    format!(
                        "{count} of {rows} {kind} rows had no readable {what} and were skipped."
                    ),
                );
            }
        }
        if self.untimed > 0 {
            let count = units::count(self.untimed);
            profile.note(
                "rows_skipped",
                format!(
                    "{count} of {rows} {kind} rows were skipped: the profiler could not collect \
                     their times."
                ),
            );
        }
        if self.reversed > 0 {
            let count = units::count(self.reversed);
            profile.note(
                "reversed_times",
                format!(
                    "{count} of {rows} {kind} rows end before they start; they are kept with a \
                     length of zero."
                ),
            );
        }
    }
}

/// CUPTI ids are unsigned 32-bit numbers that some exports store as signed ones.
pub(super) fn id32(value: Option<i64>) -> Option<u32> {
    let value = value?;
    u32::try_from(value)
        .ok()
        .or_else(|| i32::try_from(value).ok().map(i32::cast_unsigned))
}

/// The correlation id of a record. CUPTI counts from 1; 0 stands for "none".
pub(super) fn correlation(value: Option<i64>) -> Option<SerialNumber> {
    let id = match value? {
        0 => return None,
        id @ ..0 => u64::from(id32(Some(id))?),
        id => id.cast_unsigned(),
    };
    SerialNumber::new(id)
}

/// A count that fits, or nothing.
pub(super) fn count32(value: Option<i64>) -> Option<u32> {
    value.and_then(|v| u32::try_from(v).ok())
}

/// A launch configuration from ten columns in a row; 0 where a dimension is not readable.
pub(super) fn launch_config(int: impl Fn(usize) -> Option<i64>, first: usize) -> LaunchConfig {
    let count = |offset: usize| count32(int(first + offset));
    let dim = |offset: usize| count(offset).unwrap_or(0);
    LaunchConfig {
        grid: [dim(0), dim(1), dim(2)],
        block: [dim(3), dim(4), dim(5)],
        registers: count(6),
        static_shared: count(7),
        dynamic_shared: count(8),
        local_per_thread: count(9),
    }
}

/// Takes a text apart into the range.
pub(super) fn name_range(range: &mut HostRange, strings: &mut Strings, text: &str) {
    let parts = RangeText::split(text);
    range.text = strings.intern(parts.name);
    range.seq = parts.seq.and_then(SerialNumber::new);
    range.op_id = parts.op_id.and_then(SerialNumber::new);
    range.args = parts.sizes.map(|sizes| strings.intern(sizes));
}

/// Sorts rows by start, ties in file order. Most files are nearly in order: where threads were late to
/// write, rows are out of order among their neighbours. So pieces are sorted that no row leaves, which
/// needs less time and room than sorting all.
pub(super) fn sort_by_start<T: Copy>(rows: &mut [T], start: impl Fn(&T) -> i64) {
    /// Rows whose order is looked at together.
    const BLOCK: usize = 1024;
    if rows.is_sorted_by_key(&start) {
        return;
    }
    // Per block: the earliest start in it and behind it.
    let mut earliest: Vec<i64> = (rows.chunks(BLOCK))
        .map(|block| block.iter().map(&start).min().unwrap_or(i64::MAX))
        .collect();
    lower_to_those_behind(&mut earliest, i64::MAX);
    let (mut from, mut latest) = (0, i64::MIN);
    let mut behind = Vec::new();
    for block in 0..earliest.len() {
        let at = block * BLOCK;
        let next = earliest.get(block + 1).copied().unwrap_or(i64::MAX);
        behind.clear();
        behind.extend(rows.iter().skip(at).take(BLOCK).map(&start));
        lower_to_those_behind(&mut behind, next);
        for (here, behind) in (at..).zip(&behind) {
            // Nothing before this row starts later than anything from here on.
            if latest <= *behind {
                if let Some(piece) = rows.get_mut(from..here) {
                    piece.sort_by_key(&start);
                }
                from = here;
            }
            latest = rows.get(here).map_or(latest, |row| latest.max(start(row)));
        }
    }
    if let Some(piece) = rows.get_mut(from..) {
        piece.sort_by_key(&start);
    }
}

/// Makes each time the earliest of itself and those behind it.
fn lower_to_those_behind(times: &mut [i64], last: i64) {
    let mut behind = last;
    for time in times.iter_mut().rev() {
        behind = behind.min(*time);
        *time = behind;
    }
}

/// Fills a profile, handing out processes, threads, devices and configurations as rows name them.
pub(super) struct Builder {
    pub(super) profile: Profile,
    processes: FxHashMap<i64, ProcessId>,
    threads: FxHashMap<(i64, u64), ThreadId>,
    devices: FxHashMap<DeviceKey, DeviceId>,
    configs: FxHashMap<LaunchConfig, ConfigId>,
    last_process: Option<(i64, ProcessId)>,
    last_device: Option<(DeviceKey, DeviceId)>,
}

/// What tells two GPUs apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum DeviceKey {
    /// The CUDA ordinal, where that is all the file says.
    Ordinal(u32),
    /// The ordinal a process uses, and the row of the GPU table behind it: with
    /// `CUDA_VISIBLE_DEVICES` every process may call its own GPU number 0.
    Listed { ordinal: u32, gpu: i64 },
}

impl DeviceKey {
    pub(super) fn ordinal(self) -> u32 {
        match self {
            DeviceKey::Ordinal(ordinal) | DeviceKey::Listed { ordinal, .. } => ordinal,
        }
    }
}

impl Builder {
    pub(super) fn new(format: Format, path: &std::path::Path) -> Builder {
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

    /// The process with this key; `pid` is asked for once.
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

    /// The threads, by the number Nsight Systems gives them: process key and thread in one.
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

    pub(super) fn config(&mut self, config: LaunchConfig) -> ConfigId {
        let configs = &mut self.profile.configs;
        *self.configs.entry(config).or_insert_with(|| {
            configs.push(config);
            ConfigId::new(configs.len() - 1)
        })
    }

    /// Which process a correlation id belongs to, for GPU records that do not say: the process of
    /// the only call with that id, else the only process there is.
    pub(super) fn owners(&self) -> Owners {
        let mut by_correlation: FxHashMap<SerialNumber, Option<ProcessId>> = FxHashMap::default();
        for call in &self.profile.calls {
            let process = self.process_of(call);
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

    pub(super) fn process_of(&self, call: &ApiCall) -> Option<ProcessId> {
        self.profile
            .threads
            .get(call.thread.idx())
            .map(|t| t.process)
    }

    /// Lets the calls say what the synchronisations are.
    pub(super) fn ask_calls(&mut self) {
        if self.profile.syncs.is_empty() {
            return;
        }
        let syncs = self.profile.syncs.iter();
        let syncs = syncs.map(|s| (s.process, s.correlation));
        let mut kinds: CorrelationMap<SyncKind> = CorrelationMap::of(&self.profile, syncs);
        for call in &self.profile.calls {
            if let Some(kind @ None) = kinds.slot_of(&self.profile, call) {
                *kind = sync_kind_of_call(self.profile.text(call.name));
            }
        }
        for sync in &mut self.profile.syncs {
            if let Some(kind) = kinds.get(sync.process, sync.correlation) {
                sync.kind = kind;
            }
        }
    }

    /// Sorts every table and the devices, describes the devices, and hands the profile out.
    pub(super) fn finish(mut self, describe: impl Fn(DeviceKey, &mut Device)) -> Profile {
        self.sort_devices(describe);
        let mut profile = self.profile;
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
        profile
    }

    fn sort_devices(&mut self, describe: impl Fn(DeviceKey, &mut Device)) {
        let mut order: Vec<(DeviceKey, DeviceId)> =
            self.devices.iter().map(|(k, id)| (*k, *id)).collect();
        order.sort_unstable_by_key(|(key, id)| (key.ordinal(), *key, *id));
        // Two GPUs under one ordinal: only their numbers in the file tell them apart.
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
                    device.ordinal = count32(Some(gpu)).unwrap_or(device.ordinal);
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
        profile
            .kernels
            .iter_mut()
            .for_each(|k| rename(&mut k.device));
        profile
            .copies
            .iter_mut()
            .for_each(|c| rename(&mut c.device));
        profile.sets.iter_mut().for_each(|s| rename(&mut s.device));
        profile
            .graphs
            .iter_mut()
            .for_each(|g| rename(&mut g.device));
        profile
            .events
            .iter_mut()
            .filter_map(|e| e.device.as_mut())
            .for_each(rename);
    }
}

/// Processes of GPU records that do not name theirs.
pub(super) struct Owners {
    by_correlation: FxHashMap<SerialNumber, Option<ProcessId>>,
    only: Option<ProcessId>,
}

impl Owners {
    pub(super) fn of(&self, correlation: Option<SerialNumber>) -> Option<ProcessId> {
        let caller = correlation.and_then(|id| *self.by_correlation.get(&id)?);
        caller.or(self.only)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_counted_and_said() {
        let mut damage = SkippedRows {
            rows: 4010,
            ..SkippedRows::default()
        };
        assert_eq!(damage.span(None, Some(1)), None);
        assert_eq!(damage.span(Some(i64::MAX), Some(1)), None);
        assert_eq!(damage.span(Some(1), Some(i64::MAX)), None);
        assert_eq!(damage.gpu_span(Some(0), Some(0)), None);
        assert_eq!(
            damage.span(Some(10), Some(4)),
            Some(Span { start: 10, end: 10 })
        );
        assert_eq!(
            damage.span(Some(-10), Some(4)),
            Some(Span { start: -10, end: 4 })
        );
        let mut profile = Profile::new(Format::NsysSqlite, "x");
        damage.note(&mut profile, "kernel", "device", "size");
        let said: Vec<&str> = profile.notes.iter().map(|n| n.text.as_str()).collect();
        assert_eq!(
            said,
            [
                "2 of 4,010 kernel rows had no readable start time and were skipped.",
                "1 of 4,010 kernel rows had no readable end time and were skipped.",
                "1 of 4,010 kernel rows were skipped: the profiler could not collect their times.",
                "1 of 4,010 kernel rows end before they start; they are kept with a length of \
                 zero.",
            ]
        );
    }

    #[test]
    fn signed_and_unsigned_ids_agree() {
        assert_eq!(id32(Some(-354_666_688)), Some(3_940_300_608));
        assert_eq!(id32(Some(3_940_300_608)), Some(3_940_300_608));
        assert_eq!(id32(Some(1 << 40)), None);
        assert_eq!(correlation(Some(-1)), SerialNumber::new(u32::MAX.into()));
        assert_eq!(correlation(Some(0)), None);
        assert_eq!(correlation(Some(i64::MIN)), None);
        assert_eq!(correlation(Some(i64::MAX)), None);
    }

    #[test]
    fn rows_are_sorted_and_equals_keep_their_order() {
        // In order, with a late row here and there, and in no order at all.
        for stride in [1, 7, 8191] {
            let mut rows: Vec<(i64, usize)> = (0..20_000_usize)
                .map(|at| ((at * stride % 20_011 / 3) as i64, at))
                .collect();
            for late in (50..rows.len()).step_by(997) {
                rows.swap(late, late - 40);
            }
            let mut expected = rows.clone();
            expected.sort_by_key(|row| row.0);
            sort_by_start(&mut rows, |row| row.0);
            assert_eq!(rows, expected);
        }
    }

    #[test]
    fn devices_are_sorted_and_rows_follow() {
        let mut builder = Builder::new(Format::NsysSqlite, std::path::Path::new("x"));
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
            });
        }
        let profile = builder.finish(|_, _| {});
        let ordinals: Vec<u32> = profile.devices.iter().map(|d| d.ordinal).collect();
        assert_eq!(ordinals, [0, 1]);
        let of = |i: usize| profile.devices[profile.sets[i].device.idx()].ordinal;
        assert_eq!((of(0), of(1)), (1, 0));
    }
}
