//! Frames of Python call stacks: which frame is the user's, and how to print it.

use std::borrow::Cow;

/// A frame of a Python call stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PythonFrame<'a> {
    pub path: &'a str,
    pub line: &'a str,
}

impl<'a> PythonFrame<'a> {
    /// `path/file.py:148` (PyProf) or `path/file.py(148): function` (Kineto). The function of a notebook's cell
    /// is `<cell line: 0>`.
    pub(crate) fn parse(text: &'a str) -> Option<PythonFrame<'a>> {
        let text = text.trim();
        let (path, line) = match place_and_function(text) {
            Some((place, _)) => place.rsplit_once('(')?,
            None => text.rsplit_once(':')?,
        };
        let numbered = !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit());
        (numbered && !path.is_empty()).then_some(PythonFrame { path, line })
    }

    fn components(&self) -> impl DoubleEndedIterator<Item = &'a str> {
        self.path.split(['/', '\\']).filter(|c| !c.is_empty())
    }

    /// Whether the frame belongs to Python, PyTorch or the profiler rather than to the program.
    pub(crate) fn is_internal(&self) -> bool {
        if self.path.starts_with('<') {
            return true;
        }
        let mut first = true;
        let mut previous = "";
        for part in self.components() {
            let in_stdlib = previous == "lib" && part.starts_with("python3");
            let own = first && INTERNAL_ROOTS.contains(&part);
            if own || in_stdlib || INTERNAL_FOLDERS.contains(&part) {
                return true;
            }
            first = false;
            previous = part;
        }
        false
    }

    /// Whether the frame is optimizer, clipping or scaling code.
    pub(crate) fn is_update(&self) -> bool {
        let path = format!("/{}", self.path.replace('\\', "/"));
        UPDATE_PATHS.iter().any(|part| path.contains(part))
    }

    /// `dir/file.py:148`. A file directly in a home folder becomes `~/file.py:148`, so that no user name
    /// is printed.
    pub(crate) fn short(&self) -> String {
        let mut parts: Vec<&str> = self.components().collect();
        let home = match (self.path.starts_with('/'), parts.as_slice()) {
            (true, ["root", _, ..]) => 1,
            (true, ["home" | "Users", _, _, ..]) => 2,
            (false, [drive, "Users", _, _, ..]) if drive.ends_with(':') => 3,
            _ => 0,
        };
        parts.drain(..home);
        match parts.as_slice() {
            [.., dir, file] => format!("{dir}/{file}:{}", self.line),
            [file] if home > 0 => format!("~/{file}:{}", self.line),
            [file] => format!("{file}:{}", self.line),
            [] => format!("{}:{}", self.path, self.line),
        }
    }
}

/// `path/dir/file.py(148` and `function` of a frame as Kineto writes it.
pub(crate) fn place_and_function(text: &str) -> Option<(&str, &str)> {
    text.trim().split_once("): ")
}

/// `function (dir/file.py:148)` for a frame as Kineto writes it: `path/dir/file.py(148): function`.
/// `None` if the text is no such frame.
pub(crate) fn function_in(text: &str) -> Option<String> {
    let frame = PythonFrame::parse(text).filter(|frame| frame.path.ends_with(".py"))?;
    let (_, function) = place_and_function(text)?;
    Some(format!("{function} ({})", frame.short()))
}

/// A Python function as [`function_in`] prints it; other names as they are.
pub(crate) fn readable_name(text: &str) -> Cow<'_, str> {
    function_in(text).map_or(Cow::Borrowed(text), Cow::Owned)
}

/// Folders that never contain user code.
const INTERNAL_FOLDERS: [&str; 4] = ["site-packages", "dist-packages", "pyprof", "nvmarker.py"];

