//! The states that the processes of a program write: how far each has come, and what it has recorded.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::base::text::plain;
use crate::base::units::counted;
use crate::read::manifest::{FileEntry, HostEntry};

/// Most processes whose state is read.
const MAX_PROCESSES: usize = 4096;
/// Longest state, in bytes.
const MAX_BYTES: u64 = 1 << 20;

/// The file beside the package that says that a Python has found it.
const STARTED: &str = "started";

/// The state of one process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct State {
    state: String,
    reason: Option<String>,
    steps: u64,
    steps_are: Option<String>,
    began: Option<u64>,
    cuda: Option<bool>,
    versions: BTreeMap<String, Option<String>>,
    windows: Vec<FileEntry>,
    rank: Option<u32>,
    host: Vec<HostFile>,
    trial: Option<Timed>,
}

/// What a profiler of the host has recorded.
#[derive(Debug, Clone, Deserialize)]
struct HostFile {
    #[serde(flatten)]
    entry: HostEntry,
    /// Why there is no file.
    problem: Option<String>,
}

/// What a process has measured without a profiler.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Timed {
    /// Why a treatment does not apply.
    pub(crate) refused: Option<String>,
    /// The length of each step.
    pub(crate) step_ns: Vec<u64>,
    /// Whether something was compiled in these steps.
    pub(crate) compiling: bool,
    /// Name of the GPU that was in use.
    pub(crate) gpu: Option<String>,
    /// The most memory of the GPU that was in use.
    pub(crate) peak_memory_bytes: Option<u64>,
    /// The first values that the program has computed.
    pub(crate) check: Option<CheckValues>,
    /// What the treatments have changed, and how often.
    pub(crate) changes: BTreeMap<String, u64>,
    /// Lines that have the same effect in this program, where a treatment knows them.
    pub(crate) lines: Vec<String>,
}

/// Values of a program, to compare two runs by.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(crate) struct CheckValues {
    /// `loss` or `output`.
    pub(crate) what: String,
    /// The values in the order in which they were computed, as Python prints floats.
    pub(crate) values: Vec<String>,
}

/// The states of all processes of a program.
#[derive(Debug, Default)]
pub(crate) struct States {
    states: Vec<State>,
    files: Vec<PathBuf>,
}

/// How far a program has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CaptureProgress {
    /// No process has imported torch.
    NotStarted,
    /// Steps are counted.
    WarmingUp,
    /// A window is open, in the process that is furthest.
    Recording {
        /// The number of the step.
        step: u64,
        /// What a step is.
        steps_are: Option<String>,
    },
    /// Every process that records is done.
    Recorded,
}

