//! `cargo xtask machine`: runs tests in a small machine of its own, whose control groups are of version 2 only.
//!
//! A kernel that has bound controllers to hierarchies of version 1 gives them to no other tree, so that a host of that
//! kind cannot try what most nodes are. The machine is emulated by QEMU with a kernel from a package. Its root is the
//! host's, shared read-only and written to memory, so that every program and every build of the host is there; nothing
//! of the host changes. Emulation is about ten times slower than the host.

mod command;
mod parts;

pub use command::{MachineArgs, run};
