//! The manifest of a folder that `pyprof-advise run` has filled: which trace is of which process, and which
//! traces belong together.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// The name of the file.
pub const NAME: &str = "manifest.json";
/// The value of `format`.
const FORMAT: &str = "pyprof-advise capture";
/// The version of the fields.
const VERSION: u32 = 1;
/// Longest manifest, in bytes.
const MAX_BYTES: u64 = 16 << 20;
/// The window without shapes and layers.
const LIGHT: &str = "light";

/// What is in a folder.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    format: String,
    version: u32,
    /// The command line of the program.
    #[serde(default)]
    pub command: Vec<String>,
    /// Versions of what recorded it: `pyprof_advise`, `python`, `torch`, `cuda`.
    #[serde(default)]
    pub versions: BTreeMap<String, Option<String>>,
    #[serde(default)]
    files: Vec<FileEntry>,
    /// Profiles of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    host: Vec<HostEntry>,
}

/// A profile of the host that was recorded beside the traces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostEntry {
    /// Its name in the folder.
    pub file: String,
    /// The profiler: `py-spy`, `scalene` or `cprofile`.
    pub profiler: String,
    /// When it was started, in ns since 1970, if its file gives times since then.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_unix_ns: Option<i64>,
}

/// One trace.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FileEntry {
    /// Its name in the folder.
    pub file: String,
    /// `light`, `detailed`, or `own` if the program's own profiler wrote it.
    pub window: String,
    /// The distributed rank.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub rank: Option<u32>,
    /// The id of the process.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pid: Option<u32>,
    /// The numbers of the steps in it.
    #[serde(default)]
    pub steps: Vec<u64>,
    /// What a step is: `AdamW.step()`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub steps_are: Option<String>,
}

impl FileEntry {
    /// A detailed recording of all processes.
    pub fn of_all_processes(file: &str) -> FileEntry {
        FileEntry {
            file: file.to_owned(),
            window: "detailed".to_owned(),
            rank: None,
            pid: None,
            steps: Vec::new(),
            steps_are: None,
        }
    }
}

/// The rank and the id of a process.
type Process = (Option<u32>, Option<u32>);

/// The traces of one process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Windows {
    /// The one to analyze: with shapes and layers, if there is one.
    pub main: PathBuf,
    /// One of the same steps without shapes and layers, which shows how long the GPU really idled.
    pub light: Option<PathBuf>,
    /// What a step is: `AdamW.step()`.
    pub steps_are: Option<String>,
}

impl Manifest {
    /// A manifest of this version.
    pub fn new(
        command: Vec<String>,
        versions: BTreeMap<String, Option<String>>,
        files: Vec<FileEntry>,
        host: Vec<HostEntry>,
    ) -> Manifest {
        Manifest {
            format: FORMAT.to_owned(),
            version: VERSION,
            command,
            versions,
            files,
            host,
        }
    }

    /// The manifest of a folder; `None` without one, or if the file is something else.
    pub fn of(folder: &Path) -> Option<Manifest> {
        let mut text = String::new();
        let file = std::fs::File::open(folder.join(NAME)).ok()?;
        file.take(MAX_BYTES).read_to_string(&mut text).ok()?;
        let manifest: Manifest = serde_json::from_str(&text).ok()?;
        (manifest.format == FORMAT && manifest.version == VERSION).then_some(manifest)
    }

    /// The profiles of the host, with their paths. Names that lead out of the folder are left out.
    pub fn host(&self, folder: &Path) -> Vec<(PathBuf, HostEntry)> {
        let inside = |entry: &&HostEntry| {
            Path::new(&entry.file).file_name() == Some(entry.file.as_ref())
                && folder.join(&entry.file).is_file()
        };
        let entries = self.host.iter().filter(inside);
        entries
            .map(|entry| (folder.join(&entry.file), entry.clone()))
            .collect()
    }

    /// The traces of each process, in the order of ranks. Names that lead out of the folder, and files that
    /// are not there, are left out.
    pub fn windows(&self, folder: &Path) -> Vec<Windows> {
        let mut by_process: BTreeMap<Process, Vec<(&FileEntry, PathBuf)>> = BTreeMap::new();
        let inside = |name: &str| Path::new(name).file_name() == Some(name.as_ref());
        for entry in self.files.iter().filter(|entry| inside(&entry.file)) {
            // A trace may have been compressed after the recording.
            let names = [entry.file.clone(), format!("{}.gz", entry.file)];
            let mut paths = names.iter().map(|name| folder.join(name));
            if let Some(path) = paths.find(|path| path.is_file()) {
                let process = by_process.entry((entry.rank, entry.pid)).or_default();
                process.push((entry, path));
            }
        }
        let mut all = Vec::new();
        for mut files in by_process.into_values() {
            let light = files.iter().position(|(entry, _)| entry.window == LIGHT);
            let mut light = light.map(|at| files.remove(at));
            if files.is_empty() {
                files.extend(light.take());
            }
            for (entry, main) in files {
                all.push(Windows {
                    main,
                    light: light.take().map(|(_, path)| path),
                    steps_are: entry.steps_are.clone(),
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(file: &str, window: &str, rank: u32) -> FileEntry {
        FileEntry {
            file: file.into(),
            window: window.into(),
            rank: Some(rank),
            pid: None,
            steps: vec![],
            steps_are: None,
        }
    }

    #[test]
    fn the_windows_of_a_process_are_joined() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in ["a0", "b0.gz", "a1"] {
            std::fs::write(root.join(name), "{}").unwrap();
        }
        let files = vec![
            entry("a1", "light", 1),
            entry("a0", "light", 0),
            FileEntry {
                steps_are: Some("calls of UNet".to_owned()),
                ..entry("b0", "detailed", 0)
            },
            entry("gone", "detailed", 2),
            entry("../a0", "detailed", 3),
        ];
        let host = |file: &str| HostEntry {
            file: file.into(),
            profiler: "py-spy".into(),
            started_unix_ns: Some(7),
        };
        let profiles = vec![host("a0"), host("../a0"), host("gone")];
        let manifest = Manifest::new(vec![], BTreeMap::new(), files, profiles);
        std::fs::write(root.join(NAME), serde_json::to_string(&manifest).unwrap()).unwrap();
        let windows = Manifest::of(root).unwrap().windows(root);
        let only = |main: &str, light: Option<&str>| Windows {
            main: root.join(main),
            light: light.map(|name| root.join(name)),
            steps_are: (main == "b0.gz").then(|| "calls of UNet".to_owned()),
        };
        let profiles = Manifest::of(root).unwrap().host(root);
        assert_eq!(profiles, [(root.join("a0"), host("a0"))]);
        assert_eq!(windows, [only("b0.gz", Some("a0")), only("a1", None)]);
        std::fs::write(root.join(NAME), r#"{"format": "other", "version": 1}"#).unwrap();
        assert!(Manifest::of(root).is_none());
    }
}
