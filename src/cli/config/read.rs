//! Reads a configuration and reports every mistake.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use ::toml::de::DeValue;

use super::keys::{KEYS, day};
use super::options::{Config, NameKind, RuleName};
use crate::base::diag::{Complaints, Source};
use crate::base::glob::Glob;
use crate::base::text::without_joiners;
use crate::base::toml::{self, Item, Table};
use crate::cli::args::{Color, Console, FailOn, GateArgs, ReportArgs, RuleArgs};
use crate::compare::Suppression;
use crate::formats::OutputFormat;

/// The valid part of a file's contents. `folder` contains the file.
pub(super) fn config(
    source: &Arc<Source>,
    folder: Option<&Path>,
    complaints: &Complaints,
) -> Config {
    let document = toml::parse(source, complaints);
    let root = document.root();
    root.check(KEYS, &[]);
    let reader = Reader { root, folder };
    reader.exclusive();
    reader.config()
}

struct Reader<'a> {
    root: Table<'a>,
    folder: Option<&'a Path>,
}

impl<'a> Reader<'a> {
    fn config(&self) -> Config {
        let root = &self.root;
        let settings = self.set();
        let mut names = self.names();
        let texts = settings.iter().map(|name| name.text.clone()).collect();
        names.extend(settings);
        Config {
            gpu: self.gpu(),
            rules: RuleArgs {
                paths: self.paths("rules"),
                select: root.get_texts("select"),
                ignore: root.get_texts("ignore"),
                set: texts,
            },
            costs: self.paths("costs"),
            classes: self.paths("classes"),
            report: ReportArgs {
                top: root.get_whole("top"),
                format: root
                    .get_str("format")
                    .and_then(|name| OutputFormat::named(name.value)),
                template: self.path("template"),
                source: self.path("source"),
                output: self.path("output"),
                max_chars: root.get_whole("max-chars"),
                for_pr: root.get_flag("for-pr"),
                program: None,
            },
            gates: GateArgs {
                fail_on: self.fail_on(),
                baseline: self.path("baseline"),
                suppressions: self.suppressions(),
            },
            console: Console {
                quiet: root.get_flag("quiet"),
                verbose: root.get_flag("verbose"),
                color: root.get_word("color", &Color::ALL),
            },
            names,
        }
    }

    /// The rules that are selected, ignored, set and suppressed, with their positions.
    fn names(&self) -> Vec<RuleName> {
        let list = |key: &str| match self.root.get(key).as_ref().map(Item::raw) {
            Some(DeValue::Array(items)) => items.iter().collect(),
            _ => Vec::new(),
        };
        let listed = [list("select"), list("ignore")].concat();
        let listed = listed.into_iter().filter_map(|item| match item.get_ref() {
            DeValue::String(text) => Some((text.as_ref(), item.span())),
            _ => None,
        });
        let set = match self.root.get("set").as_ref().map(Item::raw) {
            Some(DeValue::Table(rules)) => rules.iter().collect(),
            _ => Vec::new(),
        };
        let set = set
            .into_iter()
            .filter(|(_, thresholds)| matches!(thresholds.get_ref(), DeValue::Table(_)))
            .map(|(key, _)| (key.get_ref().as_ref(), key.span()));
        let rules = listed.chain(set);
        let rules = rules.map(|(text, span)| self.name(text.to_owned(), NameKind::Rule, span));
        let suppressed = list("suppress").into_iter().filter_map(|item| {
            let DeValue::Table(table) = item.get_ref() else {
                return None;
            };
            let rule = table.get("rule")?;
            let DeValue::String(text) = rule.get_ref() else {
                return None;
            };
            if text.trim().is_empty() {
                return None;
            }
            let rules = hidden_by(text).text().to_owned();
            Some(self.name(rules, NameKind::Suppression, rule.span()))
        });
        rules.chain(suppressed).collect()
    }

    fn name(&self, text: String, kind: NameKind, span: Range<usize>) -> RuleName {
        RuleName {
            text,
            kind,
            file: Arc::clone(self.root.source()),
            span,
        }
    }

