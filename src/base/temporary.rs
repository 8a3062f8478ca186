//! Temporary files and folders that are removed at every end of the program: dropping a handle removes its file,
//! and [`lock_and_remove_all`] removes the files of all handles before a signal ends the process.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

/// All temporary files. Creating, keeping or removing one takes the lock.
static ALIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn alive() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // The set is valid even if a thread panicked while it held the lock.
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open file with a name, which is either renamed or removed.
#[derive(Debug)]
pub struct Temporary {
    /// `None` after the file was renamed.
    file: Option<NamedTempFile>,
    path: PathBuf,
}

impl Temporary {
    /// Creates an empty file in `folder` with the permissions of a new file, to be kept.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn beside(folder: &Path) -> io::Result<Temporary> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // The system applies the umask.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        Temporary::made(|| builder.tempfile_in(folder))
    }

    /// Creates an empty file in the system's temporary folder, readable only by the user.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn scratch() -> io::Result<Temporary> {
        Temporary::made(NamedTempFile::new)
    }

    fn made(make: impl FnOnce() -> io::Result<NamedTempFile>) -> io::Result<Temporary> {
        let mut alive = alive();
        let file = make()?;
        let path = file.path().to_owned();
        alive.insert(path.clone());
        Ok(Temporary {
            file: Some(file),
            path,
        })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to `target`, replacing an existing file.
    ///
    /// # Errors
    /// When the file cannot be renamed; it is removed then.
    pub fn persist(self, target: &Path) -> io::Result<()> {
        self.kept(|file| file.persist(target).map_err(|e| e.error))
    }

    /// Renames the file to `target`, which must not exist.
    ///
    /// # Errors
    /// When `target` exists or the file cannot be renamed; the file is removed then.
    pub fn persist_noclobber(self, target: &Path) -> io::Result<()> {
        self.kept(|file| file.persist_noclobber(target).map_err(|e| e.error))
    }

    fn kept(
        mut self,
        keep: impl FnOnce(NamedTempFile) -> io::Result<std::fs::File>,
    ) -> io::Result<()> {
        let mut alive = alive();
        alive.remove(&self.path);
        match self.file.take() {
            Some(file) => keep(file).map(drop),
            None => Ok(()),
        }
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // A renamed file is no longer in the set, and another file may have its name.
        if let Some(file) = self.file.take() {
            let mut alive = alive();
            drop(file);
            alive.remove(&self.path);
        }
    }
}

impl Write for Temporary {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.file {
            Some(file) => file.write(bytes),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// A folder readable only by the user, which is removed with everything in it.
#[derive(Debug)]
pub struct TemporaryFolder {
    /// `None` while it is being removed.
    folder: Option<tempfile::TempDir>,
    path: PathBuf,
}

impl TemporaryFolder {
    /// Creates an empty folder in the system's temporary folder.
    ///
    /// # Errors
    /// When the folder cannot be created.
    pub fn new() -> io::Result<TemporaryFolder> {
        let mut alive = alive();
        let folder = tempfile::Builder::new()
            .prefix("pyprof-advise-")
            .tempdir()?;
        let path = folder.path().to_owned();
        alive.insert(path.clone());
        Ok(TemporaryFolder {
            folder: Some(folder),
            path,
        })
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        let mut alive = alive();
        drop(self.folder.take());
        alive.remove(&self.path);
    }
}

/// Removes the files and folders of all handles. While the guard exists, no file can be created or kept.
#[must_use = "files can be created again when the guard is dropped"]
pub fn lock_and_remove_all() -> impl Sized {
    let mut alive = alive();
    for path in std::mem::take(&mut *alive) {
        // The process is ending, so an error cannot be reported.
        if std::fs::remove_file(&path).is_err() {
            let _ = std::fs::remove_dir_all(&path);
        }
    }
    alive
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn renamed_files_remain_and_dropped_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("report.md");
        let mut file = Temporary::beside(folder.path()).unwrap();
        file.write_all(b"one").unwrap();
        file.persist_noclobber(&target).unwrap();
        let mut file = Temporary::beside(folder.path()).unwrap();
        file.write_all(b"two").unwrap();
        assert!(file.persist_noclobber(&target).is_err());
        assert_eq!(std::fs::read(&target).unwrap(), b"one");
        let mut file = Temporary::beside(folder.path()).unwrap();
        file.write_all(b"three").unwrap();
        file.persist(&target).unwrap();
        assert_eq!(std::fs::read(&target).unwrap(), b"three");
        drop(Temporary::beside(folder.path()).unwrap());
        assert_eq!(names(folder.path()), ["report.md"]);
        assert!(alive().iter().all(|path| !path.starts_with(folder.path())));
    }
}
