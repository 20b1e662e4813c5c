//! The channels of `v5.channel.k8s.io`, by which a command's connection carries several streams: each message begins
//! with the number of its own.

/// For the command's standard input.
pub const STDIN: u8 = 0;
/// Of its standard output.
pub const STDOUT: u8 = 1;
/// Of its standard error.
pub const STDERR: u8 = 2;
/// Of the last message, a `Status`.
pub const ERROR: u8 = 3;
/// For the size of its terminal.
pub const RESIZE: u8 = 4;
/// Of v5: the channel that is named after it has ended.
pub const CLOSE: u8 = 255;
