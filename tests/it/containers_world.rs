//! What tests of containers stand on: a containerd of their own, images that are made here of this machine's programs,
//! and a registry on the loopback device that says what was asked of it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use drover_api::allocation::{AllocatedResources, TaskResources};
use drover_api::job::JobType;
use drover_testkit::containerd::OwnContainerd;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::agent::{Node, shared_plane};

/// The image that is on the node.
pub(crate) const IMAGE: &str = "example.com/tools:1";

/// A node whose agent has a containerd of its own, with one image on it.
pub(crate) struct ContainerNode {
    // It ends first: its containers are ended while there is a containerd that can take them away.
    pub(crate) node: Node<'static>,
    pub(crate) containerd: OwnContainerd,
    pub(crate) folder: tempfile::TempDir,
}

impl ContainerNode {
    pub(crate) async fn start(name: &str) -> Self {
        Self::start_with(name, "").await
    }

    /// The same, with more settings of the driver.
    pub(crate) async fn start_with(name: &str, settings: &str) -> Self {
        Self::start_by(name, settings, "", Vec::new()).await
    }

    /// The same, with more of the agent's configuration and a program that puts it elsewhere; containerd stays here.
    pub(crate) async fn start_by(name: &str, settings: &str, more: &str, launcher: Vec<String>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let containerd = OwnContainerd::start(&folder.path().join("c")).expect("a containerd");
        let archive = folder.path().join("tools.tar");
        std::fs::write(&archive, TestImage::tools(IMAGE).archive()).expect("an archive");
        import(&containerd, &archive);
        let delay = if settings.contains("imageDelay") { "" } else { ", imageDelay: 1h" };
        let config = format!(
            "drivers: {{rawExec: {{enabled: true}}, exec: {{enabled: true}}, \
             containerd: {{address: {}, pidsLimit: 512{delay}{settings}}}}}\n{more}",
            containerd.socket().display(),
        );
        let node = Node::start_by(shared_plane(), name, &config, launcher).await;
        Self { node, containerd, folder }
    }

    /// Places an allocation of a group in a network of its own, with these tasks, and returns its name.
    pub(crate) async fn run(&self, job: &str, r#type: JobType, tasks: Value) -> String {
        self.run_in(job, r#type, json!({ "networks": [{ "mode": "none" }], "tasks": tasks })).await
    }

    /// The same, of this group.
    pub(crate) async fn run_in(&self, job: &str, r#type: JobType, group: Value) -> String {
        let names = group["tasks"].as_array().expect("tasks").iter();
        let names = names.map(|task| task["name"].as_str().expect("a name").to_owned());
        let held = TaskResources { cpu: 100, memory_mb: 48, ..TaskResources::default() };
        let resources = AllocatedResources {
            tasks: names.map(|name| (name, held.clone())).collect(),
            ..AllocatedResources::default()
        };
        self.node.job(job, r#type, group).await;
        self.node.place(job, 0, resources).await
    }

    /// The ids of the containers that containerd has.
    pub(crate) fn containers(&self) -> Vec<String> {
        let listed = self.containerd.ctr(&["containers", "ls", "-q"]).expect("a list");
        listed.lines().map(str::to_owned).collect()
    }

    /// The processes of the containers that run, as the host numbers them.
    pub(crate) fn pids(&self) -> Vec<i32> {
        let listed = self.containerd.ctr(&["tasks", "ls"]).expect("a list");
        let running = listed.lines().filter(|line| line.contains("RUNNING"));
        running.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok()).collect()
    }

    /// The process of the only container, as the host numbers it.
    pub(crate) fn pid(&self) -> i32 {
        let pids = self.pids();
        assert_eq!(pids.len(), 1, "{pids:?}");
        pids[0]
    }

    /// Whether containerd has nothing that a task could have left.
    pub(crate) fn is_empty(&self) -> bool {
        let snapshots = self.containerd.ctr(&["snapshots", "ls"]).expect("a list");
        self.containers().is_empty() && !snapshots.contains("Active") && self.containerd.shims().is_empty()
    }
}

pub(crate) fn import(containerd: &OwnContainerd, archive: &Path) {
    containerd.ctr(&["images", "import", "--local", &archive.display().to_string()]).expect("an image");
}

/// A task that runs a script of the shell in the image.
pub(crate) fn script(text: &str) -> Value {
    json!({
        "name": "t", "driver": "containerd", "killSignal": "SIGTERM", "killTimeout": "2s",
        "config": { "image": IMAGE, "command": "/bin/sh", "args": ["-c", text] },
        "restart": { "attempts": 0, "interval": "1m", "delay": "1s", "mode": "fail" },
    })
}

/// Writes its beginning, then counts, so that gaps and repeats show.
pub(crate) const COUNTER: &str = "echo begun; n=0; while :; do n=$((n+1)); echo $n; sleep 0.01; done";

pub(crate) fn assert_counts_on(log: &str) {
    let whole = log.rsplit_once('\n').map_or("", |(whole, _)| whole);
    for (n, line) in whole.lines().skip(1).enumerate() {
        assert_eq!(line.parse(), Ok(n + 1), "a gap or a repeat in the log");
    }
}

/// An image that is made here.
#[derive(Clone, Debug)]
pub(crate) struct TestImage {
    pub(crate) name: String,
    pub(crate) config: Value,
    pub(crate) architecture: &'static str,
    /// Files by path, with their mode.
    pub(crate) files: BTreeMap<PathBuf, (Vec<u8>, u32)>,
}

impl TestImage {
    /// One with the shell and some programs of this machine.
    pub(crate) fn tools(name: &str) -> Self {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        let mut image = Self { name: name.to_owned(), config: json!({}), architecture, files: BTreeMap::new() };
        for program in ["sh", "sleep", "cat", "id", "ls", "tail", "stty", "mkdir", "hostname"] {
            image.add_program(program);
        }
        image.add("etc/passwd", b"root:x:0:0::/:/bin/sh\nweb:x:101:102::/:/bin/sh\n", 0o644);
        image.add("etc/group", b"root:x:0:\nweb:x:102:\n", 0o644);
        image
    }