    /// Reports keys that exclude each other.
    fn exclusive(&self) {
        let set = |key: &str| match self.root.get(key) {
            Some(value) if !matches!(value.raw(), DeValue::Boolean(false)) => Some(value),
            _ => None,
        };
        for (one, other) in [
            ("max-chars", "for-pr"),
            ("format", "template"),
            ("quiet", "verbose"),
        ] {
            if set(one).is_some()
                && let Some(value) = set(other)
            {
                value.complain(format!("`{one}` and `{other}` exclude each other"), "");
            }
        }
        let format = self.root.get("format");
        let format = format.as_ref().map(Item::raw);
        let other = matches!(format, Some(DeValue::String(word))
            if OutputFormat::named(word).is_none_or(|format| !format.can_shorten));
        for key in ["max-chars", "for-pr"] {
            if let Some(value) = set(key).filter(|_| other) {
                let title = format!("`{key}` shortens Markdown, and `format` is another one");
                value.complain(title, "");
            }
        }
    }

    /// The path for a relative path in the file, which is relative to the file's folder, not to the
    /// working directory.
    fn resolve(&self, path: &str) -> PathBuf {
        match self.folder.filter(|folder| !folder.as_os_str().is_empty()) {
            Some(folder) => folder.join(path),
            None => PathBuf::from(path),
        }
    }

    fn path(&self, key: &str) -> Option<PathBuf> {
        Some(self.resolve(self.root.get_str(key)?.value))
    }

    fn paths(&self, key: &str) -> Vec<PathBuf> {
        let texts = self.root.get_texts(key);
        texts.iter().map(|text| self.resolve(text)).collect()
    }

    /// The GPU: a name, or a path if it has the extension of a file.
    fn gpu(&self) -> Option<String> {
        let text = self.root.get_str("gpu")?.value;
        if !text.ends_with(".toml") {
            return Some(text.to_owned());
        }
        Some(self.resolve(text).to_string_lossy().into_owned())
    }

    fn fail_on(&self) -> Vec<FailOn> {
        let list = self.root.get_str_list("fail-on");
        let gates = list.iter().map(|text| FailOn::from_str(text.value));
        gates.filter_map(Result::ok).collect()
    }

    /// Parameters, a table per rule, in the syntax of `--set`.
    fn set(&self) -> Vec<RuleName> {
        let Some(rules) = self.root.get_table("set") else {
            return Vec::new();
        };
        let mut settings = Vec::new();
        for (rule, params) in rules.entries() {
            let Some(params) = params.table() else {
                continue;
            };
            for (param, value) in params.entries() {
                if let Some(text) = self.setting(&value) {
                    let text = format!("{}.{}={text}", rule.value, param.value);
                    settings.push(self.name(text, NameKind::Setting, param.span));
                }
            }
        }
        settings
    }

    fn setting(&self, value: &Item<'_>) -> Option<String> {
        match value.raw() {
            DeValue::String(text) => Some(text.to_string()),
            DeValue::Boolean(flag) => Some(flag.to_string()),
            DeValue::Integer(_) | DeValue::Float(_) => {
                let source = self.root.source();
                source.text.get(value.span()).map(str::to_owned)
            }
            DeValue::Array(_) => {
                let items = value.str_list()?;
                let items: Vec<String> = items.iter().map(|i| toml::quoted(i.value)).collect();
                Some(format!("[{}]", items.join(", ")))
            }
            DeValue::Datetime(_) | DeValue::Table(_) => {
                value.wrong_type("a number, a boolean, a string or a list of strings")
            }
        }
    }

    fn suppressions(&self) -> Vec<Suppression> {
        let tables = self.root.get_table_list("suppress");
        tables.iter().filter_map(suppression).collect()
    }
}

/// The rules whose findings a suppression hides. A category means all its rules, as for `--ignore`.
fn hidden_by(rule: &str) -> Glob {
    match rule.contains(['/', '*']) {
        true => Glob::new(rule),
        false => Glob::new(&format!("{rule}/*")),
    }
}

fn suppression(table: &Table<'_>) -> Option<Suppression> {
    let rule = table.get_str("rule")?.value;
    Some(Suppression {
        rule: hidden_by(rule),
        // Text copied from a rendered report may hold the invisible characters of its escapes.
        place: table
            .get_str("place")
            .map(|place| Glob::new(&without_joiners(place.value))),
        reason: table.get_str("reason")?.value.trim().to_owned(),
        until: table.get("until").and_then(|value| day(&value)),
    })
}

