//! README.md: its generated blocks, and the claims that can be checked.

use pyprof_advise::formats::FORMATS;

use super::{fresh, markdown, read, root, said};

/// The first commands for new users, from the blocks before the first section.
fn first_commands(readme: &str) -> Vec<String> {
    let opening = readme.split("\n## ").next().unwrap_or_default();
    let blocks = markdown::blocks(opening);
    blocks
        .into_iter()
        .map(|(_, text)| text.trim().to_owned())
        .collect()
}

/// The start of the report: the verdict and the table of findings.
fn sample() -> String {
    let report = said(root(), &["fixtures/net.sqlite", "--gpu", "v100"]);
    let verdict = report.split("\n\n").nth(1).unwrap_or_default();
    let table: Vec<&str> = report
        .lines()
        .skip_while(|line| !line.starts_with("| # |"))
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(table.len() > 2, "no findings in the report:\n{report}");
    format!("\n{verdict}\n\n{}\n\n", table.join("\n"))
}

#[test]
fn generated_blocks_of_the_readme_are_fresh() {
    let help = said(root(), &["--help"]);
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let help = format!("```text\n{}\n```\n", help.join("\n").trim_end());
    let readme = read("README.md");
    let readme = markdown::with_block(&readme, "help", &help);
    let readme = markdown::with_block(&readme, "report", &sample());
    fresh("README.md", &readme);
}

#[test]
fn first_commands_are_those_that_ci_runs() {
    let commands = first_commands(&read("README.md"));
    assert_eq!(commands.len(), 2, "{commands:?}");
    let quiet = read(".ci/run")
        .replace(" --locked", "")
        .replace(" --quiet", "");
    for command in commands {
        assert!(quiet.contains(&command), ".ci/run does not run `{command}`");
    }
}

#[test]
fn every_output_format_has_a_row_in_the_readme() {
    let readme = read("README.md");
    let (_, section) = readme.split_once("\n## Formats\n").unwrap();
    let section = section.split("\n## ").next().unwrap_or_default();
    let rows: Vec<&str> = section
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| !name.starts_with('-'))
        .collect();
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    assert_eq!(rows, names);
    for ending in FORMATS.iter().flat_map(|format| format.endings) {
        assert!(section.contains(&format!("`{ending}`")), "{ending}");
    }
}

#[test]
fn figures_in_the_readme_are_correct() {
    let readme = read("README.md");
    let boards = pyprof_advise::gpu::select::list().len();
    let manifest = read("Cargo.toml");
    let rust = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .unwrap();
    for claim in [format!("the {boards} boards"), format!("({rust} or later)")] {
        assert!(
            readme.contains(&claim),
            "README.md does not say \"{claim}\""
        );
    }
}