    pub(crate) fn with(mut self, config: Value) -> Self {
        self.config = config;
        self
    }

    pub(crate) fn add(&mut self, path: &str, bytes: &[u8], mode: u32) {
        self.files.insert(PathBuf::from(path), (bytes.to_vec(), mode));
    }

    /// A program of this machine, and what it is linked with.
    pub(crate) fn add_program(&mut self, name: &str) {
        let program = ["/bin", "/usr/bin"].map(|dir| format!("{dir}/{name}"));
        let program = program.into_iter().find(|path| Path::new(path).exists()).expect("a program");
        self.add_linked(name, Path::new(&program));
    }

    /// A program under this name, and what it is linked with.
    pub(crate) fn add_linked(&mut self, name: &str, program: &Path) {
        let linked = std::process::Command::new("ldd").arg(program).output().expect("ldd");
        let text = String::from_utf8(linked.stdout).expect("text");
        let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
        for path in libraries {
            self.add(path.trim_start_matches('/'), &std::fs::read(path).expect("a library"), 0o755);
        }
        self.add(&format!("bin/{name}"), &std::fs::read(program).expect("a program"), 0o755);
    }

    /// Its documents and layer, by digest, the manifest last.
    fn blobs(&self) -> Vec<Blob> {
        let mut layer = tar::Builder::new(Vec::new());
        for (path, (bytes, mode)) in &self.files {
            append(&mut layer, &path.to_string_lossy(), bytes, *mode);
        }
        let layer = Blob::new("application/vnd.oci.image.layer.v1.tar", layer.into_inner().expect("an archive"));
        let config = json!({
            "architecture": self.architecture, "os": "linux", "config": self.config,
            "rootfs": { "type": "layers", "diff_ids": [layer.digest] },
        });
        let config = Blob::new("application/vnd.oci.image.config.v1+json", config.to_string().into_bytes());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor(), "layers": [layer.descriptor()],
        });
        vec![layer, config, Blob::new(MANIFEST, manifest.to_string().into_bytes())]
    }

    /// An OCI layout in a tar archive.
    pub(crate) fn archive(&self) -> Vec<u8> {
        let blobs = self.blobs();
        let mut named = blobs.last().expect("a manifest").descriptor();
        named["annotations"] = json!({ "io.containerd.image.name": self.name });
        let index = json!({ "schemaVersion": 2, "manifests": [named] });
        let mut archive = tar::Builder::new(Vec::new());
        append(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#, 0o644);
        append(&mut archive, "index.json", index.to_string().as_bytes(), 0o644);
        for blob in &blobs {
            append(&mut archive, &format!("blobs/{}", blob.digest.replace(':', "/")), &blob.bytes, 0o644);
        }
        archive.into_inner().expect("an archive")
    }
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

#[derive(Clone, Debug)]
struct Blob {
    media_type: &'static str,
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, bytes: Vec<u8>) -> Self {
        let digest =
            Sha256::digest(&bytes).iter().fold("sha256:".to_owned(), |text, byte| text + &format!("{byte:02x}"));
        Self { media_type, digest, bytes }
    }

    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type, "digest": self.digest, "size": self.bytes.len() })
    }
}

fn append(archive: &mut tar::Builder<Vec<u8>>, path: &str, bytes: &[u8], mode: u32) {
    let mut header = tar::Header::new_gnu();
    header.set_size(u64::try_from(bytes.len()).expect("a size"));
    header.set_mode(mode);
    archive.append_data(&mut header, path, bytes).expect("a file");
}

