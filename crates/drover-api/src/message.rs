//! Explanations for people: no longer than an object's status takes, and of many things the first few.

/// The longest explanation that a status takes, in characters.
pub const LIMIT: usize = 1024;

/// As much of an explanation as a status takes; one that is cut ends in `…`.
pub fn cut(message: impl Into<String>) -> String {
    let message = message.into();
    if message.chars().count() <= LIMIT {
        return message;
    }
    let mut short: String = message.chars().take(LIMIT - 1).collect();
    short.push('…');
    short
}

/// The first of these, and how many more there are: `a, b and 3 more`.
pub fn some_of(parts: impl IntoIterator<Item = impl AsRef<str>>, most: usize) -> String {
    let mut parts = parts.into_iter();
    let mut text = String::new();
    for part in parts.by_ref().take(most) {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(part.as_ref());
    }
    match parts.count() {
        0 => text,
        more => format!("{text} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_the_first_are_named_and_the_others_counted() {
        assert_eq!(some_of(["a", "b"], 2), "a, b");
        assert_eq!(some_of(["a", "b", "c", "d"], 2), "a, b and 2 more");
        assert_eq!(some_of(Vec::<String>::new(), 2), "");
    }
}