/// First components of relative paths outside user code. Kineto removes the search path.
const INTERNAL_ROOTS: [&str; 39] = [
    "torch",
    "torchvision",
    "apex",
    "triton",
    "nvtx",
    "numpy",
    // What runs the cells of a notebook.
    "IPython",
    "colab_kernel_launcher.py",
    "ipykernel",
    "tornado",
    "traitlets",
    "abc.py",
    "ast.py",
    "asyncio",
    "codecs.py",
    "collections",
    "concurrent",
    "contextlib.py",
    "copy.py",
    "dataclasses.py",
    "enum.py",
    "functools.py",
    "importlib",
    "inspect.py",
    "logging",
    "multiprocessing",
    "os.py",
    "pickle.py",
    "posixpath.py",
    "queue.py",
    "random.py",
    "re.py",
    "runpy.py",
    "selectors.py",
    "socket.py",
    "threading.py",
    "typing.py",
    "warnings.py",
    "weakref.py",
];

/// Files and folders that only contain parameter updates.
const UPDATE_PATHS: [&str; 5] = [
    "/torch/optim/",
    "/torch/nn/utils/clip_grad.py",
    "/torch/amp/grad_scaler.py",
    "/torch/cuda/amp/grad_scaler.py",
    "/apex/optimizers/",
];

/// The innermost user line of a stack (outermost frame first), and whether it calls update code.
pub(crate) fn innermost<'a>(
    frames: impl DoubleEndedIterator<Item = &'a str>,
) -> (Option<String>, bool) {
    let mut update = false;
    for frame in frames.rev().filter_map(PythonFrame::parse) {
        if !frame.is_internal() {
            return (Some(frame.short()), update);
        }
        update |= frame.is_update();
    }
    (None, update)
}

/// The innermost user line of a `Call stack` of 2021's Kineto: frames split by `;`, innermost first.
pub(crate) fn innermost_of_call_stack(stack: &str) -> Option<String> {
    stack
        .split(';')
        .filter_map(PythonFrame::parse)
        .find(|f| !f.is_internal())
        .map(|f| f.short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_frame_formats_are_parsed() {
        let frame = PythonFrame::parse("/a/b/train.py:12").unwrap();
        assert_eq!((frame.path, frame.line), ("/a/b/train.py", "12"));
        let frame = PythonFrame::parse("torch/nn/modules/module.py(1915): __getattr__").unwrap();
        assert_eq!(
            (frame.path, frame.line),
            ("torch/nn/modules/module.py", "1915")
        );
        assert!(frame.is_internal());
        let frame = PythonFrame::parse("/tmp/ipykernel_7/16.py(18): <cell line: 0>").unwrap();
        assert_eq!((frame.path, frame.line), ("/tmp/ipykernel_7/16.py", "18"));
        assert!(!frame.is_internal());
        assert_eq!(PythonFrame::parse("<built-in method numel>"), None);
        assert_eq!(PythonFrame::parse("nn.Module: Linear_15"), None);
        assert_eq!(PythonFrame::parse("scaled dot product: 7"), None);
    }

    #[test]
    fn the_innermost_user_line_is_used() {
        let stack = [
            "train.py:319",
            "model/net.py:106",
            "/usr/lib/python3.8/contextlib.py:75",
            "/opt/conda/lib/python3.10/site-packages/torch/nn/modules/module.py:532",
        ];
        assert_eq!(
            innermost(stack.into_iter()),
            (Some("model/net.py:106".into()), false)
        );
        let clip = [
            "train.py:264",
            "/x/site-packages/torch/nn/utils/clip_grad.py:32",
        ];
        assert_eq!(
            innermost(clip.into_iter()),
            (Some("train.py:264".into()), true)
        );
        assert_eq!(
            innermost_of_call_stack("torch/a.py(3): f;./bench/run.py(54): <module>").as_deref(),
            Some("bench/run.py:54")
        );
    }

    #[test]
    fn user_names_are_not_printed() {
        for (path, short) in [
            ("/home/jo/train.py:3", "~/train.py:3"),
            ("/Users/jo/train.py:3", "~/train.py:3"),
            ("/root/train.py:3", "~/train.py:3"),
            (r"C:\Users\jo\train.py:3", "~/train.py:3"),
            ("/home/jo/proj/train.py:3", "proj/train.py:3"),
            ("/workspace/a/b/c.py:74", "b/c.py:74"),
            ("train.py:3", "train.py:3"),
        ] {
            assert_eq!(PythonFrame::parse(path).unwrap().short(), short);
        }
    }
}
