//! The description of a trace outside its events: the GPUs, the rank, and whether it contains
//! environment variables.

use rustc_hash::FxHashMap;
use serde_json::Value;
use serde_json::value::RawValue;

use super::json::object;
use super::number::{count, count32, text};
use crate::profile::{CpuUse, Device, LoaderConfig, RunTime, Switch, Unrecorded};

type Raw<'a> = Option<&'a RawValue>;

object! {
    /// An entry of `deviceProperties`.
    Properties {
        id: Raw<'a> = "id",
        name: Raw<'a> = "name",
        memory: Raw<'a> = "totalGlobalMem",
        major: Raw<'a> = "computeMajor",
        minor: Raw<'a> = "computeMinor",
        sms: Raw<'a> = "numSms",
        threads_per_sm: Raw<'a> = "maxThreadsPerMultiprocessor",
        warp: Raw<'a> = "warpSize",
        registers_per_sm: Raw<'a> = "regsPerMultiprocessor",
        shared_per_sm: Raw<'a> = "sharedMemPerMultiprocessor" | "maxSharedMemoryPerMultiProcessor",
        shared_per_block_optin: Raw<'a> = "sharedMemPerBlockOptin",
    }
}

object! {
    /// `distributedInfo`.
    Distributed {
        rank: Raw<'a> = "rank",
        world_size: Raw<'a> = "world_size",
        group_count: Raw<'a> = "pg_count",
        groups: Raw<'a> = "pg_config",
    }
}

object! {
    /// An entry of its `pg_config`.
    Group {
        backend: Raw<'a> = "backend_config",
        size: Raw<'a> = "pg_size",
    }
}

object! {
    /// What `pyprof-advise run` says of its recording.
    Capture {
        loaders: Raw<'a> = "loaders",
        environment: Raw<'a> = "environment",
        scheduling: Raw<'a> = "scheduling",
        unrecorded: Raw<'a> = "unrecorded",
    }
}

object! {
    /// Its `unrecorded`.
    Before {
        step_ns: Raw<'a> = "step_ns",
        memory_reserved_bytes: Raw<'a> = "memory_reserved_bytes",
    }
}

object! {
    /// Its `scheduling`.
    Scheduling {
        cpus: Raw<'a> = "cpus",
        window_ns: Raw<'a> = "window_ns",
        thread: Raw<'a> = "thread",
        workers: Raw<'a> = "workers",
    }
}

object! {
    /// Times of threads in it.
    Threads {
        ran_ns: Raw<'a> = "ran_ns",
        ready_ns: Raw<'a> = "ready_ns",
    }
}

object! {
    /// An entry of its `loaders`.
    Loader {
        workers: Raw<'a> = "num_workers",
        pin_memory: Raw<'a> = "pin_memory",
        prefetch: Raw<'a> = "prefetch_factor",
        persistent: Raw<'a> = "persistent_workers",
    }
}

/// Most configurations of DataLoaders, as many as the recording keeps.
const MAX_LOADERS: usize = 16;
/// Maximum number of GPUs, more than a machine has; bounds the memory for a hostile file.
const MAX_DEVICES: usize = 4096;
/// Members of a trace object that describe the capture and contain no environment.
const KNOWN: [&str; 13] = [
    "schemaVersion",
    "deviceProperties",
    "distributedInfo",
    "traceName",
    "displayTimeUnit",
    "trace_id",
    "record_shapes",
    "with_stack",
    "with_flops",
    "with_modules",
    "profile_memory",
    "cupti_version",
    "INFO",
];

/// The contents of the members of the trace object.
#[derive(Debug, Default)]
pub(super) struct About {
    /// The version of the schema.
    pub(super) schema: Option<String>,
    /// The distributed rank.
    pub(super) rank: Option<u32>,
    /// Whether `record_shapes` was on; absent in traces before torch 1.11.
    pub(super) shapes: Option<bool>,
    /// The number of ranks.
    pub(super) world_size: Option<u32>,
    /// As [`Process::group_size`](crate::profile::Process::group_size).
    pub(super) group_size: Option<u32>,
    /// Whether the trace contains environment variables.
    pub(super) environment: bool,
    /// The distinct configurations of DataLoaders.
    pub(super) loaders: Vec<LoaderConfig>,
    /// The time of the calendar to which the times of events are relative, in ns.
    pub(super) base_ns: Option<i64>,
    /// Environment variables that change performance.
    pub(super) switches: Vec<Switch>,
    /// How the threads of the program had CPUs.
    pub(super) cpu_use: CpuUse,
    /// What was measured before recording.
    pub(super) unrecorded: Unrecorded,
    devices: FxHashMap<u32, Device>,
}

