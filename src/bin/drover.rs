//! The user's command `drover`, also installed as `kubectl-drover`.

use std::process::ExitCode;

/// A simulation makes and frees millions of small objects, on every core.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    drover::cli::run(&args)
}
