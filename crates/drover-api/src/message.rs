//! Explanations for people in an object's status: no longer than its schema lets them be.

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
