//! Bodies of requests.

use serde::de::DeserializeOwned;

use crate::fault::Fault;

/// Reads a body; an empty one, and `null`, is one without fields.
///
/// # Errors
/// 400 for what is no JSON, or no such object.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Fault> {
    let text = body.trim_ascii();
    let text: &[u8] = if text.is_empty() || text == b"null" { b"{}" } else { text };
    serde_json::from_slice(text).map_err(|error| Fault::bad(format!("the body cannot be read: {error}")))
}

/// Checks that the id in a body is that of the path.
///
/// # Errors
/// 400 where it is another one; where it is missing too, if it is needed.
pub(super) fn check_id(field: &str, in_body: &str, in_path: &str, is_needed: bool) -> Result<(), Fault> {
    if in_body == in_path || (in_body.is_empty() && !is_needed) {
        return Ok(());
    }
    let what = if in_body.is_empty() { "is missing".to_owned() } else { format!("is {in_body:?}") };
    Err(Fault::bad(format!("{field} {what}, and the path names {in_path:?}: give that one")))
}
