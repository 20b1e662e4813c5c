//! Patterns of names in the agent's configuration.

/// Matches `*` with any text.
pub(crate) fn matches_glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text.strip_prefix(start).is_some_and(|tail| {
            (0..=tail.len()).filter(|n| tail.is_char_boundary(*n)).any(|n| matches_glob(rest, &tail[n..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_any_text() {
        for (pattern, text, wanted) in [
            ("AWS_*", "AWS_KEY", true),
            ("*_TOKEN", "MY_TOKEN", true),
            ("*A*B", "xAyB", true),
            ("PATH", "PATHS", false),
        ] {
            assert_eq!(matches_glob(pattern, text), wanted, "{pattern} {text}");
        }
    }
}
