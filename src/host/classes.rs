//! What functions do, from the data file `classes.toml` and files of the user.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use super::model::HostLine;
use crate::base::diag::{Complaints, Source};
use crate::base::schema::{self, Key, Shape, keys};
use crate::base::toml;
use crate::profile::ClassId;

/// Most entries of a list.
const MOST: usize = 1_000;
const TEXTS: Shape = Shape::List(&Shape::Text(1, 200), MOST);

/// The tables of a file of classes.
const FILE_KEYS: &[Key] = keys! {
    /// what functions do, and how they are recognized; the first class with a match counts
    required "class": Shape::Tables(CLASS_KEYS, &[], 1, MOST),
};

/// Every key of a `[[class]]`.
const CLASS_KEYS: &[Key] = keys! {
    /// what the functions do, in a few words: `decoding or augmenting`. Entries of a class with the name of a
    /// built-in one are added to it
    required "name": Shape::Text(1, 60),
    /// beginnings of paths, or of the part after a `/`: `PIL/`, `my_project/augment.py`
    "files": TEXTS,
    /// names of Python functions: `imread`, or with such a path `my_project/io.py:save`
    "functions": TEXTS,
    /// names of functions that are not written in Python: `print`, or with their type or module
    /// `item of Tensor`, `sleep of time`
    "builtins": TEXTS,
    /// beginnings of names of shared libraries: `libjpeg`
    "libraries": TEXTS,
    /// the class of a caller counts instead, if it has one
    "weak": Shape::Flag,
};

/// The JSON Schema of files of classes.
pub fn schema() -> String {
    let about = "What functions of the host do, for `pyprof-advise --classes FILE`.";
    schema::document("pyprof-advise classes", about, FILE_KEYS, &[])
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Class {
    name: String,
    files: Vec<String>,
    functions: Vec<String>,
    builtins: Vec<String>,
    libraries: Vec<String>,
    is_weak: bool,
    is_built_in: bool,
}

/// Classes of functions; those of the user come first.
#[derive(Debug, Clone, PartialEq)]
pub struct Classes(Vec<Class>);

static BUILT_IN: LazyLock<Arc<Classes>> = LazyLock::new(|| {
    let complaints = Complaints::new();
    let source = Source::embedded("classes.toml", include_str!("classes.toml"));
    let mut classes = read(&source, &complaints);
    for class in &mut classes {
        class.is_built_in = true;
    }
    Arc::new(Classes(classes))
});

/// The classes of a file without mistakes.
fn read(source: &Arc<Source>, complaints: &Complaints) -> Vec<Class> {
    let document = toml::parse(source, complaints);
    let root = document.root();
    root.check(FILE_KEYS, &[]);
    let tables = root.get_table_list("class").into_iter();
    let class = |table: toml::Table<'_>| Class {
        name: table.get_text("name").unwrap_or_default(),
        files: table.get_texts("files"),
        functions: table.get_texts("functions"),
        builtins: table.get_texts("builtins"),
        libraries: table.get_texts("libraries"),
        is_weak: table.get_flag("weak"),
        is_built_in: false,
    };
    tables.map(class).collect()
}

impl Default for Classes {
    fn default() -> Classes {
        Classes::clone(&BUILT_IN)
    }
}

impl Classes {
    /// The built-in classes.
    pub fn built_in() -> Arc<Classes> {
        Arc::clone(&BUILT_IN)
    }

    /// The built-in classes, with those of files before them.
    ///
    /// # Errors
    /// Every mistake in the files.
    pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Arc<Classes>, Complaints> {
        let complaints = Complaints::new();
        let mut all = Vec::new();
        for file in files {
            match Source::read(file.as_ref()) {
                Ok(source) => all.extend(read(&source, &complaints)),
                Err(complaint) => complaints.push(complaint),
            }
        }
        if !complaints.is_empty() {
            return Err(complaints);
        }
        all.extend(BUILT_IN.0.iter().cloned());
        Ok(Arc::new(Classes(all)))
    }

    /// The class of a function in a file; of functions that are not written in Python, the file is empty.
    pub fn of(&self, file: &str, function: &str) -> Option<ClassId> {
        let file = file.replace('\\', "/");
        let built_in = builtin(function);
        let found = self.0.iter().position(|class| match built_in {
            Some(called) => class.builtins.iter().any(|entry| is_builtin(entry, called)),
            None => {
                let in_file = |part: &str| begins(&file, part);
                class.files.iter().any(|part| in_file(part))
                    || class.functions.iter().any(|entry| {
                        let (part, name) = entry.rsplit_once(':').unwrap_or(("", entry));
                        let method = function.rsplit('.').next().unwrap_or(function);
                        (name == function || name == method) && in_file(part)
                    })
            }
        });
        found.and_then(|at| u16::try_from(at).ok()).map(ClassId)
    }

    /// The class of a sampled function in a shared library.
    pub fn of_sample(&self, function: &str, library: &str) -> Option<ClassId> {
        let library = library.rsplit(['/', '\\']).next().unwrap_or(library);
        let found = self.0.iter().position(|class| {
            let is_part = |part: &String| !library.is_empty() && library.starts_with(part);
            class.libraries.iter().any(is_part)
                || class.functions.iter().any(|name| name == function)
        });
        found.and_then(|at| u16::try_from(at).ok()).map(ClassId)
    }

    /// What the functions of a class do, in a few words.
    pub fn name(&self, id: ClassId) -> &str {
        self.0
            .get(usize::from(id.0))
            .map_or("", |class| &class.name)
    }

