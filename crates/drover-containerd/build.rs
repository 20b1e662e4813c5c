//! Makes Rust of the files in `proto`, without a compiler of the protobuf project.

/// What drover calls, and the messages that travel inside of others.
const FILES: [&str; 13] = [
    "services/containers/v1/containers.proto",
    "services/content/v1/content.proto",
    "services/diff/v1/diff.proto",
    "services/images/v1/images.proto",
    "services/leases/v1/leases.proto",
    "services/snapshots/v1/snapshots.proto",
    "services/streaming/v1/streaming.proto",
    "services/tasks/v1/tasks.proto",
    "services/transfer/v1/transfer.proto",
    "services/version/v1/version.proto",
    "types/runc/options/oci.proto",
    "types/transfer/imagestore.proto",
    "types/transfer/registry.proto",
];

/// Messages of streams.
const STREAMS: [&str; 2] = ["types/transfer/importexport.proto", "types/transfer/streaming.proto"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let mut files = protox::compile(FILES.into_iter().chain(STREAMS), ["proto"])?;
    // What comments indent would be taken for examples in Rust.
    files.file.iter_mut().for_each(|file| file.source_code_info = None);
    let config = tonic_prost_build::configure().build_server(false).include_file("containerd_api.rs");
    // A root is handed to the process that makes the container.
    let config = config.type_attribute(".containerd.types.Mount", "#[derive(serde::Serialize, serde::Deserialize)]");
    // What a registry gets of a user must not reach a log by accident.
    config.skip_debug([".containerd.types.transfer.AuthResponse"]).compile_fds(files)?;
    Ok(())
}
