//! The runs of `try`: starts the program with treatments, waits for it, and reads what it has measured.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::args::Console;
use super::output;
use super::run::cannot_run;
use super::signals::{PassedOn, is_interrupted};
use crate::base::statistics::median;
use crate::base::text::{clip, plain};
use crate::base::units::{counted, ns};
use crate::capture::{self, POLL, Program, Recorder, Settings, States, Timed};
use crate::trial::{Failed, Measured, RunProgram, Treatment, Values};

/// How long a program may take to end by itself once everything is measured, or when it is asked to.
const PATIENCE: Duration = Duration::from_secs(15);
/// Seed of every run.
const SEED: u32 = 0;
/// Lines of what a failed program wrote that are shown.
const TAIL: usize = 12;
/// Fewest steps that a run counts with.
const FEWEST_STEPS: usize = 3;

/// Starts the runs.
pub(super) struct Runner<'a> {
    command: &'a [String],
    package: &'a Path,
    folder: PathBuf,
    skip: u32,
    steps: u32,
    max_seconds: u32,
    until: Option<Instant>,
    console: Console,
    number: u32,
    versions: BTreeMap<String, Option<String>>,
    gpu: Option<String>,
}

impl<'a> Runner<'a> {
    /// Runs a command with the package; `steps` are those to skip, those to measure, and the longest time of
    /// the latter in seconds.
    pub(super) fn new(
        command: &'a [String],
        package: &'a Path,
        temporary: &Path,
        (skip, steps, max_seconds): (u32, u32, u32),
        budget: Option<Duration>,
        console: Console,
    ) -> Runner<'a> {
        Runner {
            command,
            package,
            folder: temporary.join("runs"),
            skip,
            steps,
            max_seconds,
            until: budget.map(|budget| Instant::now() + budget),
            console,
            number: 0,
            versions: BTreeMap::new(),
            gpu: None,
        }
    }

    /// Versions of torch, CUDA and Python, of the last run.
    pub(super) fn versions(&self) -> BTreeMap<String, Option<String>> {
        self.versions.clone()
    }

    /// Name of the GPU that the runs were measured on.
    pub(super) fn gpu(&self) -> Option<String> {
        self.gpu.clone()
    }

    /// The folder of a run that was just made.
    fn start(&self, folder: &Path, treatments: &[&Treatment]) -> std::io::Result<Program> {
        std::fs::create_dir_all(folder)?;
        let own = capture::package_folder(self.package);
        let files: Vec<PathBuf> = treatments
            .iter()
            .map(|treatment| match treatment.built_in {
                true => own.join(&treatment.file),
                false => treatment.file.clone(),
            })
            .collect();
        let settings = Settings {
            folder,
            skip: Some(self.skip),
            steps: self.steps,
            max_seconds: self.max_seconds,
            stack: false,
            windows: &["timed"],
            recorder: Recorder::Clock,
            names_operators: false,
            treatments: &files,
            seed: Some(SEED),
            host_profiler: None,
            ends: true,
        };
        let mut variables: Vec<(String, String)> = treatments
            .iter()
            .flat_map(|treatment| treatment.environment.clone())
            .collect();
        if std::env::var_os("PYTHONHASHSEED").is_none() {
            variables.push(("PYTHONHASHSEED".to_owned(), SEED.to_string()));
        }
        let log = File::create(log_of(folder))?;
        Program::start_quietly(self.command, self.package, &settings, &variables, log)
    }

    /// Waits until the program has ended; returns its status.
    fn wait(&self, program: &mut Program, folder: &Path) -> Result<u8, Failed> {
        let broken = |error: std::io::Error| Failed::Stopped(error.to_string());
        let _passed_on = PassedOn::to(program.id());
        let mut measured: Option<Instant> = None;
        loop {
            if let Some(ended) = program.ended().map_err(broken)? {
                return match is_interrupted() {
                    true => Err(Failed::Stopped("interrupted".to_owned())),
                    false => Ok(ended.status),
                };
            }
            let now = Instant::now();
            if is_interrupted() {
                program.end(PATIENCE).map_err(broken)?;
                return Err(Failed::Stopped("interrupted".to_owned()));
            }
            if self.until.is_some_and(|until| now > until) {
                program.end(PATIENCE).map_err(broken)?;
                return Err(Failed::Stopped("the time of --budget is over".to_owned()));
            }
            if measured.is_none() && States::read(folder).timed().is_some() {
                measured = Some(now);
            }
            // A script around the program goes on after it.
            if measured.is_some_and(|since| now > since + PATIENCE) {
                program.end(PATIENCE).map_err(broken)?;
                return Ok(0);
            }
            std::thread::sleep(POLL);
        }
    }

    /// What a run has measured.
    fn result(&self, folder: &Path, states: &States, status: u8) -> Result<Measured, Failed> {
        if let Some(why) = states.refused() {
            return Err(Failed::Refused(plain(why)));
        }
        let enough = |timed: &&Timed| status == 0 || timed.step_ns.len() >= self.steps as usize;
        let Some(timed) = states.timed().filter(enough) else {
            self.show_tail(folder);
            return Err(Failed::Program(match status {
                0 => states.why_nothing(Some(self.skip), self.package),
                status => format!("the program ended with status {status}"),
            }));
        };
        if timed.step_ns.len() < FEWEST_STEPS {
            return Err(Failed::Program(format!(
                "the program ended after {} that could be measured: let it run longer, or use a smaller --skip",
                counted(timed.step_ns.len() as u64, "step")
            )));
        }
        let mut steps = timed.step_ns.clone();
        Ok(Measured {
            step_ns: median(&mut steps).unwrap_or(0) as f64,
            steps: steps.len() as u64,
            values: timed.check.as_ref().and_then(Values::of),
            compiling: timed.compiling,
            peak_memory_bytes: timed.peak_memory_bytes,
            changes: timed.changes.clone(),
            lines: timed.lines.clone(),
        })
    }

    /// The end of what a failed program wrote.
    fn show_tail(&self, folder: &Path) {
        if self.console.quiet {
            return;
        }
        let text = std::fs::read(log_of(folder)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
            output::complain(&format!("  | {}\n", clip(&plain(line), 200)));
        }
    }
}