#[cfg(test)]
mod tests {
    use crate::base::date;
    use crate::formats::FORMATS;
    use proptest::prelude::*;

    use super::*;

    /// Keys and values, valid and invalid, in any combination.
    fn lines() -> impl Strategy<Value = String> {
        let keys = KEYS.iter().map(|k| k.name.to_owned()).collect::<Vec<_>>();
        let value = prop_oneof![
            Just("[]".to_owned()),
            Just("[['a'], {}]".to_owned()),
            Just("2026-13-01".to_owned()),
            Just("2026-12-31T10:00:00Z".to_owned()),
            Just("{ 'a/b' = { x = [1, 'y'] }, c = nan }".to_owned()),
            Just("[{ rule = '', reason = 5, until = 10:00:00 }]".to_owned()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>().prop_map(|n| n.to_string()),
            "[a-z/*%=0-9.\u{7f}\u{202e}]{0,9}".prop_map(|s| format!("{s:?}")),
            any::<String>(),
        ];
        let line = (prop::sample::select(keys), value).prop_map(|(k, v)| format!("{k} = {v}\n"));
        prop::collection::vec(line, 0..8).prop_map(|lines| lines.concat())
    }

    proptest! {
        #[test]
        fn arbitrary_files_are_accepted_or_reported(text in lines()) {
            crate::cli::config::round_trip(&text);
        }
    }

    fn read(text: &str) -> (Config, String) {
        read_at(text, Some(Path::new("ci")))
    }

    fn read_at(text: &str, folder: Option<&Path>) -> (Config, String) {
        let complaints = Complaints::new();
        let source = Source::new("pa.toml", text);
        let config = config(&source, folder, &complaints);
        (config, complaints.render(false))
    }

    #[test]
    fn paths_are_relative_to_the_file_and_gpu_names_are_unchanged() {
        let (config, complaints) = read(
            "gpu = 'v100'\nrules = ['mine', '/all/ours']\nbaseline = '../main.json'\noutput = 'a.md'\n",
        );
        assert_eq!(complaints, "");
        assert_eq!(config.gpu.as_deref(), Some("v100"));
        let rules = [PathBuf::from("ci/mine"), PathBuf::from("/all/ours")];
        assert_eq!(config.rules.paths, rules);
        assert_eq!(
            config.gates.baseline,
            Some(PathBuf::from("ci/../main.json"))
        );
        assert_eq!(config.report.output, Some(PathBuf::from("ci/a.md")));
        assert_eq!(read("gpu = 'b.toml'").0.gpu.as_deref(), Some("ci/b.toml"));
    }

    #[test]
    fn every_output_format_is_read_and_written() {
        for format in FORMATS {
            let line = format!("format = \"{}\"\n", format.name);
            let (config, complaints) = read(&line);
            assert_eq!(complaints, "");
            assert_eq!(config.report.format, Some(*format));
            assert!(crate::cli::config::dump(&config).contains(&line));
        }
    }

    #[test]
    fn parameters_are_converted_to_settings() {
        let (config, complaints) = read(
            "[set]\n\"precision/amp-off\".min_share = 0.10\n[set.'user/x']\nmost = 32_000\non = true\n\
             names = ['a', 'b']\nword = 'w'\n",
        );
        assert_eq!(complaints, "");
        let want = [
            "precision/amp-off.min_share=0.10",
            "user/x.most=32_000",
            "user/x.names=[\"a\", \"b\"]",
            "user/x.on=true",
            "user/x.word=w",
        ];
        let mut have = config.rules.set;
        have.sort();
        assert_eq!(have, want);
    }

    #[test]
    fn categories_select_all_their_rules_and_days_are_parsed() {
        let (config, complaints) = read(
            "[[suppress]]\nrule = 'precision'\nreason = ' known '\nuntil = 2026-12-31\n\
             [[suppress]]\nrule = 'a/b'\nplace = 'head'\nreason = 'x'\nuntil = '2027-01-01'\n",
        );
        assert_eq!(complaints, "");
        let [first, second] = config.gates.suppressions.as_slice() else {
            panic!("{config:?}");
        };
        assert_eq!(
            (first.rule.text(), first.reason.as_str()),
            ("precision/*", "known")
        );
        assert_eq!(first.until, date::parse("2026-12-31"));
        assert_eq!(second.until, date::parse("2027-01-01"));
    }
}
