//! `cargo xtask image`: drover's container image as an OCI archive, without a container daemon.
//!
//! One layer with one static program, `droverd`, which every role runs, the supervisor too. The same commit gives the same bytes:
//! times come from `SOURCE_DATE_EPOCH` or the commit, paths of this machine are mapped away, entries have a fixed order and owner.
//! Must never know how the image is run.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cargo;
use crate::progress::{Progress, Step};
use crate::up::Profile;
use crate::workspace;

/// The image's name; a full one, because container runtimes complete short ones differently.
pub const REPOSITORY: &str = "drover.dev/droverd";
/// Who runs in the image unless a pod says otherwise: nobody in particular, and not root.
const USER: &str = "65532:65532";

/// What the image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Platform {
    /// 64-bit x86.
    Amd64,
}

impl Platform {
    /// The name in image manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
        }
    }
}

/// What `image` is told.
#[derive(Debug, Clone, Args)]
pub struct ImageArgs {
    /// The archive to write [default: target/image/droverd-PLATFORM.tar]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The full name without a tag
    #[arg(long, default_value = REPOSITORY)]
    pub repository: String,
    /// The tag
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    pub tag: String,
    /// What it is for
    #[arg(long, value_enum, default_value = "amd64")]
    pub platform: Platform,
    /// How droverd is built
    #[arg(long, value_enum, default_value = "release")]
    pub profile: Profile,
}

/// `cargo xtask image`: returns the path of the archive.
///
/// # Errors
/// When the target is not installed, droverd does not build, or the archive cannot be written.
pub fn run(args: &ImageArgs, progress: &Progress) -> Result<PathBuf> {
    let program = build(args.platform, args.profile, progress)?;
    let step = progress.step("writing the image");
    let default = || workspace::root().join(format!("target/image/droverd-{}.tar", args.platform.name()));
    let output = args.output.clone().unwrap_or_else(default);
    let name = format!("{}:{}", args.repository, args.tag);
    let content = fs::read(&program).with_context(|| format!("reading {}", program.display()))?;
    let archive = of_program(&name, args.platform, "droverd", &content)?;
    let folder = output.parent().with_context(|| format!("{} has no folder", output.display()))?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    workspace::write_with_mode(&output, &archive, 0o644)?;
    let digest = workspace::hex(&Sha256::digest(&archive)[..8]);
    step.done(format!("{name}, {} KiB, {digest}", archive.len() / 1024));
    Ok(output)
}

/// The archive of an image that holds one static program and runs it.
///
/// # Errors
/// When the time of the commit is unknown.
pub fn of_program(name: &str, platform: Platform, program: &str, content: &[u8]) -> Result<Vec<u8>> {
    let (seconds, revision) = (source_date()?, workspace::commit());
    let image = Image { name: name.to_owned(), platform, program: program.to_owned(), seconds, revision };
    image.archive(content)
}

/// Builds the static program.
fn build(platform: Platform, profile: Profile, progress: &Progress) -> Result<PathBuf> {
    let step = progress.step(format!("building droverd for {}", platform.target()));
    install_target(platform, &step)?;
    let mut args = vec!["build", "--package", "drover", "--bin", "droverd", "--target", platform.target()];
    if profile == Profile::Release {
        args.push("--release");
    }
    let built = cargo::build_with(&args, &environment(platform)?, &step)?;
    let droverd = built.into_iter().find(|built| built.target == "droverd").context("cargo built no droverd")?;
    step.done("");
    Ok(droverd.executable)
}

fn install_target(platform: Platform, step: &Step) -> Result<()> {
    let target = platform.target();
    let rustup = |args: &[&str]| {
        let mut command = std::process::Command::new("rustup");
        command.args(args).current_dir(workspace::root()).output()
    };
    let installed = rustup(&["target", "list", "--installed"]);
    let instead = || format!("running rustup; without rustup, install Rust's standard library for {target}");
    let installed = installed.with_context(instead)?;
    if String::from_utf8_lossy(&installed.stdout).lines().any(|line| line.trim() == target) {
        return Ok(());
    }
    step.detail(format!("rustup target add {target}"));
    let added = rustup(&["target", "add", target]).with_context(instead)?;
    if !added.status.success() {
        bail!("rustup target add {target}: {}", String::from_utf8_lossy(&added.stderr).trim());
    }
    Ok(())
}

