//! What images are for: this machine, in the words of registries.

use drover_containerd::api::types::Platform;

/// This machine.
pub(super) fn platform() -> Platform {
    Platform { os: "linux".to_owned(), architecture: architecture().to_owned(), ..Platform::default() }
}

/// Its processor.
pub(super) fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
