//! `cargo xtask record`: the picture of a roll-out in README, drawn from a real one.
//!
//! `session` starts drover and types the commands in a terminal, `frames` finds what stood on the screen and when,
//! `svg` draws that as one picture that moves by CSS alone.

mod frames;
mod session;
mod svg;

pub use session::run;
