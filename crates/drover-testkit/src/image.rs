//! `cargo xtask image`: drover's container image as an OCI archive, without a container daemon.
//!
//! One layer with one static program, `droverd`, which every role runs, the supervisor too; for several architectures
//! one image of each under one name. The same commit gives the same bytes: times come from `SOURCE_DATE_EPOCH` or the
//! commit, paths of this machine are mapped away, entries have a fixed order and owner. Must never know how the image
//! is run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cargo::{self, Profile};
use crate::progress::{Progress, Step};
use crate::workspace;

/// The image's name; a full one, because container runtimes complete short ones differently.
pub const REPOSITORY: &str = "drover.dev/droverd";
/// Who runs in the image unless a pod says otherwise: a user without rights, and not root.
const USER: &str = "65532:65532";

/// The processors that the image is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Arch {
    /// 64-bit x86.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// The name in image manifests.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-musl",
            Self::Arm64 => "aarch64-unknown-linux-musl",
        }
    }

    /// The name in this language and in the names of C compilers.
    fn processor(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    fn is_of_this_machine(self) -> bool {
        std::env::consts::ARCH == self.processor()
    }

    /// The C compiler that makes code for it, and where Debian has that from.
    fn compiler(self) -> (String, &'static str) {
        if self.is_of_this_machine() {
            return (std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()), "gcc libc6-dev");
        }
        let packages = match self {
            Self::Amd64 => "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
            Self::Arm64 => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        };
        (format!("{}-linux-gnu-gcc", self.processor()), packages)
    }
}

/// What `image` is told.
#[derive(Debug, Clone, Args)]
pub struct ImageArgs {
    /// The archive to write [default: target/image/droverd-ARCH.tar]
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The full name without a tag
    #[arg(long, default_value = REPOSITORY)]
    pub repository: String,
    /// The tag
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    pub tag: String,
    /// What it is for, repeatable
    #[arg(long, value_enum, value_delimiter = ',', default_value = "amd64")]
    pub arch: Vec<Arch>,
    /// How droverd is built
    #[arg(long, value_enum, default_value = "release")]
    pub profile: Profile,
}

/// `cargo xtask image`: returns the path of the archive.
///
/// # Errors
/// When a compiler or target is not installed, droverd does not build, or the archive cannot be written.
pub fn run(args: &ImageArgs, progress: &Progress) -> Result<PathBuf> {
    let mut wanted = args.arch.clone();
    wanted.sort();
    wanted.dedup();
    let mut programs = Vec::new();
    for arch in &wanted {
        let program = build("drover", "droverd", *arch, args.profile, progress)?;
        programs.push((*arch, fs::read(&program).with_context(|| format!("reading {}", program.display()))?));
    }
    let step = progress.step("writing the image");
    let names: Vec<&str> = wanted.iter().map(|arch| arch.name()).collect();
    let default = || workspace::root().join(format!("target/image/droverd-{}.tar", names.join("-")));
    let output = args.output.clone().unwrap_or_else(default);
    let name = format!("{}:{}", args.repository, args.tag);
    let archive = of_programs(&name, "droverd", &programs)?;
    write_archive(&output, &archive)?;
    let digest = workspace::hex(&Sha256::digest(&archive)[..8]);
    step.done(format!("{name} for {}, {} KiB, {digest}", names.join(" and "), archive.len() / 1024));
    Ok(output)
}

/// The archive of an image that holds one static program and runs it, built for each of these.
fn of_programs(name: &str, program: &str, built: &[(Arch, Vec<u8>)]) -> Result<Vec<u8>> {
    Image::new(name, program)?.archive(built)
}

/// Writes droverd's image with a program as it is built for this machine, and with the libraries that it needs here:
/// nothing is built for it where tests are, and only clusters on this machine can run it. Returns the archive's path.
///
/// # Errors
/// When a library cannot be found, or the archive not written.
pub fn of_this_machine(droverd: &Path, progress: &Progress) -> Result<PathBuf> {
    let step = progress.step("writing the image");
    let name = format!("{REPOSITORY}:{}", env!("CARGO_PKG_VERSION"));
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let libraries = libraries(droverd)?.into_iter().map(|path| Ok((path.clone(), read(Path::new(&path))?)));
    let image = Image { libraries: libraries.collect::<Result<_>>()?, ..Image::new(&name, "droverd")? };
    let archive = image.archive(&[(Arch::Amd64, read(droverd)?)])?;
    let output = workspace::root().join("target/image/droverd-of-this-machine.tar");
    write_archive(&output, &archive)?;
    step.done(format!("{name}, {} KiB", archive.len() / 1024));
    Ok(output)
}