/// The C compiler of the machine makes code for the same processor; it uses nothing of its own library in ours.
fn environment(platform: Platform) -> Result<Vec<(String, String)>> {
    let target = platform.target();
    let under = target.replace('-', "_");
    let mut flags = vec![remap(&workspace::root(), "/drover")];
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = named("HOME").context("HOME is not set: cargo needs it")?;
    flags.push(remap(&named("CARGO_HOME").unwrap_or_else(|| home.join(".cargo")), "/cargo"));
    Ok(vec![
        (format!("CC_{under}"), std::env::var("CC").unwrap_or_else(|_| "cc".to_owned())),
        (format!("CARGO_TARGET_{}_RUSTFLAGS", under.to_uppercase()), flags.join(" ")),
    ])
}

fn remap(from: &Path, to: &str) -> String {
    format!("--remap-path-prefix={}={to}", from.display())
}

/// The time of everything in the image, in seconds since 1970.
fn source_date() -> Result<u64> {
    if let Some(text) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let text = text.to_string_lossy().into_owned();
        return text.parse().with_context(|| format!("SOURCE_DATE_EPOCH: {text:?} is no number of seconds since 1970"));
    }
    let mut git = std::process::Command::new("git");
    let output = git.args(["log", "-1", "--format=%ct"]).current_dir(workspace::root()).output();
    let output = output.context("asking git for the time of the commit; without git, set SOURCE_DATE_EPOCH")?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.parse().with_context(|| "git knows no commit here: set SOURCE_DATE_EPOCH".to_owned())
}

/// What is said of the program in the image.
struct Image {
    name: String,
    platform: Platform,
    program: String,
    seconds: u64,
    revision: String,
}

/// A part of the image, named by its content.
struct Blob {
    media_type: &'static str,
    content: Vec<u8>,
}

impl Blob {
    fn digest(&self) -> String {
        workspace::hex(&Sha256::digest(&self.content))
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": format!("sha256:{}", self.digest()), "size": self.content.len() })
    }
}

impl Image {
    /// The bytes of an OCI layout in a tar archive.
    fn archive(&self, program: &[u8]) -> Result<Vec<u8>> {
        let tree = self.layer(program)?;
        let diff_id = workspace::hex(&Sha256::digest(&tree));
        let layer = Blob { media_type: "application/vnd.oci.image.layer.v1.tar+gzip", content: compress(&tree)? };
        let config =
            Blob { media_type: "application/vnd.oci.image.config.v1+json", content: bytes(&self.config(&diff_id)?)? };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = Blob { media_type: "application/vnd.oci.image.manifest.v1+json", content: bytes(&manifest)? };
        let mut named = manifest.descriptor();
        named["platform"] = json!({ "architecture": self.platform.name(), "os": "linux" });
        let tag = self.name.rsplit(':').next().unwrap_or_default();
        named["annotations"] =
            json!({ "io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag });
        let index = json!({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [named]
        });
        let mut tar = Tar::new(self.seconds);
        tar.file("oci-layout", 0o644, &bytes(&json!({ "imageLayoutVersion": "1.0.0" }))?)?;
        tar.file("index.json", 0o644, &bytes(&index)?)?;
        let mut blobs = [layer, config, manifest];
        blobs.sort_by_key(Blob::digest);
        for folder in ["blobs/", "blobs/sha256/"] {
            tar.folder(folder)?;
        }
        for blob in &blobs {
            tar.file(&format!("blobs/sha256/{}", blob.digest()), 0o644, &blob.content)?;
        }
        tar.finish()
    }

    fn layer(&self, program: &[u8]) -> Result<Vec<u8>> {
        let mut tar = Tar::new(self.seconds);
        for folder in ["usr/", "usr/bin/"] {
            tar.folder(folder)?;
        }
        tar.file(&format!("usr/bin/{}", self.program), 0o755, program)?;
        tar.finish()
    }

    fn config(&self, diff_id: &str) -> Result<Value> {
        let created = time(self.seconds)?;
        Ok(json!({
            "created": created,
            "architecture": self.platform.name(),
            "os": "linux",
            "config": {
                "User": USER,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "Entrypoint": [format!("/usr/bin/{}", self.program)],
                "WorkingDir": "/",
                "Labels": {
                    "org.opencontainers.image.title": self.program,
                    "org.opencontainers.image.licenses": "Apache-2.0",
                    "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                    "org.opencontainers.image.revision": self.revision,
                },
            },
            "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff_id}")] },
            "history": [{ "created": created, "created_by": "cargo xtask image" }],
        }))
    }
}

