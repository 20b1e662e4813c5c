//! Switches of the kernel, as the calling thread's network namespace has them.

use std::fs;

use crate::network_error::NetworkError;

/// Sets a switch below `/proc/sys`, unless it has this value.
pub(crate) fn set(name: &str, value: &str) -> Result<(), NetworkError> {
    let path = format!("/proc/sys/{name}");
    let failed = |error: std::io::Error| NetworkError(format!("{path} cannot be set to {value}: {error}"));
    if fs::read_to_string(&path).map_err(failed)?.trim() == value {
        return Ok(());
    }
    fs::write(&path, value).map_err(failed)
}
