//! The user's command `drover`, also installed as `kubectl-drover`.

use std::process::ExitCode;

/// A simulation makes and frees millions of small objects, on every core.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many milliseconds after it was freed memory is given back to the machine: mimalloc's `mi_option_purge_delay`, for which its
/// bindings have no name.
const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;

fn main() -> ExitCode {
    // A command is soon over, and what one run of a simulation has freed the next one needs again.
    #[expect(unsafe_code, reason = "the allocator's options have no safe interface")]
    // SAFETY: nothing else sets or reads options, and there is one thread.
    unsafe {
        libmimalloc_sys::mi_option_set(PURGE_DELAY, -1);
    }
    let args: Vec<_> = std::env::args_os().collect();
    drover_cli::run::<drover_simulator::Commands>(&args)
}