impl About {
    /// Reads one member of the trace object; `value` is JSON text.
    pub(super) fn property(&mut self, key: &str, value: &str) {
        match key {
            "schemaVersion" => self.schema = short(value),
            "deviceProperties" => self.devices = devices(value),
            "distributedInfo" => {
                let info = serde_json::from_str::<Distributed<'_>>(value).unwrap_or_default();
                self.rank = info.rank.and_then(count32);
                self.world_size = info.world_size.and_then(count32).filter(|&n| n > 0);
                self.group_size = group_size(&info);
            }
            "pyprof_advise" => {
                let capture: Capture<'_> = serde_json::from_str(value).unwrap_or_default();
                self.loaders = loaders(&capture);
                self.switches = switches(capture.environment.map_or("{}", RawValue::get));
                self.cpu_use = cpu_use(&capture);
                self.unrecorded = unrecorded(&capture);
            }
            "baseTimeNanoseconds" => {
                self.base_ns = value.trim().trim_matches('"').parse().ok();
            }
            "record_shapes" => self.shapes = Some(matches!(value.trim(), "1" | "true")),
            _ if KNOWN.contains(&key) => {}
            _ if is_environment(key, value) => {
                self.environment = true;
                self.switches.extend(switches(value));
            }
            _ => {}
        }
    }

    /// Fills in the description of a device. ROCm counts the host's processors too, so that the only
    /// GPU may be number 9: if all listed GPUs are of one model, any of them is used.
    pub(super) fn describe(&self, ordinal: u32, device: &mut Device) {
        let mut listed = self.devices.values();
        let first = listed.next();
        let same_model = |first: &&Device| listed.all(|d| same_board(d, first));
        let found = self
            .devices
            .get(&ordinal)
            .or_else(|| first.filter(same_model));
        if let Some(found) = found {
            *device = Device {
                ordinal,
                ..found.clone()
            };
        }
    }
}

fn same_board(a: &Device, b: &Device) -> bool {
    (&a.name, a.compute_capability, a.sm_count) == (&b.name, b.compute_capability, b.sm_count)
}

/// The number of ranks of all groups that send between GPUs; `None` unless all groups are listed and have as many.
/// A group of one rank sends nothing.
fn group_size(info: &Distributed<'_>) -> Option<u32> {
    let groups: Vec<Group<'_>> = serde_json::from_str(info.groups?.get()).ok()?;
    let listed = u32::try_from(groups.len()).ok();
    if info.group_count.and_then(count32) != listed {
        return None;
    }
    let mut sizes = Vec::new();
    for group in &groups {
        let backend = group.backend.map(text).unwrap_or_default();
        let sends = backend.is_empty() || backend.contains("nccl") || backend.contains("cuda:");
        let size = group.size.and_then(count32)?;
        if sends && !backend.contains("cuda:gloo") && size > 1 {
            sizes.push(size);
        }
    }
    let first = *sizes.first()?;
    sizes.iter().all(|size| *size == first).then_some(first)
}

fn devices(value: &str) -> FxHashMap<u32, Device> {
    let list: Vec<Properties<'_>> = serde_json::from_str(value).unwrap_or_default();
    (0..)
        .zip(list.iter().take(MAX_DEVICES))
        .map(|(position, properties)| device(position, properties))
        .map(|device| (device.ordinal, device))
        .collect()
}

fn device(position: u32, properties: &Properties<'_>) -> Device {
    let number = |value: Raw<'_>| value.and_then(count32);
    let name = properties.name.map(text).unwrap_or_default();
    let warp = number(properties.warp).filter(|&w| w > 0);
    Device {
        ordinal: number(properties.id).unwrap_or(position),
        name: Some(name.trim().to_owned()).filter(|n| !n.is_empty()),
        compute_capability: number(properties.major).zip(number(properties.minor)),
        sm_count: number(properties.sms).filter(|&n| n > 0),
        memory_bytes: properties.memory.and_then(count).filter(|&n| n > 0),
        max_warps_per_sm: number(properties.threads_per_sm)
            .zip(warp)
            .map(|(threads, warp)| threads / warp)
            .filter(|&n| n > 0),
        registers_per_sm: number(properties.registers_per_sm).filter(|&n| n > 0),
        shared_per_sm: number(properties.shared_per_sm).filter(|&n| n > 0),
        shared_per_block_optin: number(properties.shared_per_block_optin).filter(|&n| n > 0),
        ..Device::default()
    }
}

