//! libFuzzer on one target: `DROVER_FUZZ_TARGET=job_spec drover-fuzz FOLDER [libFuzzer's options]`.

#![no_main]

use std::io::Write as _;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use drover_fuzz::Target;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("DROVER_FUZZ_TARGET").unwrap_or_default();
    // The code under test catches the panics of a library; those that reach libFuzzer end it all the same.
    std::panic::set_hook(Box::new(|panic| {
        print(&panic.to_string());
    }));
    *drover_fuzz::by_name(&name).expect("DROVER_FUZZ_TARGET names a target")
});

/// The memory that an input took at most so far, in bytes.
static MOST_TAKEN: AtomicU64 = AtomicU64::new(0);

fuzz_target!(|data: &[u8]| {
    let taken = TARGET.read(data);
    if taken > MOST_TAKEN.fetch_max(taken, Ordering::Relaxed) {
        print(&format!("most bytes for an input: {taken}"));
    }
});

fn print(line: &str) {
    drop(std::io::stderr().write_all(format!("{line}\n").as_bytes()));
}

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    if TARGET.is_json
        && !seed.is_multiple_of(4)
        && let Some(changed) = drover_fuzz::mutate(&data[..size], max_size, u64::from(seed))
    {
        data[..changed.len()].copy_from_slice(&changed);
        return changed.len();
    }
    fuzzer_mutate(data, size, max_size)
});
