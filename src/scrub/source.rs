//! Removes private text from lines of source code.

use super::redactor::Redactor;

/// Quotation marks of Python strings.
const QUOTES: [char; 2] = ['"', '\''];

/// Replaces credentials, addresses and names in lines of one source file, by the forms that
/// [`scrub`](super::scrub) knows and by what the file assigns to names such as `password`.
#[derive(Debug)]
pub struct SourceCleaner(Redactor);

impl SourceCleaner {
    /// Learns from the whole file which strings are secrets.
    pub fn of(text: &str) -> SourceCleaner {
        let mut redactor = Redactor::default();
        redactor.learn_from_text(text);
        for line in text.lines() {
            for (name, value) in assigned(line) {
                redactor.learn(&name, value);
            }
        }
        redactor.build_index();
        SourceCleaner(redactor)
    }

    /// A line of the file with everything private replaced.
    pub fn clean(&self, line: &str) -> String {
        self.0.clean(line).into_owned()
    }
}

/// Strings of a line with the names they are assigned to, in capitals: `token = "x"`, `token="x"`,
/// `"token": "x"`, `token: str = "x"`.
fn assigned(line: &str) -> Vec<(String, &str)> {
    let mut pairs = Vec::new();
    let mut rest = line;
    let mut before = String::new();
    while let Some(at) = rest.find(QUOTES) {
        let (lead, from) = rest.split_at(at);
        before.push_str(lead);
        let Some(quote) = from.chars().next() else {
            break;
        };
        let from = from.get(quote.len_utf8()..).unwrap_or_default();
        let end = from.find(quote).unwrap_or(from.len());
        let value = from.get(..end).unwrap_or_default();
        for name in names(&before) {
            pairs.push((name, value));
        }
        // A string is the name of what follows it in a dictionary.
        before.push_str(value);
        rest = from.get(end + quote.len_utf8()..).unwrap_or_default();
    }
    pairs
}

/// The last names before a string, in capitals: those of the assignment and of its annotation.
fn names(before: &str) -> Vec<String> {
    /// Separators that are looked past: a line may be a list of a thousand strings.
    const MOST: usize = 80;
    let words = before.rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let words = words.take(MOST).filter(|word| !word.is_empty());
    words.take(2).map(str::to_ascii_uppercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_of_a_file_are_removed_from_its_lines() {
        let secrets = [
            "password = \"hunter2-long\"",
            "login(token='correct-horse-battery')",
            "cfg = {\"api_key\": \"q9w8e7r6t5y4u3\", \"size\": 3}",
            "SECRET_KEY: str = \"zxcvbnm1234567\"",
            "os.environ[\"HF_TOKEN\"] = \"hf_abcdefghijklmnopqrstuvwxyz\"",
            "x = \"ghp_abcdefghijklmnopqrstuvwxyz0123456789\"",
            "open('/home/alice/train.py')",
        ];
        let text = secrets.join("\n");
        let cleaner = SourceCleaner::of(&text);
        let clean: Vec<String> = text.lines().map(|line| cleaner.clean(line)).collect();
        let clean = clean.join("\n");
        for gone in [
            "hunter2",
            "correct-horse",
            "q9w8e7",
            "zxcvbnm",
            "hf_abc",
            "ghp_abc",
            "alice",
        ] {
            assert!(!clean.contains(gone), "{gone} in\n{clean}");
        }
        assert!(clean.contains("\"size\": 3"), "{clean}");
    }

    #[test]
    fn code_without_secrets_is_unchanged() {
        let text = "x = self.lm_head(h)  # logits\nname = \"resnet50\"\nreturn F.relu(x)";
        let cleaner = SourceCleaner::of(text);
        for line in text.lines() {
            assert_eq!(cleaner.clean(line), line);
        }
    }
}
