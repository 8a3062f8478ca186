//! The snippets of docs/capture.md that people copy into their programs, on a real torch.

use std::path::Path;
use std::process::Command;

use crate::shared;

/// The first block of Python in the guide that contains a text.
fn snippet(text: &str) -> String {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/capture.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let blocks = guide.split("```python\n").skip(1);
    let mut blocks = blocks.filter_map(|block| block.split_once("```").map(|(code, _)| code));
    blocks.find(|code| code.contains(text)).unwrap().to_owned()
}

#[test]
fn layer_names_of_the_guide_do_not_break_graphs() {
    let Some(python) = shared::python() else {
        return;
    };
    let program = format!(
        "{}
import torch._dynamo
model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
name_layers(model)
seen = torch._dynamo.explain(model)(torch.ones(3, 4))
print(seen.graph_count, seen.graph_break_count)",
        snippet("def name_layers")
    );
    let mut run = Command::new(python);
    let output = run.args(["-W", "ignore", "-c", &program]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said.trim(), "1 0", "{error}");
}

#[test]
fn recording_of_the_guide_writes_one_file_per_rank() {
    let Some(python) = shared::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let program = format!(
        "import torch\nrank, loader = 3, range(20)\ndef train_step(batch): torch.ones(2) + batch\n{}",
        snippet("repeat=1")
    );
    let mut run = Command::new(python);
    run.args(["-W", "ignore", "-c", &program])
        .current_dir(folder.path());
    let output = run.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    let files = std::fs::read_dir(folder.path()).unwrap();
    let files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["rank3.pt.trace.json.gz"]);
}
