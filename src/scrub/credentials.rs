//! Recognizes credentials by the prefixes that issuers publish for secret scanning, and by the names of
//! the variables that hold them.

use rustc_hash::FxHashMap;

/// The characters after the prefix of a credential.
#[derive(Clone, Copy)]
enum Tail {
    /// Letters, digits, `_` and `-`.
    Word,
    /// Capitals and digits.
    Capitals,
}

/// `(prefix, characters after it, their minimum number)`. Sources: the token formats GitHub, GitLab,
/// AWS, Hugging Face, OpenAI, Anthropic, Slack, Google, npm, PyPI, NVIDIA, Docker, Stripe, DigitalOcean
/// and Databricks document for secret scanning
/// (<https://docs.github.com/code-security/secret-scanning>).
const FORMS: &[(&str, Tail, usize)] = &[
    ("ghp_", Tail::Word, 20),
    ("gho_", Tail::Word, 20),
    ("ghu_", Tail::Word, 20),
    ("ghs_", Tail::Word, 20),
    ("ghr_", Tail::Word, 20),
    ("github_pat_", Tail::Word, 20),
    ("glpat-", Tail::Word, 16),
    ("hf_", Tail::Word, 20),
    ("api_org_", Tail::Word, 20),
    ("AKIA", Tail::Capitals, 16),
    ("ASIA", Tail::Capitals, 16),
    ("AIza", Tail::Word, 35),
    ("ya29.", Tail::Word, 20),
    ("sk-", Tail::Word, 20),
    ("sk_live_", Tail::Word, 16),
    ("rk_live_", Tail::Word, 16),
    ("xoxb-", Tail::Word, 10),
    ("xoxa-", Tail::Word, 10),
    ("xoxp-", Tail::Word, 10),
    ("xoxr-", Tail::Word, 10),
    ("xoxs-", Tail::Word, 10),
    ("npm_", Tail::Word, 30),
    ("pypi-", Tail::Word, 30),
    ("nvapi-", Tail::Word, 20),
    ("dckr_pat_", Tail::Word, 16),
    ("dop_v1_", Tail::Word, 30),
    ("dapi", Tail::Word, 32),
    ("eyJ", Tail::Word, 17),
];

/// The first bytes of all credential prefixes.
pub(super) fn first_bytes() -> impl Iterator<Item = u8> {
    let prefixes = FORMS.iter().map(|(prefix, ..)| prefix);
    prefixes.filter_map(|prefix| prefix.bytes().next())
}

/// Whether a byte may be part of a credential. JSON web tokens are three parts separated by dots.
fn belongs(tail: Tail, byte: u8) -> bool {
    match tail {
        Tail::Word => byte.is_ascii_alphanumeric() || b"_-.".contains(&byte),
        Tail::Capitals => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
    }
}

/// The length of the credential at the start of `text`, which is the start of a word.
pub(super) fn known_form(text: &[u8]) -> Option<usize> {
    let (prefix, tail, least) = FORMS
        .iter()
        .find(|(prefix, ..)| text.starts_with(prefix.as_bytes()))?;
    let rest = text.get(prefix.len()..)?;
    let run = |text: &[u8]| text.iter().take_while(|&&b| belongs(*tail, b)).count();
    // Only the beginning is checked, which keeps the search linear.
    let looked_at = rest.get(..LOOKED_AT).unwrap_or(rest);
    let length = run(looked_at);
    let beginning = looked_at.get(..length)?;
    // Random tokens contain digits; words and names of kernels rarely do.
    let random = beginning.iter().any(u8::is_ascii_digit);
    let jwt = *prefix != "eyJ" || beginning.contains(&b'.');
    (length >= *least && random && jwt).then(|| prefix.len() + run(rest))
}

/// Maximum number of bytes of a word that are checked.
const LOOKED_AT: usize = 512;

/// Parts of names of secrets.
const SECRET_PARTS: &[&str] = &[
    "token",
    "secret",
    "password",
    "passwd",
    "passphrase",
    "passcode",
    "credential",
    "credentials",
    "apikey",
    "authorization",
    "cookie",
];
/// Parts of names of secrets that count only after another part: a `key` alone is a tensor of
/// attention.
const SECRET_ENDS: &[&str] = &["key", "auth", "pat", "pass", "sas", "dsn"];

/// Whether a variable, a setting or a JSON key with this name contains a secret: `HF_TOKEN`, `apiKey`,
/// `AWS_ACCESS_KEY_ID`.
pub(super) fn is_secret_name(name: &str) -> bool {
    let parts = parts(name);
    let is = |part: &String, of: &[&str]| of.contains(&part.as_str());
    parts.iter().any(|p| is(p, SECRET_PARTS)) || parts.iter().skip(1).any(|p| is(p, SECRET_ENDS))
}

/// Whether a variable in the text of a program contains a secret. In programs, `key_mask=` and
/// `num_tokens=` are common, so only environment variables in capitals and unambiguous names count.
pub(super) fn is_secret_in_text(name: &str) -> bool {
    const PLAIN: &[&str] = &[
        "password",
        "passwd",
        "passphrase",
        "secret",
        "api_key",
        "apikey",
        "api-key",
        "access_key",
        "secret_key",
        "private_key",
        "access_token",
        "auth_token",
        "hf_token",
        "bearer_token",
        "client_secret",
        "authorization",
    ];
    let capitals = name.len() > 3
        && name.bytes().any(|b| b.is_ascii_uppercase())
        && !name.bytes().any(|b| b.is_ascii_lowercase());
    if capitals {
        return is_secret_name(name);
    }
    PLAIN.iter().any(|plain| name.eq_ignore_ascii_case(plain))
}

