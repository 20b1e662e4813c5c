//! `cargo xtask up`, `down` and `status`: a whole drover on this machine, under one data folder.
//!
//! One process, the *session*, is the parent of everything and stays: in the foreground, or in the background with
//! `--detach`, where the command that was typed only shows what the session reports. What runs is written down as
//! process ids with start times, so that `down` and `status` work from anywhere and never touch a stranger. The
//! folder's layout is [`Layout`]'s.

mod args;
mod build;
mod down;
mod earlier;
mod examples;
mod gateway;
mod layout;
mod outlook;
mod rights;
mod services;
mod session;
mod settings;
mod shutdown;
mod state;
mod status;

pub use args::UpArgs;
pub use down::{DownArgs, down};
pub use layout::Layout;
pub use session::{Session, up};
pub use status::{StatusArgs, status};
