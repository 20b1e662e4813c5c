//! Why a network could not be made, seen or taken back.

use std::fmt::Display;

/// Why a network could not be made, seen or taken back: what was tried, and what the kernel or a plugin answered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NetworkError(pub String);

impl NetworkError {
    /// Says what was tried before what went wrong.
    pub(crate) fn because<E: Display>(what: impl Display) -> impl FnOnce(E) -> Self {
        move |error| Self(format!("{what}: {error}"))
    }
}
