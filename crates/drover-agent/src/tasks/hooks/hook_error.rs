//! Why a hook failed, and whether another try may help.

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
#[error("{hook}: {reason}")]
pub(crate) struct TaskHookError {
    pub(crate) hook: &'static str,
    pub(crate) reason: String,
    /// Whether another try may help.
    pub(crate) is_recoverable: bool,
}
