//! Tests that cannot run are counted, and the count is printed.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::shared;

#[test]
fn shared_folder_is_complete() {
    for folder in [
        "profiles",
        "profiles_pairs",
        "host_profiles",
        "attacks",
        "reference",
    ] {
        if shared::path(folder).is_none() {
            return;
        }
    }
}

#[test]
fn skipped_tests_are_counted_by_reason() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "skipped_tests::shared_folder_is_complete"])
        .env_remove(shared::VARIABLE)
        .output()
        .unwrap();
    assert!(output.status.success());
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut count = Command::new(root.join(".ci/skipped"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = count.stdin.take().unwrap();
    input.write_all(&output.stderr).unwrap();
    drop(input);
    let counted = String::from_utf8(count.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!(
        counted,
        format!("1 test skipped: {} is not set\n", shared::VARIABLE)
    );
}
