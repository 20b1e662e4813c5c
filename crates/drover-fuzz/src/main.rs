//! libFuzzer on one target: `DROVER_FUZZ_TARGET=job_spec drover-fuzz FOLDER [libFuzzer's options]`.

#![no_main]

use std::sync::LazyLock;

use drover_fuzz::Target;
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("DROVER_FUZZ_TARGET").unwrap_or_default();
    // The code under test catches the panics of a library; those that reach libFuzzer end it all the same.
    std::panic::set_hook(Box::new(|panic| {
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{panic}\n").as_bytes());
    }));
    *drover_fuzz::by_name(&name).expect("DROVER_FUZZ_TARGET names a target")
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));

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