/// The files that a program is linked with when it starts.
fn libraries(program: &Path) -> Result<Vec<String>> {
    let output = std::process::Command::new("ldd").arg(program).output().context("running ldd (package libc-bin)")?;
    ensure!(output.status.success(), "ldd {}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    // `libc.so.6 => /lib/libc.so.6 (0x1)`, and the loader itself by its path alone.
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    Ok(said.lines().filter_map(path).collect())
}

/// Writes the archive of an image for this machine that holds a ready program and runs it; returns its path.
///
/// # Errors
/// When the program cannot be read, or the archive not written.
pub fn archive_of(name: &str, program: &str, built: &Path, output: &Path) -> Result<PathBuf> {
    let content = fs::read(built).with_context(|| format!("reading {}", built.display()))?;
    let archive = of_programs(name, program, &[(Arch::Amd64, content)])?;
    write_archive(output, &archive)?;
    Ok(output.to_path_buf())
}

/// Writes the archive of an image that holds programs of this machine in `/bin`, named or by their paths, with what
/// they are linked with; only this machine can run it. It runs the first of them, as root, unless it is told otherwise.
///
/// # Errors
/// When a program is not on the search path, or the archive not written.
pub fn of_tools(name: &str, tools: &[&str], output: &Path) -> Result<PathBuf> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let mut files = BTreeMap::new();
    let mut first = None;
    for tool in tools {
        let path = if tool.starts_with('/') { Some(PathBuf::from(tool)) } else { workspace::find_on_path(tool) };
        let path = path.with_context(|| format!("{tool} is not installed"))?;
        let content = read(&path)?;
        let name = path.file_name().context("a program without a name")?.to_string_lossy().into_owned();
        first.get_or_insert_with(|| (name.clone(), content.clone()));
        files.insert(format!("/bin/{name}"), content);
        for library in libraries(&path)? {
            let content = read(Path::new(&library))?;
            files.insert(library, content);
        }
    }
    let (program, content) = first.context("an image of no program")?;
    let image =
        Image { role: "Cmd", user: "0:0", libraries: files.into_iter().collect(), ..Image::new(name, &program)? };
    let archive = image.archive(&[(Arch::Amd64, content)])?;
    write_archive(output, &archive)?;
    Ok(output.to_path_buf())
}

fn write_archive(output: &Path, archive: &[u8]) -> Result<()> {
    let folder = output.parent().with_context(|| format!("{} has no folder", output.display()))?;
    fs::create_dir_all(folder).with_context(|| format!("creating {}", folder.display()))?;
    workspace::write_with_mode(output, archive, 0o644)
}

/// Builds a program of this workspace that needs no libraries where it runs.
///
/// # Errors
/// When a compiler or target is not installed, or the program does not build.
pub fn build(package: &str, program: &str, arch: Arch, profile: Profile, progress: &Progress) -> Result<PathBuf> {
    let step = progress.step(format!("building {program} for {}", arch.target()));
    let environment = environment(arch)?;
    install_target(arch, &step)?;
    // droverd's default features hold the user's command with the simulator: neither has a place in its image.
    let mut args =
        vec!["build", "--package", package, "--no-default-features", "--bin", program, "--target", arch.target()];
    if profile == Profile::Release {
        args.push("--release");
    }
    let built = cargo::build_with(&args, &environment, &step)?;
    let built = built.into_iter().find(|built| built.target == program);
    step.done("");
    Ok(built.with_context(|| format!("cargo built no {program}"))?.executable)
}