/// The switches among environment variables, of a recording or as some clusters add them to a trace: an object, a
/// list of `NAME=value`, or a text with one in each line.
fn switches(value: &str) -> Vec<Switch> {
    /// More than any environment has.
    const MOST: usize = 10_000;
    let of_text = |text: &str| {
        let (name, value) = text.split_once('=')?;
        Switch::of(name.trim(), value)
    };
    match serde_json::from_str::<Value>(value) {
        Ok(Value::Object(members)) => (members.iter().take(MOST))
            .filter_map(|(name, value)| Switch::of(name, value.as_str()?))
            .collect(),
        Ok(Value::Array(items)) => (items.iter().take(MOST))
            .filter_map(|item| of_text(item.as_str()?))
            .collect(),
        Ok(Value::String(text)) => text.lines().take(MOST).filter_map(of_text).collect(),
        _ => Vec::new(),
    }
}

/// What a recording says about CPUs.
fn parsed<'a, T: serde::Deserialize<'a> + Default>(value: Raw<'a>) -> T {
    let value = value.and_then(|value| serde_json::from_str(value.get()).ok());
    value.unwrap_or_default()
}

fn unrecorded(capture: &Capture<'_>) -> Unrecorded {
    let before: Before<'_> = parsed(capture.unrecorded);
    let known = |value: Raw<'_>| value.and_then(count).filter(|&number| number > 0);
    Unrecorded {
        step_ns: known(before.step_ns),
        memory_reserved_bytes: known(before.memory_reserved_bytes),
    }
}

fn cpu_use(capture: &Capture<'_>) -> CpuUse {
    let scheduling: Scheduling<'_> = parsed(capture.scheduling);
    let time = |threads: Raw<'_>| {
        let threads: Threads<'_> = parsed(threads);
        let ran_ns = threads.ran_ns.and_then(count)?;
        let ready_ns = threads.ready_ns.and_then(count)?;
        Some(RunTime { ran_ns, ready_ns })
    };
    let number = |value: Raw<'_>| value.and_then(count32).unwrap_or(0);
    CpuUse {
        cpus: number(scheduling.cpus),
        window_ns: scheduling.window_ns.and_then(count).unwrap_or(0),
        thread: time(scheduling.thread),
        workers: time(scheduling.workers),
    }
}

fn loaders(capture: &Capture<'_>) -> Vec<LoaderConfig> {
    let list = capture.loaders.map_or("[]", RawValue::get);
    let list: Vec<Loader<'_>> = serde_json::from_str(list).unwrap_or_default();
    let is_true = |value: Raw<'_>| value.is_some_and(|value| value.get() == "true");
    let mut loaders: Vec<LoaderConfig> = Vec::new();
    for loader in list.iter().take(MAX_LOADERS) {
        let Some(workers) = loader.workers.and_then(count32) else {
            continue;
        };
        let config = LoaderConfig {
            workers,
            pin_memory: is_true(loader.pin_memory),
            prefetch: loader.prefetch.and_then(count32),
            persistent: is_true(loader.persistent),
        };
        if !loaders.contains(&config) {
            loaders.push(config);
        }
    }
    loaders
}

/// A version: a number or a short text.
fn short(value: &str) -> Option<String> {
    let value = value.trim_matches('"');
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (value.len() <= 20 && !value.is_empty() && value.chars().all(plain)).then(|| value.to_owned())
}

