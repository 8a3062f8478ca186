//! "Did you mean": one near name, or none. A far suggestion is worse than no suggestion.

/// The candidate nearest to `wanted`, if it is near enough to be a likely slip.
///
/// Near means a normalised Damerau-Levenshtein similarity of at least 0.7 (cargo and clap use
/// similar cut-offs).
pub fn nearest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted_lower = wanted.to_lowercase();
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

/// `; did you mean `x`?` or nothing, ready to append to a message.
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
    fn near_is_suggested_far_is_not() {
        let known = ["site.time_ns", "site.family", "gpu.sm_count"];
        assert_eq!(nearest("site.famliy", known), Some("site.family"));
        assert_eq!(nearest("site.time", known), Some("site.time_ns"));
        assert_eq!(nearest("weather", known), None);
        assert_eq!(did_you_mean("weather", known), "");
    }
}
