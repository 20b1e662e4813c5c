//! The user's command `drover`, also installed as `kubectl-drover`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    drover::cli::run(&args)
}