/// How a registry answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Serve,
    /// It wants credentials, and takes none.
    Refuse,
    /// It wants this `USER:PASSWORD`.
    Login(&'static str),
    /// It answers nothing.
    Hang,
}

/// A registry on the loopback device.
#[derive(Clone, Debug)]
pub(crate) struct TestRegistry {
    pub(crate) address: String,
    inside: Arc<Mutex<RegistryInside>>,
}

#[derive(Debug)]
struct RegistryInside {
    manner: Manner,
    blobs: BTreeMap<String, Blob>,
    /// Digests of manifests by `NAME:TAG`.
    tags: BTreeMap<String, String>,
    /// What was downloaded, and how often.
    downloads: BTreeMap<String, usize>,
}

impl TestRegistry {
    pub(crate) fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let inside =
            RegistryInside { manner, blobs: BTreeMap::new(), tags: BTreeMap::new(), downloads: BTreeMap::new() };
        let registry = Self { address, inside: Arc::new(Mutex::new(inside)) };
        let served = registry.clone();
        // It ends with the test binary.
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let served = served.clone();
                std::thread::spawn(move || served.serve(stream));
            }
        });
        registry
    }

    /// Puts an image there under `NAME:TAG`, and returns its full name.
    pub(crate) fn push(&self, name: &str, image: &TestImage) -> String {
        let mut inside = self.inside.lock().expect("a registry");
        let blobs = image.blobs();
        inside.tags.insert(name.to_owned(), blobs.last().expect("a manifest").digest.clone());
        inside.blobs.extend(blobs.into_iter().map(|blob| (blob.digest.clone(), blob)));
        format!("{}/{name}", self.address)
    }

    /// The most that one layer was downloaded.
    pub(crate) fn most_downloads(&self) -> usize {
        let inside = self.inside.lock().expect("a registry");
        inside.downloads.values().copied().max().unwrap_or(0)
    }

    fn serve(&self, stream: TcpStream) {
        let mut to = stream.try_clone().expect("a stream");
        let mut from = BufReader::new(stream);
        // Clients try TLS first.
        if from.fill_buf().is_ok_and(|first| first.first().is_some_and(|byte| !byte.is_ascii_uppercase())) {
            drop(to.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"));
            return;
        }
        loop {
            let mut head = Vec::new();
            loop {
                let mut line = String::new();
                match from.read_line(&mut line) {
                    Ok(n) if n > 2 => head.push(line),
                    Ok(n) if n > 0 => break,
                    Ok(_) | Err(_) => return,
                }
            }
            let words: Vec<&str> = head[0].split_whitespace().collect();
            let manner = self.inside.lock().expect("a registry").manner;
            if manner == Manner::Hang {
                // Until the client gives up.
                drop(from.read(&mut [0]));
                return;
            }
            let login = head.iter().find_map(|line| line.strip_prefix("Authorization: Basic "));
            let answer = self.answer((words[0], words[1]), manner, login.map_or("", str::trim));
            if to.write_all(&answer).is_err() {
                return;
            }
        }
    }

    fn answer(&self, (method, path): (&str, &str), manner: Manner, login: &str) -> Vec<u8> {
        let mut inside = self.inside.lock().expect("a registry");
        let plain =
            |status: &str, more: &str| format!("HTTP/1.1 {status}\r\n{more}Content-Length: 0\r\n\r\n").into_bytes();
        let is_known = match manner {
            Manner::Refuse => false,
            Manner::Login(wanted) => login == STANDARD.encode(wanted),
            Manner::Serve | Manner::Hang => true,
        };
        if !is_known {
            return plain("401 Unauthorized", "WWW-Authenticate: Basic realm=\"tests\"\r\n");
        }
        let path = path.split('?').next().unwrap_or_default();
        let Some(rest) = path.strip_prefix("/v2/") else { return plain("404 Not Found", "") };
        let digest = if let Some((name, reference)) = rest.split_once("/manifests/") {
            let tag = inside.tags.get(&format!("{name}:{reference}")).cloned();
            tag.unwrap_or_else(|| reference.to_owned())
        } else if let Some((_, digest)) = rest.split_once("/blobs/") {
            digest.to_owned()
        } else {
            return plain("200 OK", "");
        };
        let Some(blob) = inside.blobs.get(&digest).cloned() else { return plain("404 Not Found", "") };
        if method == "GET" && blob.media_type.rsplit('.').next() == Some("tar") {
            *inside.downloads.entry(digest).or_default() += 1;
        }
        let mut answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {}\r\nDocker-Content-Digest: {}\r\nContent-Length: {}\r\n\r\n",
            blob.media_type,
            blob.digest,
            blob.bytes.len()
        )
        .into_bytes();
        if method != "HEAD" {
            answer.extend(blob.bytes);
        }
        answer
    }
}
