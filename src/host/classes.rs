//! What functions do, from the data file `classes.toml`.

use std::sync::LazyLock;

use serde::Deserialize;

use super::model::HostLine;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Classes {
    class: Vec<Class>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    #[serde(default)]
    files: Vec<String>,
    #[serde(default)]
    functions: Vec<String>,
}

static CLASSES: LazyLock<Option<Classes>> =
    LazyLock::new(|| toml::from_str(include_str!("classes.toml")).ok());

/// What a function or line does, in a few words; `None` where it is not known.
pub fn class_of(line: &HostLine) -> Option<&'static str> {
    let classes = CLASSES.as_ref()?;
    let file = line.file.replace('\\', "/");
    // `{method 'item' of 'torch._C.TensorBase' objects}`, `<built-in method time.sleep>`.
    let function = line.function.trim_matches(['{', '}', '<', '>']);
    let name = match function.strip_prefix("method '") {
        Some(method) => method.split('\'').next().unwrap_or(method),
        None => function.rsplit(['.', ' ']).next().unwrap_or(function),
    };
    let found = classes.class.iter().find(|class| {
        class.files.iter().any(|part| file.contains(part.as_str()))
            || class.functions.iter().any(|function| function == name)
    });
    found.map(|class| class.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_have_classes() {
        assert!(CLASSES.is_some());
        for (file, function, class) in [
            (
                "",
                "{method 'item' of 'torch._C.TensorBase' objects}",
                Some("synchronizing with the GPU"),
            ),
            ("", "<built-in method time.sleep>", Some("waiting")),
            (
                "/x/site-packages/PIL/Image.py",
                "open",
                Some("decoding or augmenting"),
            ),
            ("train.py", "main", None),
        ] {
            let line = HostLine {
                file: file.to_owned(),
                function: function.to_owned(),
                ..HostLine::default()
            };
            assert_eq!(class_of(&line), class, "{function}");
        }
    }
}