fn install_target(arch: Arch, step: &Step) -> Result<()> {
    let target = arch.target();
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

/// How cargo and the C compiler make code for these processors; the compiler uses nothing of its own library in ours.
fn environment(arch: Arch) -> Result<Vec<(String, String)>> {
    let (compiler, packages) = arch.compiler();
    if !compiler.contains('/') && workspace::find_on_path(&compiler).is_none() {
        bail!(
            "{compiler} is missing, which makes the parts of droverd that are written in C for {}: `apt-get install {packages}`",
            arch.name()
        );
    }
    let under = arch.target().replace('-', "_");
    let mut flags = vec![remap(&workspace::root(), "/drover")];
    let named = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let home = named("HOME").context("HOME is not set: cargo needs it")?;
    flags.push(remap(&named("CARGO_HOME").unwrap_or_else(|| home.join(".cargo")), "/cargo"));
    let of_target = |setting: &str| format!("CARGO_TARGET_{}_{setting}", under.to_uppercase());
    let mut environment = vec![(of_target("RUSTFLAGS"), flags.join(" "))];
    if !arch.is_of_this_machine() {
        environment.push((of_target("LINKER"), compiler.clone()));
    }
    environment.push((format!("CC_{under}"), compiler));
    Ok(environment)
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

/// The description of the program in the image.
struct Image {
    name: String,
    program: String,
    /// How the image's configuration names the program: as `Entrypoint`, before what else is to run, or as `Cmd`.
    role: &'static str,
    /// Who runs it.
    user: &'static str,
    /// What lies beside it, by whole paths; nothing where the program is static.
    libraries: Vec<(String, Vec<u8>)>,
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

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

impl Image {
    fn new(name: &str, program: &str) -> Result<Self> {
        let (seconds, revision) = (source_date()?, workspace::commit());
        Ok(Self {
            name: name.to_owned(),
            program: program.to_owned(),
            role: "Entrypoint",
            user: USER,
            libraries: Vec::new(),
            seconds,
            revision,
        })
    }

    /// The bytes of an OCI layout in a tar archive. What is for one architecture is named itself; for several, a list
    /// of theirs is.
    fn archive(&self, built: &[(Arch, Vec<u8>)]) -> Result<Vec<u8>> {
        let mut blobs = Vec::new();
        let mut manifests = Vec::new();
        for (arch, program) in built {
            manifests.push(self.manifest(*arch, program, &mut blobs)?);
        }
        let mut named = match &manifests[..] {
            [only] => only.clone(),
            several => {
                let list = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": several });
                let list = Blob { media_type: INDEX, content: bytes(&list)? };
                let descriptor = list.descriptor();
                blobs.push(list);
                descriptor
            }
        };
        let tag = self.name.rsplit(':').next().unwrap_or_default();
        named["annotations"] =
            json!({ "io.containerd.image.name": self.name, "org.opencontainers.image.ref.name": tag });
        let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [named] });
        let mut tar = Tar::new(self.seconds);
        tar.file("oci-layout", 0o644, &bytes(&json!({ "imageLayoutVersion": "1.0.0" }))?)?;
        tar.file("index.json", 0o644, &bytes(&index)?)?;
        blobs.sort_by_key(Blob::digest);
        for folder in ["blobs/", "blobs/sha256/"] {
            tar.folder(folder)?;
        }
        for blob in &blobs {
            tar.file(&format!("blobs/sha256/{}", blob.digest()), 0o644, &blob.content)?;
        }
        tar.finish()
    }

    /// Describes the image for one architecture, whose parts are added to `blobs`.
    fn manifest(&self, arch: Arch, program: &[u8], blobs: &mut Vec<Blob>) -> Result<Value> {
        let tree = self.layer(program)?;
        let diff_id = workspace::hex(&Sha256::digest(&tree));
        let layer = Blob { media_type: "application/vnd.oci.image.layer.v1.tar+gzip", content: compress(&tree)? };
        let config = bytes(&self.config(arch, &diff_id)?)?;
        let config = Blob { media_type: "application/vnd.oci.image.config.v1+json", content: config };
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.descriptor(),
            "layers": [layer.descriptor()],
        });
        let manifest = Blob { media_type: MANIFEST, content: bytes(&manifest)? };
        let mut descriptor = manifest.descriptor();
        descriptor["platform"] = json!({ "architecture": arch.name(), "os": "linux" });
        blobs.extend([layer, config, manifest]);
        Ok(descriptor)
    }

    fn layer(&self, program: &[u8]) -> Result<Vec<u8>> {
        let mut tar = Tar::new(self.seconds);
        for folder in ["usr/", "usr/bin/"] {
            tar.folder(folder)?;
        }
        tar.file(&format!("usr/bin/{}", self.program), 0o755, program)?;
        let mut folders = BTreeSet::new();
        for (path, content) in &self.libraries {
            let path = path.trim_start_matches('/');
            for (end, _) in path.match_indices('/').filter(|(end, _)| folders.insert(path[..=*end].to_owned())) {
                tar.folder(&path[..=end])?;
            }
            tar.file(path, 0o755, content)?;
        }
        tar.finish()
    }

    fn config(&self, arch: Arch, diff_id: &str) -> Result<Value> {
        let created = time(self.seconds)?;
        Ok(json!({
            "created": created,
            "architecture": arch.name(),
            "os": "linux",
            "config": {
                "User": self.user,
                "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                (self.role): [format!("/usr/bin/{}", self.program)],
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
        let (program, revision) = ("droverd".to_owned(), "abc".to_owned());
        Image { name, program, role: "Entrypoint", user: USER, libraries: Vec::new(), seconds: 1_700_000_000, revision }
    }

    fn archive(built: &[(Arch, &str)]) -> Vec<u8> {
        let built: Vec<_> = built.iter().map(|(arch, program)| (*arch, program.as_bytes().to_vec())).collect();
        image().archive(&built).unwrap()
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
        let archive = archive(&[(Arch::Amd64, "program"), (Arch::Arm64, "program")]);
        assert_eq!(archive, self::archive(&[(Arch::Amd64, "program"), (Arch::Arm64, "program")]));
        assert_ne!(archive, self::archive(&[(Arch::Amd64, "program"), (Arch::Arm64, "another")]));
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
        let files = files(&archive(&[(Arch::Amd64, "program")]));
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

    #[test]
    fn libraries_lie_where_the_program_looks_for_them_each_folder_once() {
        let of = |path: &str| (path.to_owned(), path.as_bytes().to_vec());
        let image = Image { libraries: ["/lib/x/a.so", "/lib/x/b.so", "/lib64/ld.so"].map(of).into(), ..image() };
        let tree = image.layer(b"program").unwrap();
        let mut archive = tar::Archive::new(&tree[..]);
        let paths = archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string());
        let expected = ["lib/", "lib/x/", "lib/x/a.so", "lib/x/b.so", "lib64/", "lib64/ld.so"];
        assert_eq!(paths.skip(3).collect::<Vec<_>>(), expected);
        assert_eq!(files(&tree)["lib/x/b.so"].2, b"/lib/x/b.so");
    }

    #[test]
    fn an_image_for_several_architectures_is_one_name_with_a_program_of_each() {
        let files = files(&archive(&[(Arch::Amd64, "for amd64"), (Arch::Arm64, "for arm64")]));
        let read = |path: &str| -> Value { serde_json::from_slice(&files[path].2).unwrap() };
        let blob = |descriptor: &Value| format!("blobs/{}", descriptor["digest"].as_str().unwrap().replace(':', "/"));
        let index = read("index.json");
        assert_eq!(index["manifests"].as_array().unwrap().len(), 1);
        assert_eq!(
            index["manifests"][0]["annotations"]["io.containerd.image.name"],
            "example.org/drover/droverd:1.2.3"
        );
        let list = read(&blob(&index["manifests"][0]));
        let found: Vec<(String, String)> = list["manifests"]
            .as_array()
            .unwrap()
            .iter()
            .map(|named| {
                let manifest = read(&blob(named));
                let arch = read(&blob(&manifest["config"]))["architecture"].as_str().unwrap().to_owned();
                assert_eq!(named["platform"]["architecture"], arch);
                let mut tree = Vec::new();
                flate2::read::GzDecoder::new(&files[&blob(&manifest["layers"][0])].2[..])
                    .read_to_end(&mut tree)
                    .unwrap();
                (arch, String::from_utf8(self::files(&tree)["usr/bin/droverd"].2.clone()).unwrap())
            })
            .collect();
        assert_eq!(
            found,
            [("amd64", "for amd64"), ("arm64", "for arm64")].map(|(arch, text)| (arch.to_owned(), text.to_owned()))
        );
    }

    /// Without a tag of its own the chart asks for the image of its appVersion.
    #[test]
    fn the_chart_asks_for_the_tag_that_the_image_gets() {
        let chart = fs::read_to_string(workspace::root().join("charts/drover/Chart.yaml")).unwrap();
        assert!(chart.contains(&format!("appVersion: \"{}\"\n", env!("CARGO_PKG_VERSION"))), "{chart}");
    }
}
