//! A separate folder with the example profile, in which the program is run from the command line.
// Each test program uses a part of this module.
#![allow(dead_code)]

pub(crate) mod ranks;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) struct Sandbox {
    folder: TempDir,
    environment: BTreeMap<String, String>,
}

/// The output and status of a run.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Sandbox {
    pub(crate) fn new() -> Sandbox {
        let sandbox = Sandbox::bare();
        sandbox.example("net.sqlite");
        sandbox
    }

    /// An empty folder.
    pub(crate) fn bare() -> Sandbox {
        Sandbox {
            folder: tempfile::tempdir().unwrap(),
            environment: BTreeMap::new(),
        }
    }

    /// Adds the example profile under any name.
    pub(crate) fn example(&self, name: &str) {
        let profile = Path::new(ROOT).join("fixtures/net.sqlite");
        std::fs::copy(profile, self.at(name)).unwrap();
    }

    /// The same folder, with an environment variable for later runs.
    pub(crate) fn with(mut self, variable: &str, value: &str) -> Sandbox {
        self.environment.insert(variable.into(), value.into());
        self
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.at(name)).unwrap()
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    /// Names in the folder, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap();
        let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name();
        let mut names: Vec<String> = entries.map(|e| name(e).into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The program in this folder, with the arguments in a line.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        self.command_of(&arguments)
    }

    /// The program in this folder, with arguments that may contain spaces.
    pub(crate) fn command_of(&self, arguments: &[&str]) -> Command {
        let mut command = Command::cargo_bin("pyprof-advise").unwrap();
        command
            .current_dir(self.folder.path())
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR_FORCE")
            .env_remove("PYPROF_ADVISE_CONFIG")
            .env_remove("SOURCE_DATE_EPOCH")
            .envs(&self.environment)
            .args(arguments);
        command
    }

    pub(crate) fn run(&self, arguments: &str) -> Said {
        said(&mut self.command(arguments))
    }

    /// Standard output of a run, which must end with status 0.
    #[track_caller]
    pub(crate) fn fine(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "{arguments}\n{}", said.err);
        said.out
    }

    /// The errors of a run, which must end with status 2 and print nothing else.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        assert_eq!(
            (said.code, said.out.as_str()),
            (2, ""),
            "{arguments}\n{}",
            said.err
        );
        said.err
    }

    /// The JSON report of a run, which must end with status 0.
    #[track_caller]
    pub(crate) fn report(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.fine(&format!("{arguments} --format json"))).unwrap()
    }
}

pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.output().unwrap();
    let said = Said {
        code: output.status.code().unwrap(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    };
    assert!(!said.err.contains("panicked"), "{}", said.err);
    said
}

#[track_caller]
pub(crate) fn has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

#[track_caller]
pub(crate) fn lacks(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(!text.contains(part), "`{part}` in:\n{text}");
    }
}
