//! "Did you mean": suggests one similar name, or none.

/// Names that were renamed before version 0.1, old and new: rule ids, and keys of rule files.
/// An error for an old name suggests the new one.
const RENAMED: &[(&str, &str)] = &[
    (
        "communication/number-collectives",
        "communication/one-element-collectives",
    ),
    ("layers/gelu-written-out", "layers/gelu-unfused"),
    ("layers/norm-written-out", "layers/norm-unfused"),
    (
        "layers/products-with-one-input",
        "layers/projections-unfused",
    ),
    ("layers/rope-written-out", "layers/rope-unfused"),
    (
        "memory/materialised-broadcast",
        "memory/materialized-broadcast",
    ),
    ("profile/idle-not-evidence", "profile/idle-unreliable"),
    ("shapes/tile-quantisation", "shapes/tile-quantization"),
    ("enough", "require"),
    ("gather", "group_by"),
    ("not_judged", "skipped"),
    ("over", "for_each"),
    ("saves", "saving_kind"),
    ("sure", "min_fraction"),
];

/// The candidate that `wanted` was renamed to, or the nearest one if it is near enough to be a likely
/// misspelling.
///
/// Near means a normalized Damerau-Levenshtein similarity of at least 0.7 (cargo and clap use similar
/// cut-offs).
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted_lower = wanted.to_lowercase();
    let candidates: Vec<&str> = candidates.into_iter().collect();
    let renamed = RENAMED.iter().find(|(old, _)| *old == wanted_lower);
    if let Some((_, new)) = renamed
        && let Some(known) = candidates.iter().find(|name| *name == new)
    {
        return Some(known);
    }
    candidates
        .into_iter()
        .map(|c| {
            let lower = c.to_lowercase();
            let score = strsim::normalized_damerau_levenshtein(&wanted_lower, &lower);
            (score, c)
        })
        .filter(|(score, _)| *score >= 0.7)
        .max_by(|a, b| a.0.total_cmp(&b.0).then_with(|| b.1.cmp(a.1)))
        .map(|(_, c)| c)
}

/// `; did you mean `x`?` or an empty string, to append to a message.
pub fn did_you_mean<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> String {
    match nearest(wanted, candidates) {
        Some(name) => format!("; did you mean `{name}`?"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_similar_names_are_suggested() {
        let known = ["site.time_ns", "site.family", "gpu.sm_count"];
        assert_eq!(nearest("site.famliy", known), Some("site.family"));
        assert_eq!(nearest("site.time", known), Some("site.time_ns"));
        assert_eq!(nearest("weather", known), None);
        assert_eq!(did_you_mean("weather", known), "");
    }

    #[test]
    fn renamed_names_are_suggested_if_they_exist() {
        let known = ["for_each", "other", "layers/norm-unfused"];
        assert_eq!(nearest("over", known), Some("for_each"));
        assert_eq!(
            nearest("layers/norm-written-out", known),
            Some("layers/norm-unfused")
        );
        assert_eq!(nearest("sure", known), None);
    }
}
