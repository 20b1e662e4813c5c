//! Makes Rust of the files in `proto`, without a compiler of the protobuf project.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["csi.proto", "pluginregistration.proto"], ["proto"])?;
    let config = tonic_prost_build::configure();
    // Secrets, mount flags and whatever a driver answers must not reach a log by accident.
    config.skip_debug(["."]).compile_fds(files)?;
    Ok(())
}
