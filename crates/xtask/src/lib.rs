//! The project's own commands.
//!
//! They turn the tree into files (`crds`), a running system (`up`, `down`, `status`) or a verdict (`test`, `bench`,
//! `tidy`, `ci`). What tests start too is in `drover-testkit`. Nothing here decides anything about jobs: it must never
//! know what a scheduler does.

pub mod bench;
pub mod ci;
pub mod cluster;
pub mod crds;
pub mod docs;
pub mod figures;
pub mod fuzz;
pub mod machine;
pub mod mutants;
pub mod record;
pub mod test_runner;
pub mod tidy;
pub mod up;

mod detach;
mod interruption;