    /// The class of a function that its caller's class may take precedence over.
    pub fn inside(&self, outer: Option<ClassId>, own: Option<ClassId>) -> Option<ClassId> {
        let is_weak = |id: ClassId| {
            self.0
                .get(usize::from(id.0))
                .is_some_and(|class| class.is_weak)
        };
        match (outer, own) {
            (Some(outer), Some(own)) if is_weak(own) => Some(outer),
            (outer, own) => own.or(outer),
        }
    }

    /// Whether a class was built in, so that functions in its files are those of libraries.
    pub fn is_of_libraries(&self, id: ClassId) -> bool {
        self.0
            .get(usize::from(id.0))
            .is_some_and(|class| class.is_built_in)
    }

    /// What a function or line does, in a few words.
    pub fn of_line(&self, line: &HostLine) -> Option<&str> {
        self.of(&line.file, &line.function).map(|id| self.name(id))
    }
}

/// Whether a path begins with a part, as a whole or after one of its folders.
fn begins(path: &str, part: &str) -> bool {
    part.is_empty()
        || path
            .match_indices(part)
            .any(|(at, _)| at == 0 || path.as_bytes().get(at.wrapping_sub(1)) == Some(&b'/'))
}

/// The name and the type or module of a function that is not written in Python:
/// `<built-in method item of Tensor object at 0x7f>`, `{method 'item' of 'torch._C.TensorBase' objects}`,
/// `<built-in function collect>`, `<built-in method time.sleep>`.
fn builtin(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix(['{', '<'])?.trim_end_matches(['}', '>']);
    let inner = (["built-in method ", "built-in function ", "method "].into_iter())
        .find_map(|start| inner.strip_prefix(start))?;
    let (name, owner) = match inner.split_once(" of ") {
        Some((name, owner)) => (name, owner.split(' ').next().unwrap_or(owner)),
        None => match inner.rsplit_once('.') {
            Some((module, name)) => (name, module),
            None => (inner, ""),
        },
    };
    Some((name.trim_matches('\''), owner.trim_matches('\'')))
}

/// Whether `name` or `name of owner` means this function. Some profilers do not give the owner.
fn is_builtin(entry: &str, (name, owner): (&str, &str)) -> bool {
    let Some((entry, of)) = entry.split_once(" of ") else {
        return entry == name;
    };
    let last = owner.rsplit('.').next().unwrap_or(owner);
    entry == name && (owner.is_empty() || owner.starts_with(of) || last.starts_with(of))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name<'a>(classes: &'a Classes, file: &str, function: &str) -> Option<&'a str> {
        classes.of(file, function).map(|id| classes.name(id))
    }

    #[test]
    fn functions_have_classes() {
        let classes = Classes::built_in();
        assert!(classes.0.len() > 5);
        let syncs = Some("synchronizing with the GPU");
        for (file, function, class) in [
            (
                "",
                "{method 'item' of 'torch._C.TensorBase' objects}",
                syncs,
            ),
            ("", "<built-in method item of Tensor object at 0x7f>", syncs),
            ("", "<built-in method item of dict object at 0x7f>", None),
            ("", "<built-in method time.sleep>", Some("waiting")),
            ("", "<built-in function sleep>", Some("waiting")),
            ("", "<built-in method join of str object at 0x7f>", None),
            ("", "<built-in method log of type object at 0x7f>", None),
            (
                "",
                "<built-in function collect>",
                Some("collecting garbage"),
            ),
            (
                "/x/site-packages/PIL/Image.py",
                "open",
                Some("decoding or augmenting"),
            ),
            ("wav/io.py", "load", None),
            (
                "torch/serialization.py",
                "save",
                Some("saving a checkpoint"),
            ),
            ("torch/serialization.py", "load", None),
            ("tqdm/std.py", "__iter__", None),
            ("train.py", "main", None),
        ] {
            assert_eq!(name(&classes, file, function), class, "{file} {function}");
        }
        let jpeg = classes.of_sample("", "/usr/lib/libjpeg.so.62").unwrap();
        assert_eq!(classes.name(jpeg), "decoding or augmenting");
        assert_eq!(classes.of_sample("main", ""), None);
    }

    #[test]
    fn classes_of_the_user_come_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("classes.toml");
        let text = "[[class]]\nname = \"augmenting\"\nfiles = [\"ours/augment.py\", \"PIL/\"]\n\
                    functions = [\"ours/io.py:save\"]\n";
        std::fs::write(&file, text).unwrap();
        let classes = Classes::load(&[file]).unwrap();
        assert_eq!(
            name(&classes, "src/ours/augment.py", "flip"),
            Some("augmenting")
        );
        assert_eq!(name(&classes, "PIL/Image.py", "open"), Some("augmenting"));
        assert_eq!(name(&classes, "ours/io.py", "save"), Some("augmenting"));
        assert_eq!(name(&classes, "ours/io.py", "load"), None);
        assert_eq!(
            name(&classes, "cv2/x.py", "y"),
            Some("decoding or augmenting")
        );
    }

    #[test]
    fn mistakes_in_files_are_reported_with_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("classes.toml");
        std::fs::write(&file, "[[class]]\nname = 3\nfile = [\"PIL/\"]\n").unwrap();
        let complaints = Classes::load(&[file]).unwrap_err();
        let text = complaints.render(false);
        assert!(text.contains("classes.toml:2:8"), "{text}");
        assert!(text.contains("unknown key `class[0].file`"), "{text}");
    }
}
