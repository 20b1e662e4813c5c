//! The seeds of a run.

/// The seed of one stream of chances: a fault more in one does not move the others.
pub(super) fn stream_seed(seed: u64, stream: &str, number: u64) -> u64 {
    let mut mixed = seed ^ 0x9E37_79B9_7F4A_7C15;
    for byte in stream.bytes().map(u64::from).chain([number]) {
        mixed = (mixed ^ byte).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed ^= mixed >> 29;
    }
    mixed
}