/// The lower-case parts of a name: `HF_TOKEN`, `hf-token`, `hfToken`.
fn parts(name: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut before = ' ';
    for c in name.chars() {
        let hump = c.is_ascii_uppercase() && before.is_ascii_lowercase();
        if hump || !c.is_ascii_alphanumeric() {
            parts.push(String::new());
        }
        if c.is_ascii_alphanumeric()
            && let Some(last) = parts.last_mut()
        {
            last.push(c.to_ascii_lowercase());
        }
        before = c;
    }
    parts.retain(|p| !p.is_empty());
    parts
}

/// Names of variables that contain the name of a person.
const USER_NAMES: &[&str] = &[
    "user",
    "username",
    "logname",
    "login",
    "sudouser",
    "exportuser",
    "slurmjobuser",
    "slurmuser",
    "twuser",
    "owner",
    "email",
    "mail",
    "author",
    "gitauthorname",
    "gitauthoremail",
    "unixname",
    "ldap",
];
/// Names of variables that contain the name of a machine.
const HOST_NAMES: &[&str] = &[
    "host",
    "hostname",
    "exporthost",
    "nodename",
    "node",
    "slurmdnodename",
    "slurmsubmithost",
    "computername",
    "machinename",
    "machine",
    "devicedisplayname",
    "displayname",
    "displaydevicename",
    "fqdn",
    "masteraddr",
    "twtaskhostname",
    "hostip",
    "ipaddress",
];
/// Names of variables that contain a folder of a person.
const PLACE_NAMES: &[&str] = &[
    "home",
    "cwd",
    "pwd",
    "oldpwd",
    "workdir",
    "workingdir",
    "userprofile",
];
/// Names of members that contain an environment.
const ENVIRONMENTS: &[&str] = &[
    "env",
    "envs",
    "environ",
    "environment",
    "envvars",
    "environmentvariables",
    "envvar",
    "environmentvariable",
    "osenviron",
    "jobenv",
    "jobenvironment",
];

/// The kind of value that a name has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NameMeaning {
    Secret,
    User,
    Host,
    Place,
    Environment,
    Nothing,
}

/// The kind of value of a setting or a JSON key with this name. Of `PROCESS_0:USER_NAME`, only the last
/// part counts.
pub(super) fn meaning(name: &str) -> NameMeaning {
    let last = name.rsplit([':', '.', '/']).next().unwrap_or(name);
    let joined: String = parts(last).concat();
    let is = |of: &[&str]| of.contains(&joined.as_str());
    if is(ENVIRONMENTS) {
        NameMeaning::Environment
    } else if is_secret_name(last) {
        NameMeaning::Secret
    } else if is(USER_NAMES) {
        NameMeaning::User
    } else if is(HOST_NAMES) {
        NameMeaning::Host
    } else if is(PLACE_NAMES) {
        NameMeaning::Place
    } else {
        NameMeaning::Nothing
    }
}

/// Caches the meanings of names.
#[derive(Debug, Default)]
pub(super) struct NameMeanings {
    known: FxHashMap<String, NameMeaning>,
}

impl NameMeanings {
    pub(super) fn of(&mut self, name: &str) -> NameMeaning {
        /// Maximum number of names in the cache; bounds the memory for a hostile file.
        const MOST: usize = 1 << 12;
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        let meaning = meaning(name);
        if self.known.len() < MOST {
            self.known.insert(name.to_owned(), meaning);
        }
        meaning
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_recognized_by_their_form() {
        for text in [
            "ghp_0123456789abcdefghijABCDEFGHIJ012345",
            "hf_abcdefghijklmnopqrstuvwxyz0123456789",
            "AKIAIOSFODNN7EXAMPLE rest",
            "sk-proj-0123456789abcdefghij",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        ] {
            assert!(known_form(text.as_bytes()).is_some(), "{text}");
        }
        for text in [
            "hf_",
            "hf_transformers_modeling_llama_attention",
            "sk-learn",
            "AKIA",
            "eyJhbGciOiJIUzI1NiJ9",
            "npm_run",
        ] {
            assert_eq!(known_form(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn names_are_classified_by_the_kind_of_their_value() {
        for name in [
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "wandbApiKey",
            "db.password",
            "X_PAT",
        ] {
            assert_eq!(meaning(name), NameMeaning::Secret, "{name}");
        }
        for (name, what) in [
            ("PROCESS_0:USER_NAME", NameMeaning::User),
            ("DEVICE_DISPLAY_NAME", NameMeaning::Host),
            ("host_name", NameMeaning::Host),
            ("HOME", NameMeaning::Place),
            ("job_env", NameMeaning::Environment),
            ("key", NameMeaning::Nothing),
            ("num_tokens", NameMeaning::Nothing),
            ("name", NameMeaning::Nothing),
        ] {
            assert_eq!(meaning(name), what, "{name}");
        }
    }

    #[test]
    fn common_program_variables_are_not_secrets() {
        for name in [
            "key_padding_mask",
            "token",
            "num_tokens",
            "key",
            "K",
            "KEY",
            "max_tokens",
        ] {
            assert!(!is_secret_in_text(name), "{name}");
        }
        for name in ["HF_TOKEN", "DB_PASSWORD", "password", "api_key"] {
            assert!(is_secret_in_text(name), "{name}");
        }
    }
}
