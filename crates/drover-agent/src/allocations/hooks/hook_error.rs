//! Why a hook failed.

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
#[error("{hook}: {reason}")]
pub(crate) struct AllocHookError {
    pub(crate) hook: &'static str,
    pub(crate) reason: String,
}
