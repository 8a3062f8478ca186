//! The Python package that is put into programs.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// The files of the package, by their path in it.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/pyprof_advise.rs"));
/// The file that Python runs when it starts, if its folder is on `PYTHONPATH`.
const AT_START: &str = "_site/sitecustomize.py";

/// The folder of the treatments in it.
const TREATMENTS: &str = "treatments/";

/// The folder of the package in the folder that it was unpacked into.
pub(crate) fn folder_of(unpacked: &Path) -> PathBuf {
    unpacked.join("pyprof_advise")
}

/// The treatments that come with the program: their path in the package, and their text.
pub(crate) fn treatments() -> impl Iterator<Item = (&'static str, &'static str)> {
    let files = FILES.iter().copied();
    files.filter(|(path, _)| path.starts_with(TREATMENTS) && path.ends_with(".py"))
}

/// Writes the package into an empty folder, which is to be put on `PYTHONPATH`.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn unpack(folder: &Path) -> io::Result<()> {
    let package = folder_of(folder);
    for (name, text) in FILES {
        let path = match *name {
            AT_START => folder.join("sitecustomize.py"),
            name => package.join(name),
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(path, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unpacked_package_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        unpack(folder.path()).unwrap();
        for file in [
            "sitecustomize.py",
            "pyprof_advise/__init__.py",
            "pyprof_advise/_run.py",
            "pyprof_advise/py.typed",
        ] {
            assert!(folder.path().join(file).is_file(), "{file}");
        }
    }

    #[test]
    fn package_and_program_have_the_same_version() {
        let (_, text) = FILES
            .iter()
            .find(|(name, _)| *name == "_version.py")
            .unwrap();
        let version = format!("VERSION = \"{}\"", env!("CARGO_PKG_VERSION"));
        assert!(
            text.contains(&version),
            "python/pyprof_advise/_version.py: {version}"
        );
    }
}
