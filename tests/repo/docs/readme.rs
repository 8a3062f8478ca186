//! README.md: its generated blocks, and the claims that can be checked.

use pyprof_advise::formats::FORMATS;

use super::{fresh, markdown, read, root, said};

/// Maximum number of words of the README, generated blocks included.
const MAX_WORDS: usize = 1_100;

/// The opening and the figures of the example profile, and its first finding without evidence.
fn samples() -> [(&'static str, String); 2] {
    let report = said(root(), &["fixtures/net.sqlite"]);
    let opening: Vec<&str> = report.split("\n\n").skip(1).take(2).collect();
    let (_, findings) = report.split_once("\n### 1. ").unwrap();
    let (first, _) = findings.split_once("\n<details>").unwrap();
    let quoted = |text: &str| -> String {
        let quote = |line: &str| format!("> {line}").trim_end().to_owned() + "\n";
        text.trim().lines().map(quote).collect()
    };
    [
        ("report", format!("\n{}\n", quoted(&opening.join("\n\n")))),
        (
            "finding",
            format!(
                "\n{}\n",
                quoted(&format!("**1. {}", first.replacen('\n', "**\n", 1)))
            ),
        ),
    ]
}

#[test]
fn generated_blocks_of_the_readme_are_fresh() {
    let mut readme = read("README.md");
    for (name, block) in samples() {
        readme = markdown::with_block(&readme, name, &block);
    }
    fresh("README.md", &readme);
    let words = readme.split_whitespace().count();
    assert!(words <= MAX_WORDS, "README.md has {words} words");
}

#[test]
fn usage_page_is_fresh() {
    let help = said(root(), &["--help"]);
    let help: Vec<&str> = help.lines().map(str::trim_end).collect();
    let help = format!("```text\n{}\n```\n", help.join("\n").trim_end());
    let page = markdown::with_block(&read("docs/usage.md"), "help", &help);
    fresh("docs/usage.md", &page);
}

#[test]
fn command_without_installation_is_run_by_ci() {
    let readme = read("README.md");
    let commands: Vec<String> = markdown::blocks(&readme)
        .into_iter()
        .map(|(_, text)| text.trim().to_owned())
        .filter(|text| text.starts_with("cargo run"))
        .collect();
    assert_eq!(commands.len(), 1, "{commands:?}");
    // The run hands the arguments to a function, which builds the program as the README does.
    let run = read(".ci/run")
        .replace(" --locked", "")
        .replace(" --quiet", "");
    for command in commands {
        let (build, arguments) = command.split_once(" -- ").unwrap();
        for part in [format!("{build} -- \"$@\""), format!("program {arguments}")] {
            assert!(run.contains(&part), ".ci/run lacks `{part}`");
        }
    }
}

/// The picture in the README shows the page as it is: docs/images/take-picture renews both files.
#[test]
fn picture_of_the_page_is_fresh() {
    let page = said(root(), &["fixtures/net.sqlite", "--format", "html"]);
    // The style and the part of the page that is in the picture.
    let (_, style) = page.split_once("<style>").unwrap();
    let (shown, _) = style.split_once("id=\"finding-2\"").unwrap();
    let hash = format!("{:016x}\n", fnv(shown.as_bytes()));
    let file = "docs/images/report.hash";
    if std::env::var_os("PYPROF_ADVISE_PICTURE").is_some() {
        std::fs::write(root().join(file), &hash).unwrap();
    }
    assert_eq!(
        read(file),
        hash,
        "the page has changed: run docs/images/take-picture"
    );
    let picture = std::fs::read(root().join("docs/images/report.png")).unwrap();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() < 300_000);
}

/// FNV-1a, 64 bits: <http://www.isthe.com/chongo/tech/comp/fnv/>.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Each number of the changelog is that of the generated page that counts the same things.
#[test]
fn numbers_of_the_changelog_are_those_of_the_pages() {
    let changelog = read("CHANGELOG.md");
    for (page, things) in [
        ("docs/rules.md", " rules"),
        ("docs/costs.md", " operators have a known cost"),
        ("docs/gpus.md", " boards"),
    ] {
        let page = read(page);
        let counts = |line: &&str| line.starts_with(|c: char| c.is_ascii_digit());
        let line = page.lines().find(counts).unwrap();
        let number = line.split(' ').next().unwrap();
        assert!(
            changelog.contains(&format!("- {number}{things}")),
            "{number}{things}"
        );
    }
}

#[test]
fn every_output_format_has_a_row_in_its_page() {
    let section = read("docs/formats.md");
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