impl States {
    /// Reads the states in a folder. A state that cannot be read is left out: it may just be written.
    pub(crate) fn read(folder: &Path) -> States {
        let mut files: Vec<PathBuf> = fs::read_dir(folder)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| is_state(path))
            .take(MAX_PROCESSES)
            .collect();
        files.sort();
        let states = files.iter().filter_map(|file| read(file)).collect();
        files.push(folder.join("start.json"));
        States { states, files }
    }

    /// The files that they were read from.
    pub(super) fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// The traces that were written.
    pub(crate) fn windows(&self) -> impl Iterator<Item = &FileEntry> {
        self.states.iter().flat_map(|state| &state.windows)
    }

    /// The profiles of the host that were written.
    pub(super) fn host(&self) -> Vec<HostEntry> {
        let files = self.states.iter().flat_map(|state| &state.host);
        let written = files.filter(|file| file.problem.is_none());
        written.map(|file| file.entry.clone()).collect()
    }

    /// Why profilers of the host have recorded nothing.
    pub(crate) fn host_problems(&self) -> impl Iterator<Item = &str> {
        let files = self.states.iter().flat_map(|state| &state.host);
        files.filter_map(|file| file.problem.as_deref())
    }

    /// The versions of the process that recorded, else of any.
    pub(crate) fn versions(&self) -> BTreeMap<String, Option<String>> {
        let recorded = self.states.iter().find(|state| !state.windows.is_empty());
        let any = recorded.or(self.states.first());
        any.map(|state| state.versions.clone()).unwrap_or_default()
    }

    /// Whether torch found no GPU in any process.
    pub(crate) fn has_no_gpu(&self) -> bool {
        !self.states.is_empty() && self.states.iter().all(|state| state.cuda == Some(false))
    }

    /// Whether steps are taken, by processes that all found no GPU: there will be nothing to report.
    pub(crate) fn steps_without_gpu(&self) -> bool {
        self.has_no_gpu() && self.states.iter().any(|state| state.steps > 0)
    }

    /// What was measured: by the process of the lowest rank, else by the one that took the most steps.
    pub(crate) fn timed(&self) -> Option<&Timed> {
        let timed = self.states.iter().filter_map(|state| {
            let trial = state.trial.as_ref()?;
            let rank = state.rank.unwrap_or(u32::MAX);
            (!trial.step_ns.is_empty()).then_some((rank, std::cmp::Reverse(state.steps), trial))
        });
        let first = timed.min_by_key(|(rank, steps, _)| (*rank, *steps));
        first.map(|(_, _, trial)| trial)
    }

    /// Why a treatment does not apply, if a process says so.
    pub(crate) fn refused(&self) -> Option<&str> {
        let mut trials = self.states.iter().filter_map(|state| state.trial.as_ref());
        trials.find_map(|trial| trial.refused.as_deref())
    }

    /// How far the program has come.
    pub(crate) fn progress(&self) -> CaptureProgress {
        let recording = self
            .states
            .iter()
            .filter(|state| state.state == "recording");
        let with_traces = || self.states.iter().any(|state| !state.windows.is_empty());
        match recording.max_by_key(|state| state.steps) {
            Some(state) => CaptureProgress::Recording {
                step: state.steps,
                steps_are: state.steps_are.clone(),
            },
            None if with_traces() => CaptureProgress::Recorded,
            None if self.states.is_empty() => CaptureProgress::NotStarted,
            None => CaptureProgress::WarmingUp,
        }
    }

    /// Whether a Python started with the recorder of a package, and none of its processes imported torch.
    pub(crate) fn has_no_torch(&self, package: &Path) -> bool {
        self.states.is_empty() && package.join(STARTED).is_file()
    }

    /// Why nothing was recorded by the package that was unpacked at `package`, and what to do about it.
    pub(crate) fn why_nothing(&self, skip: Option<u32>, package: &Path) -> String {
        let mut reasons: Vec<&str> = Vec::new();
        for reason in self
            .states
            .iter()
            .filter_map(|state| state.reason.as_deref())
        {
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        if !reasons.is_empty() {
            return format!("nothing was recorded: {}", plain(&reasons.join("; ")));
        }
        let Some(furthest) = self.states.iter().max_by_key(|state| state.steps) else {
            let found = match self.has_no_torch(package) {
                true => {
                    "Python ran with the recorder, but no process of the program imported torch"
                }
                false => "no Python of the program started with the recorder",
            };
            return format!(
                "nothing was recorded: {found}\n  \
                 The recorder comes in through PYTHONPATH. These drop it: `python -I`, `-E` and `-S`, `sudo`, \
                 `docker run`, `srun --export=NONE`, Ray workers. Run `pyprof-advise run` inside of \
                 them, or use `pyprof_advise.profile()` or a callback in the program (docs/capture.md)"
            );
        };
        let processes = match self.states.len() {
            1 => "1 process".to_owned(),
            n => format!("{n} processes"),
        };
        match (furthest.steps, furthest.began) {
            (0, _) => format!(
                "nothing was recorded: {processes} imported torch, and none took a step\n  \
                 A step is a call of an optimizer, or, without one, a call of a `torch.nn.Module` under \
                 `torch.no_grad()` or a replay of a CUDA graph. For other programs, `pyprof_advise.profile()` marks what to record"
            ),
            (steps, Some(began)) => format!(
                "nothing was recorded: recording began after {}, and the program ended (step {steps} or \
                 later) before a window was complete\n  \
                 let the program run longer, or use `--steps 1` or a smaller `--skip`",
                counted(began, "step")
            ),
            (steps, None) => format!(
                "nothing was recorded: the program ended after {}, before recording began\n  {}",
                counted(steps, "step"),
                match skip {
                    Some(skip) => format!("It begins after {skip}: use a smaller --skip"),
                    None =>
                        "It begins when steps are steady, after 10 at the earliest: let the program run \
                         longer, or use `--skip 2`"
                            .to_owned(),
                }
            ),
        }
    }
}

fn is_state(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("process-") && name.ends_with(".json"))
}

fn read(file: &Path) -> Option<State> {
    if fs::metadata(file).ok()?.len() > MAX_BYTES {
        return None;
    }
    serde_json::from_str(&fs::read_to_string(file).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(texts: &[&str]) -> States {
        let folder = tempfile::tempdir().unwrap();
        for (number, text) in texts.iter().enumerate() {
            fs::write(folder.path().join(format!("process-{number}.json")), text).unwrap();
        }
        States::read(folder.path())
    }

    #[test]
    fn reasons_for_an_empty_recording_are_told_apart() {
        let package = tempfile::tempdir().unwrap();
        let why = |states: &States, skip| states.why_nothing(skip, package.path());
        let none = states(&[]);
        assert_eq!(none.progress(), CaptureProgress::NotStarted);
        assert!(why(&none, None).contains("no Python of the program started"));
        assert!(why(&none, None).contains("python -I"));
        fs::write(package.path().join(STARTED), "").unwrap();
        assert!(why(&none, None).contains("no process of the program imported torch"));
        let idle = states(&[r#"{"state": "ended"}"#, r#"{"state": "ended"}"#]);
        assert!(why(&idle, None).contains("2 processes imported torch"));
        let short = states(&[r#"{"state": "ended", "steps": 7}"#]);
        assert!(why(&short, None).contains("ended after 7 steps"));
        assert!(why(&short, Some(9)).contains("smaller --skip"));
        let killed = states(&[r#"{"state": "recording", "steps": 10, "began": 10}"#]);
        assert!(why(&killed, None).contains("recording began after 10 steps"));
        let stopped = states(&[r#"{"state": "stopped", "reason": "under nsys", "steps": 3}"#]);
        assert!(why(&stopped, None).contains("recorded: under nsys"));
    }

    #[test]
    fn progress_is_that_of_the_furthest_process() {
        let warm = r#"{"state": "waiting", "steps": 4}"#;
        assert_eq!(states(&[warm]).progress(), CaptureProgress::WarmingUp);
        let recording = r#"{"state": "recording", "steps": 12, "steps_are": "SGD.step()"}"#;
        assert_eq!(
            states(&[warm, recording, "{damaged"]).progress(),
            CaptureProgress::Recording {
                step: 12,
                steps_are: Some("SGD.step()".into())
            }
        );
        let done = r#"{"state": "done", "windows": [{"file": "a", "window": "light", "pid": 1}]}"#;
        assert_eq!(states(&[done, warm]).progress(), CaptureProgress::Recorded);
    }
}