/// An archive whose bytes follow from its content alone.
struct Tar {
    builder: tar::Builder<Vec<u8>>,
    seconds: u64,
}

impl Tar {
    fn new(seconds: u64) -> Self {
        Self { builder: tar::Builder::new(Vec::new()), seconds }
    }

    fn folder(&mut self, path: &str) -> Result<()> {
        self.entry(path, tar::EntryType::Directory, 0o755, &[])
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.entry(path, tar::EntryType::Regular, mode, content)
    }

    fn entry(&mut self, path: &str, kind: tar::EntryType, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.seconds);
        header.set_size(content.len() as u64);
        self.builder.append_data(&mut header, path, content).with_context(|| format!("archiving {path}"))
    }

    fn finish(self) -> Result<Vec<u8>> {
        self.builder.into_inner().context("ending the archive")
    }
}

fn compress(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), Compression::default());
    encoder.write_all(content).and_then(|()| encoder.finish()).context("compressing the layer")
}

fn bytes(value: &Value) -> Result<Vec<u8>> {
    serde_json::to_vec(value).context("rendering a part of the image")
}

fn time(seconds: u64) -> Result<String> {
    let seconds = i64::try_from(seconds).context("the time of the image")?;
    Ok(jiff::Timestamp::from_second(seconds).context("the time of the image")?.to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn image() -> Image {
        let name = "example.org/drover/droverd:1.2.3".to_owned();
        Image {
            name,
            platform: Platform::Amd64,
            program: "droverd".to_owned(),
            seconds: 1_700_000_000,
            revision: "abc".to_owned(),
        }
    }

    fn files(archive: &[u8]) -> BTreeMap<String, (u32, u64, Vec<u8>)> {
        let mut archive = tar::Archive::new(archive);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let (path, header) = (entry.path().unwrap().display().to_string(), entry.header().clone());
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            (path, (header.mode().unwrap(), header.mtime().unwrap(), content))
        });
        entries.collect()
    }

    #[test]
    fn the_same_program_gives_the_same_bytes_and_each_part_is_named_by_its_content() {
        let archive = image().archive(b"program").unwrap();
        assert_eq!(archive, image().archive(b"program").unwrap());
        assert_ne!(archive, image().archive(b"another").unwrap());
        let files = files(&archive);
        for (path, (_, mtime, content)) in &files {
            assert_eq!(*mtime, 1_700_000_000, "{path}");
            if let Some(digest) = path.strip_prefix("blobs/sha256/").filter(|name| !name.is_empty()) {
                assert_eq!(digest, workspace::hex(&Sha256::digest(content)));
            }
        }
    }

    #[test]
    fn the_archive_tells_containerd_its_full_name_and_holds_the_program() {
        let files = files(&image().archive(b"program").unwrap());
        let read = |path: &str| -> Value { serde_json::from_slice(&files[path].2).unwrap() };
        let blob = |descriptor: &Value| format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"));
        let index = read("index.json");
        let named = &index["manifests"][0];
        assert_eq!(named["annotations"]["io.containerd.image.name"], "example.org/drover/droverd:1.2.3");
        let manifest = read(&blob(named));
        let config = read(&blob(&manifest["config"]));
        assert_eq!(config["config"]["User"], USER);
        let mut tree = Vec::new();
        flate2::read::GzDecoder::new(&files[&blob(&manifest["layers"][0])].2[..]).read_to_end(&mut tree).unwrap();
        let diff_id = format!("sha256:{}", workspace::hex(&Sha256::digest(&tree)));
        assert_eq!(config["rootfs"]["diff_ids"], json!([diff_id]));
        let inside = self::files(&tree);
        assert_eq!(inside["usr/bin/droverd"], (0o755, 1_700_000_000, b"program".to_vec()));
    }
}
