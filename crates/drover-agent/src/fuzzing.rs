//! The agent's readers of others' bytes as functions of bytes, for `drover-fuzz`.

use crate::{csi, socket, state};

/// A state file: as an image of its pages when the bytes are no JSON, else with these records.
///
/// # Panics
/// When it reads a record that it does not write again as it was.
pub fn state_file(data: &[u8]) {
    state::fuzz(data);
}

/// What one client sends to the agent's socket.
///
/// # Panics
/// When there is no place for files of its own.
pub fn socket(data: &[u8]) {
    socket::fuzz(data);
}

/// What a driver answers to each call that the agent makes: the status of gRPC, then the message.
///
/// # Panics
/// When there is no place for its socket.
pub fn csi_answers(data: &[u8]) {
    csi::fuzz(data);
}
