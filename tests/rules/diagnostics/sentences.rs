//! Checks that every message has a case: each message in the loaders must have been printed.

use std::fs;
use std::path::Path;

use super::{about_paths, cases};

/// The files that contain the loaders' messages.
const FILES: &[&str] = &[
    "src/base/cel/mod.rs",
    "src/base/cel/check.rs",
    "src/base/cel/syntax.rs",
    "src/base/diag.rs",
    "src/base/schema.rs",
    "src/base/toml.rs",
    "src/cost/user/argument.rs",
    "src/cost/user/names.rs",
    "src/cost/user/read.rs",
    "src/gpu/keys.rs",
    "src/gpu/load.rs",
    "src/judge/check.rs",
    "src/judge/edit.rs",
    "src/judge/examples.rs",
    "src/judge/load.rs",
    "src/judge/read.rs",
    "src/judge/rule_set.rs",
    "src/judge/template.rs",
    "src/judge/test_cases.rs",
];

/// Messages that no file can provoke, with the reason.
const NEVER: &[(&str, &str)] = include!("unreachable_messages.in");

/// The string literals of a source file that are messages: two words at least, outside comments, tests
/// and the documentation in tables.
fn sentences(text: &str) -> Vec<String> {
    let code = text
        .split("\n#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let mut found = Vec::new();
    let lines = code
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n");
    let mut characters = code.char_indices().peekable();
    while let Some((start, c)) = characters.next() {
        if c == '\'' {
            // A character such as '"', or a lifetime.
            let rest = &code[start + 1..];
            if rest.starts_with("\"'") {
                characters.next();
                characters.next();
            }
            continue;
        }
        if c != '"' {
            continue;
        }
        let before = code[..start].trim_end();
        let documents = ["doc:", "usage:"].iter().any(|w| before.ends_with(w));
        let mut literal = String::new();
        while let Some((_, c)) = characters.next() {
            match c {
                '"' => break,
                '\\' => match characters.next() {
                    Some((_, '\n')) => {
                        while characters.peek().is_some_and(|(_, c)| c.is_whitespace()) {
                            characters.next();
                        }
                    }
                    Some((_, 'n')) => literal.push('\n'),
                    Some((_, c)) => literal.push(c),
                    None => break,
                },
                c => literal.push(c),
            }
        }
        let words = literal
            .split_whitespace()
            .filter(|w| w.chars().any(char::is_alphabetic));
        if words.count() >= 2 && !documents {
            found.push(literal);
        }
    }
    found
}

/// The fixed parts of a format string.
fn pieces(literal: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut inside = false;
    let mut characters = literal.chars().peekable();
    while let Some(c) = characters.next() {
        match c {
            '{' if characters.peek() == Some(&'{') => {
                characters.next();
                pieces.last_mut().unwrap().push('{');
            }
            '}' if !inside && characters.peek() == Some(&'}') => {
                characters.next();
                pieces.last_mut().unwrap().push('}');
            }
            '{' => {
                inside = true;
                pieces.push(String::new());
            }
            '}' => inside = false,
            c if !inside => pieces.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    pieces.retain(|p| !p.is_empty());
    pieces
}

fn said_in(line: &str, pieces: &[String]) -> bool {
    let mut from = 0;
    pieces
        .iter()
        .all(|piece| match line[from..].find(piece.as_str()) {
            Some(at) => {
                from += at + piece.len();
                true
            }
            None => false,
        })
}

#[test]
fn every_loader_message_has_a_case() {
    let mut said: Vec<String> = Vec::new();
    for file in ["rule.txt", "cost.txt", "gpu.txt"] {
        said.extend(cases(file).into_iter().map(|case| case.said));
    }
    said.extend(about_paths().into_iter().map(|(_, said)| said));
    let lines: Vec<&str> = said.iter().flat_map(|s| s.lines()).collect();
    let mut unsaid = Vec::new();
    let mut count = 0;
    let mut excused = vec![false; NEVER.len()];
    for file in FILES {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        for sentence in sentences(&text) {
            let pieces = pieces(&sentence);
            if pieces.is_empty() {
                continue;
            }
            count += 1;
            let heard = lines.iter().any(|line| said_in(line, &pieces));
            let excuse = NEVER.iter().position(|(known, _)| *known == sentence);
            match (heard, excuse) {
                (false, Some(at)) => excused[at] = true,
                (false, None) => unsaid.push(format!("{file}: {sentence:?}")),
                (true, _) => {}
            }
        }
    }
    assert!(
        count > 150,
        "only {count} sentences were found: did the loaders move?"
    );
    assert!(
        unsaid.is_empty(),
        "no case in tests/rules/diagnostics/*.txt provokes\n{}",
        unsaid.join("\n")
    );
    for ((sentence, why), excused) in NEVER.iter().zip(excused) {
        assert!(
            !why.is_empty() && excused,
            "no longer needed in NEVER: {sentence:?}"
        );
    }
}
