//! Recognizes credentials by the names of the variables, options, headers and members that hold them.

use rustc_hash::FxHashMap;

use super::forms;

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
const SECRET_ENDS: &[&str] = &["key", "auth", "pat", "pass", "pwd", "sas", "dsn"];

/// Maximum length in bytes of the name of a value in a text.
const LONGEST: usize = 80;

/// Whether a variable, a setting or a JSON key with this name contains a secret: `HF_TOKEN`, `apiKey`,
/// `AWS_ACCESS_KEY_ID`.
pub(super) fn is_secret_name(name: &str) -> bool {
    let parts = parts(name);
    let is = |part: &String, of: &[&str]| of.contains(&part.as_str());
    parts.iter().any(|p| is(p, SECRET_PARTS)) || parts.iter().skip(1).any(|p| is(p, SECRET_ENDS))
}

/// What the name of a value in the text of a program says about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    /// A secret.
    Secret,
    /// A secret, or a word of a model: `token`. Its value tells.
    Perhaps,
    /// A list of `name=value` up to the end of the line.
    Cookies,
    Nothing,
}

/// The kind of value that a name in a text has. In programs, `key_mask=` and `num_tokens=` are common, so
/// only environment variables in capitals and unambiguous names count.
pub(super) fn in_text(name: &str) -> Holds {
    /// Names and ends of names, in small letters without separators.
    const CERTAIN: &[&str] = &[
        "password",
        "passwd",
        "passphrase",
        "secret",
        "apikey",
        "apitoken",
        "accesskey",
        "accesskeyid",
        "accesstoken",
        "accountkey",
        "sharedaccesskey",
        "sharedaccesssignature",
        "secretkey",
        "secretaccesskey",
        "privatekey",
        "privkey",
        "authkey",
        "authtoken",
        "clientkey",
        "clientsecret",
        "servicekey",
        "applicationkey",
        "appkey",
        "databasekey",
        "dbkey",
        "dbpass",
        "encryptionkey",
        "signingkey",
        "hftoken",
        "bearertoken",
        "refreshtoken",
        "sessiontoken",
        "securitytoken",
        "csrftoken",
        "sastoken",
        "authorization",
        "amzsignature",
        "amzcredential",
        "googsignature",
        "dbpwd",
        "mysqlpwd",
    ];
    const PERHAPS: &[&str] = &[
        "token",
        "idtoken",
        "auth",
        "pass",
        "pwd",
        "sig",
        "signature",
        "credential",
        "credentials",
        "sessionid",
        "jwt",
        "bearer",
    ];
    if name.len() > LONGEST {
        return Holds::Nothing;
    }
    let small = name.bytes().filter(u8::is_ascii_alphanumeric);
    let small: String = small.map(|b| char::from(b.to_ascii_lowercase())).collect();
    let is = |list: &[&str]| list.contains(&small.as_str());
    if is(&["cookie", "setcookie"]) {
        return Holds::Cookies;
    }
    let capitals = name.len() > 3
        && name.bytes().any(|b| b.is_ascii_uppercase())
        && !name.bytes().any(|b| b.is_ascii_lowercase());
    if capitals && is_secret_name(name) || CERTAIN.iter().any(|end| small.ends_with(end)) {
        Holds::Secret
    } else if is(PERHAPS) {
        Holds::Perhaps
    } else {
        Holds::Nothing
    }
}

/// Whether an option of a command line with this name, without its dashes, is followed by a secret.
pub(super) fn is_secret_option(name: &str) -> bool {
    const ALONE: &[&str] = &["auth", "pass", "pwd", "sig"];
    is_secret_name(name) || ALONE.contains(&name) || in_text(name) == Holds::Secret
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
    known: FxHashMap<String, (NameMeaning, bool)>,
}

impl NameMeanings {
    pub(super) fn of(&mut self, name: &str) -> NameMeaning {
        self.both(name).0
    }

    /// Whether a value has to be looked at together with this name.
    pub(super) fn tells(&mut self, name: &str) -> bool {
        self.both(name).1
    }

    fn both(&mut self, name: &str) -> (NameMeaning, bool) {
        /// Maximum number of names in the cache; bounds the memory for a hostile file.
        const MOST: usize = 1 << 12;
        if let Some(known) = self.known.get(name) {
            return *known;
        }
        // In the bytes of a copy, a name is its last word, and no longer than that.
        let holds = |name: &str| in_text(name) != Holds::Nothing;
        let tells = holds(name) || holds(last_word(name)) || forms::known().names(name);
        let both = (meaning(name), tells);
        if self.known.len() < MOST {
            self.known.insert(name.to_owned(), both);
        }
        both
    }
}

/// The last word of a name, and of that at most as much as [`in_text`] looks at.
fn last_word(name: &str) -> &str {
    let inside = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let word = name.rsplit(|c| !inside(c)).next().unwrap_or(name);
    word.get(word.len().saturating_sub(LONGEST)..)
        .unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            "num_tokens",
            "key",
            "K",
            "KEY",
            "max_tokens",
            "pad_token",
            "cache_key",
        ] {
            assert_eq!(in_text(name), Holds::Nothing, "{name}");
        }
        for name in [
            "HF_TOKEN",
            "DB_PASSWORD",
            "MYSQL_PWD",
            "password",
            "my_db_password",
            "api_key",
            "X-Api-Key",
            "X-Amz-Signature",
            "AccountKey",
            "SharedAccessKey",
        ] {
            assert_eq!(in_text(name), Holds::Secret, "{name}");
        }
        assert_eq!(in_text("token"), Holds::Perhaps);
        assert_eq!(in_text("Set-Cookie"), Holds::Cookies);
    }
}
