//! What is called of the API server.

/// What is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Read,
    Create,
    Update,
    Patch,
    Delete,
}
