//! Temporary files that go away with the program, whatever ends it: a handle that is dropped removes
//! its file, and [`lock_and_remove_all`] removes those of all handles when a signal is about to end the
//! process, in which nothing is dropped.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

/// The files there are. Whoever makes, keeps or drops one holds the lock, so that none is made unseen.
static ALIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn alive() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    // A set of paths is as good after a panic as before.
    ALIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An open file with a name, to be renamed or to disappear.
#[derive(Debug)]
pub struct Temporary {
    /// `None` once it was kept.
    file: Option<NamedTempFile>,
    path: PathBuf,
}

impl Temporary {
    /// An empty file in `folder`, as readable as any other new file there: it is meant to be kept.
    ///
    /// # Errors
    /// When no file can be made there.
    pub fn beside(folder: &Path) -> io::Result<Temporary> {
        let mut builder = tempfile::Builder::new();
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            // Like every new file: the system takes the umask off.
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        Temporary::made(|| builder.tempfile_in(folder))
    }

    /// An empty file in the system's folder for such files, for nobody but its user.
    ///
    /// # Errors
    /// When no file can be made there.
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

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file to `target`, in place of what is there.
    ///
    /// # Errors
    /// When it cannot be renamed; it is removed then.
    pub fn persist(self, target: &Path) -> io::Result<()> {
        self.kept(|file| file.persist(target).map_err(|e| e.error))
    }

    /// Renames the file to `target`, where nothing may be.
    ///
    /// # Errors
    /// When something is there or it cannot be renamed; it is removed then.
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
        // A kept file has gone out of the set already, and another may have its name by now.
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

/// Removes the files of all handles; as long as the guard lives, none is made or kept.
#[must_use = "files can be made again once the guard is dropped"]
pub fn lock_and_remove_all() -> impl Sized {
    let mut alive = alive();
    for path in std::mem::take(&mut *alive) {
        // What cannot be removed could not be told to anybody either.
        let _ = std::fs::remove_file(path);
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
    fn kept_files_stay_and_others_go() {
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
