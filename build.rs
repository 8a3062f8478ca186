//! Embeds the folders that are registries: a GPU is a file in `gpu_specs/`, what work reaches on an
//! architecture a file in `calibration/`, a rule a file in `rules/`; and the Python package that `run`
//! puts into a program. Each becomes a slice of `(path below the folder, text)`, sorted by path, to be
//! included as an expression:
//!
//! ```ignore
//! const SPECS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/gpu_specs.rs"));
//! ```
//!
//! A rule has a third text: the part of its file that decides whether it fires. An analysis reads that part of all
//! rules, a quarter of their text, and the whole file of those that fire.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The folders, and the endings of the files in them that are embedded.
const FOLDERS: [(&str, &[&str]); 4] = [
    ("calibration", &["toml"]),
    ("gpu_specs", &["toml"]),
    ("rules", &["toml"]),
    ("python/pyprof_advise", &["py", "typed"]),
];

/// What a rule says once it fires, and its tests.
const ADVICE: [&str; 6] = ["message", "why", "fix", "edit", "references", "test"];

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    println!("cargo:rerun-if-changed=build.rs");
    for (folder, endings) in FOLDERS {
        println!("cargo:rerun-if-changed={folder}");
        let base = root.join(folder);
        let mut files = Vec::new();
        collect(&base, endings, &mut files)?;
        let name = folder.rsplit('/').next().unwrap_or(folder);
        fs::write(out.join(format!("{name}.rs")), embed(folder, &base, files)?)?;
    }
    Ok(())
}

/// Every file with one of the endings below `folder`, which may be missing.
fn collect(folder: &Path, endings: &[&str], files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, endings, files)?;
        } else if path
            .extension()
            .is_some_and(|e| endings.iter().any(|wanted| e == *wanted))
        {
            files.push(path);
        }
    }
    Ok(())
}

/// The slice of paths and texts. The files are named below the folder of the package as it is when the
/// crate is compiled, so that a checkout that was moved still compiles.
fn embed(folder: &str, base: &Path, files: Vec<PathBuf>) -> io::Result<String> {
    let mut paths = Vec::new();
    for path in files {
        match path.strip_prefix(base).unwrap_or(&path).to_str() {
            Some(below) => paths.push(below.replace('\\', "/")),
            None => {
                let message = format!("{} is not UTF-8", path.display());
                return Err(io::Error::other(message));
            }
        }
    }
    paths.sort();
    let mut code = String::from("&[\n");
    for below in paths {
        let path = format!("/{folder}/{below}");
        let decision = match folder {
            "rules" => format!(", {:?}", decision(&base.join(&below))?),
            _ => String::new(),
        };
        let _ = writeln!(
            code,
            "    ({below:?}, include_str!(concat!(env!(\"CARGO_MANIFEST_DIR\"), {path:?})){decision}),"
        );
    }
    code.push_str("]\n");
    Ok(code)
}

/// The part of a rule file that decides whether the rule fires, as TOML.
fn decision(file: &Path) -> io::Result<String> {
    let wrong = |error: String| io::Error::other(format!("{}: {error}", file.display()));
    let text = fs::read_to_string(file)?;
    let mut rule: toml::Table = text
        .parse()
        .map_err(|e: toml::de::Error| wrong(e.to_string()))?;
    rule.retain(|key, _| !ADVICE.contains(&key));
    if let Some(toml::Value::Table(params)) = rule.get_mut("params") {
        for (_, param) in params.iter_mut() {
            if let toml::Value::Table(param) = param {
                param.remove("doc");
            }
        }
    }
    toml::to_string(&rule).map_err(|e| wrong(e.to_string()))
}