fn log_of(folder: &Path) -> PathBuf {
    folder.join("output.txt")
}

impl RunProgram for Runner<'_> {
    fn run(&mut self, treatments: &[&Treatment]) -> Result<Measured, Failed> {
        // A signal between two runs.
        if is_interrupted() {
            return Err(Failed::Stopped("interrupted".to_owned()));
        }
        self.number += 1;
        let folder = self.folder.join(self.number.to_string());
        let mut program = self.start(&folder, treatments).map_err(|error| {
            let name = self.command.first().map_or("", String::as_str);
            Failed::Program(cannot_run(name, &error))
        })?;
        let status = self.wait(&mut program, &folder);
        let states = States::read(&folder);
        self.versions = states.versions();
        if let Some(gpu) = states.timed().and_then(|timed| timed.gpu.clone()) {
            self.gpu = Some(gpu);
        }
        let result = status.and_then(|status| self.result(&folder, &states, status));
        if !self.console.quiet {
            let names: Vec<&str> = treatments.iter().map(|t| t.name.as_str()).collect();
            let what = match names.as_slice() {
                [] => "untreated".to_owned(),
                names => plain(&names.join(" + ")),
            };
            let said = match &result {
                Ok(measured) => format!("{} per step", ns(measured.step_ns)),
                Err(Failed::Refused(why) | Failed::Program(why) | Failed::Stopped(why)) => {
                    why.clone()
                }
            };
            output::complain(&format!(
                "pyprof-advise: run {}: {what}: {said}\n",
                self.number
            ));
        }
        // Programs may write much.
        let _ = std::fs::remove_dir_all(&folder);
        result
    }
}
