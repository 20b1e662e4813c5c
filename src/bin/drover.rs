//! The user's command `drover`, also installed as `kubectl-drover`.

use std::process::ExitCode;

/// A simulation makes and frees millions of small objects, on every core.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How many milliseconds after it was freed memory is given back to the machine: mimalloc's `mi_option_purge_delay`,
/// for which its bindings have no name.
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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use drover_simulator::Commands;
    use expect_test::expect_file;

    #[test]
    fn the_reference_names_every_command() {
        let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/cli-reference.md");
        expect_file![document].assert_eq(&drover_cli::reference::markdown(drover_cli::command::<Commands>()));
    }

    #[test]
    fn exit_codes_are_of_commands_that_there_are() {
        let superfluous = drover_cli::reference::superfluous_codes(drover_cli::command::<Commands>());
        assert!(superfluous.is_empty(), "{superfluous:?}");
    }
}