/// Whether a member contains environment variables: by its name, or because it contains those that
/// every shell sets. Some clusters add them to the metadata of the trace.
fn is_environment(key: &str, value: &str) -> bool {
    /// Longer values are checked by name only.
    const LOOKED_AT: usize = 1 << 20;
    let key = key.to_ascii_lowercase();
    let mut words = key.split(|c: char| !c.is_ascii_alphanumeric());
    let holds = value.starts_with(['{', '[']) || value.contains('=');
    let called = words.any(|w| matches!(w, "env" | "envs" | "environ" | "environment" | "envvars"));
    if called && holds {
        return true;
    }
    if value.len() > LOOKED_AT || !value.starts_with(['{', '[', '"']) {
        return false;
    }
    match serde_json::from_str::<Value>(value) {
        Ok(Value::Object(members)) => members.contains_key("PATH") || members.contains_key("HOME"),
        Ok(Value::Array(items)) => items
            .iter()
            .filter_map(Value::as_str)
            .any(|item| item.starts_with("PATH=") || item.starts_with("HOME=")),
        Ok(Value::String(text)) => text.contains("PATH=") && text.contains("HOME="),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A100: &str = r#"[{"id": 0, "name": "NVIDIA A100-SXM4-40GB", "totalGlobalMem": 42505273344,
        "computeMajor": 8, "computeMinor": 0, "maxThreadsPerMultiprocessor": 2048,
        "regsPerMultiprocessor": 65536, "warpSize": 32, "sharedMemPerMultiprocessor": 167936,
        "numSms": 108, "sharedMemPerBlockOptin": 166912}]"#;

    #[test]
    fn devices_are_described() {
        let mut about = About::default();
        about.property("deviceProperties", A100);
        about.property(
            "distributedInfo",
            r#"{"backend": "nccl", "rank": 3, "world_size": 8}"#,
        );
        about.property("schemaVersion", "1");
        about.property("baseTimeNanoseconds", "1790857026000000000");
        assert_eq!((about.rank, about.schema.as_deref()), (Some(3), Some("1")));
        assert_eq!(about.base_ns, Some(1_790_857_026_000_000_000));
        assert_eq!(about.world_size, Some(8));
        let mut device = Device::default();
        about.describe(0, &mut device);
        assert_eq!(device.name.as_deref(), Some("NVIDIA A100-SXM4-40GB"));
        assert_eq!(device.compute_capability, Some((8, 0)));
        assert_eq!(
            (device.sm_count, device.max_warps_per_sm),
            (Some(108), Some(64))
        );
        let mut other = Device::default();
        about.describe(9, &mut other);
        assert_eq!((other.ordinal, other.sm_count), (9, Some(108)));
        about.property("deviceProperties", "\"none\"");
        let mut unknown = Device::default();
        about.describe(0, &mut unknown);
        assert_eq!(unknown.name, None);
    }

    #[test]
    fn groups_of_one_size_are_known() {
        let group_size = |count: u32, groups: &str| {
            let mut about = About::default();
            let json = format!(r#"{{"rank": 0, "pg_count": {count}, "pg_config": [{groups}]}}"#);
            about.property("distributedInfo", &json);
            about.group_size
        };
        let group = |backend: &str, size: u32| {
            format!(r#"{{"pg_name": "0", "backend_config": "{backend}", "pg_size": {size}}}"#)
        };
        let (two, four) = (group("cuda:nccl", 2), group("cuda:nccl", 4));
        let (one, gloo) = (group("cuda:nccl", 1), group("cpu:gloo,cuda:gloo", 8));
        assert_eq!(group_size(1, &two), Some(2));
        assert_eq!(group_size(3, &format!("{two}, {one}, {gloo}")), Some(2));
        assert_eq!(group_size(2, &format!("{two}, {four}")), None);
        // A group is missing from the list.
        assert_eq!(group_size(2, &two), None);
        assert_eq!(group_size(1, &one), None);
        assert_eq!(group_size(1, r#"{"backend_config": "cuda:nccl"}"#), None);
        assert_eq!(group_size(1, "7"), None);
    }

    #[test]
    fn devices_of_other_models_are_not_substituted() {
        let mut about = About::default();
        about.property(
            "deviceProperties",
            r#"[{"id": 0, "name": "A"}, {"id": 1, "name": ""}]"#,
        );
        let mut device = Device::default();
        about.describe(7, &mut device);
        assert_eq!(device.name, None);
        about.describe(0, &mut device);
        assert_eq!(device.name.as_deref(), Some("A"));
    }

    #[test]
    fn environments_are_detected() {
        assert!(is_environment("environment", r#"{"A": 1}"#));
        assert!(is_environment("job_env", r#"["A=1"]"#));
        assert!(is_environment("metadata", r#"{"PATH": "/bin"}"#));
        assert!(is_environment("x", r#"["HOME=/root"]"#));
        assert!(!is_environment("mast_job_environment", "\"prod\""));
        assert!(!is_environment("inventory", r#"{"a": 1}"#));
        assert!(!is_environment("hip_runtime_version", "60443483"));
    }

    #[test]
    fn switches_among_the_variables_of_a_cluster_are_kept() {
        let environments = [
            r#"{"PATH": "/bin", "OMP_NUM_THREADS": "8", "HF_TOKEN": "hunter2", "NCCL_ALGO": "hunter2"}"#,
            r#"["PATH=/bin", "OMP_NUM_THREADS=8", "HF_TOKEN=hunter2", "NCCL_ALGO=hunter2"]"#,
            r#""HOME=/root\nPATH=/bin\nOMP_NUM_THREADS=8\nHF_TOKEN=hunter2\nNCCL_ALGO=hunter2""#,
        ];
        for environment in environments {
            let mut about = About::default();
            about.property("metadata", environment);
            assert!(about.environment, "{environment}");
            let expected = Vec::from_iter(Switch::of("OMP_NUM_THREADS", "8"));
            assert_eq!(about.switches, expected, "{environment}");
        }
    }

    #[test]
    fn only_harmless_switches_of_a_recording_are_kept() {
        let mut about = About::default();
        let environment = r#"{"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "hunter2", "TOKEN": "1"}"#;
        let json = format!(r#"{{"environment": {environment}}}"#);
        about.property("pyprof_advise", &json);
        assert_eq!(
            about.switches,
            Vec::from_iter(Switch::of("OMP_NUM_THREADS", "8"))
        );
        about.property(
            "pyprof_advise",
            r#"{"environment": {"OMP_NUM_THREADS": [8]}}"#,
        );
        assert_eq!(about.switches, []);
    }

    #[test]
    fn cpu_use_of_a_recording_is_read() {
        let cpu_use = |scheduling: &str| {
            let mut about = About::default();
            let json = format!(r#"{{"scheduling": {scheduling}}}"#);
            about.property("pyprof_advise", &json);
            about.cpu_use
        };
        let time = |ran_ns, ready_ns| RunTime { ran_ns, ready_ns };
        let all = cpu_use(
            r#"{"cpus": 4, "window_ns": 900, "thread": {"ran_ns": 300, "ready_ns": 100},
                "workers": {"ran_ns": 1600, "ready_ns": 0}}"#,
        );
        let expected = CpuUse {
            cpus: 4,
            window_ns: 900,
            thread: Some(time(300, 100)),
            workers: Some(time(1600, 0)),
        };
        assert_eq!(all, expected);
        for other in [
            "3",
            r#"{"cpus": -1, "window_ns": "x", "thread": {"ran_ns": 1}, "workers": []}"#,
        ] {
            assert_eq!(cpu_use(other), CpuUse::default(), "{other}");
        }
    }

    #[test]
    fn loaders_of_a_recording_are_read_once_each() {
        let mut about = About::default();
        let loader = r#"{"dataset": "Images", "batch_size": 64, "num_workers": 4, "pin_memory": true,
            "prefetch_factor": 2, "persistent_workers": false}"#;
        let others = r#"{"num_workers": 0, "prefetch_factor": null}, {"num_workers": "many"}, 7"#;
        let json = format!(r#"{{"window": "light", "loaders": [{loader}, {loader}, {others}]}}"#);
        about.property("pyprof_advise", &json);
        let four = LoaderConfig {
            workers: 4,
            pin_memory: true,
            prefetch: Some(2),
            persistent: false,
        };
        assert_eq!(about.loaders, [four, LoaderConfig::default()]);
        assert!(!about.environment);
    }

    #[test]
    fn what_was_measured_before_recording_is_read() {
        let unrecorded = |json: &str| {
            let mut about = About::default();
            about.property("pyprof_advise", &format!(r#"{{"unrecorded": {json}}}"#));
            about.unrecorded
        };
        let all = unrecorded(r#"{"step_ns": 12300000, "memory_reserved_bytes": 3000000000}"#);
        assert_eq!(all.step_ns, Some(12_300_000));
        assert_eq!(all.memory_reserved_bytes, Some(3_000_000_000));
        for other in [
            "{}",
            "7",
            r#"{"step_ns": null, "memory_reserved_bytes": -1}"#,
            r#"{"step_ns": 0}"#,
        ] {
            assert_eq!(unrecorded(other), Unrecorded::default(), "{other}");
        }
    }
}
