//! Downloads and archives of servers that mean no good, on the loopback device.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use drover_api::names::hex;
use drover_core::artifact::{FetchWay, fetch_plan};
use serde_json::{Value, json};
use sha2::Digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::connect::Trust;
use crate::exchange::Web;
use crate::git;
use crate::order::{FetchLimits, Order};
use crate::part::{Form, Part};
use crate::parts::download;
use crate::unpack::unpack;
use crate::waiting::Waiting;

const LIMITS: FetchLimits = FetchLimits { bytes: 1 << 20, files: 64, seconds: 20 };

fn order(source: &str, more: &Value, allowed: &[&str]) -> Order {
    let mut artifact = json!({ "getterSource": source });
    artifact.as_object_mut().expect("an object").extend(more.as_object().cloned().unwrap_or_default());
    let plan = fetch_plan(&serde_json::from_value(artifact).expect("an artifact")).expect("a plan");
    let allowed = allowed.iter().map(|range| range.parse().expect("a range")).collect();
    Order { plan, allowed, limits: LIMITS, user: None }
}

/// Answers each connection with the next of these, and says what was asked.
struct Server {
    port: u16,
    answering: JoinSet<Vec<String>>,
}

impl Server {
    async fn new(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let mut answering = JoinSet::new();
        answering.spawn(async move {
            let mut asked = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a connection");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a byte"));
                }
                let head = String::from_utf8(head).expect("text");
                let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
                let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a number"))];
                stream.read_exact(&mut body).await.expect("a body");
                asked.push(head);
                // Who has had enough reads no more.
                drop(stream.write_all(&answer).await);
            }
            asked
        });
        Self { port, answering }
    }

    async fn asked(mut self) -> Vec<String> {
        self.answering.join_next().await.expect("a task").expect("no panic")
    }
}

fn answer(status: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

async fn get(order: &Order) -> Result<Vec<u8>, String> {
    let dir = tempfile::tempdir().expect("a directory");
    let parts = parts(order, dir.path()).await?;
    assert_eq!(parts.len(), 1);
    Ok(fs::read(&parts[0].file).expect("a file"))
}

async fn parts(order: &Order, folder: &Path) -> Result<Vec<Part>, String> {
    let trust = Trust::of_node();
    download(order, Web { trust: &trust, allowed: &order.allowed }, folder).await
}

const LOOPBACK: &[&str] = &["127.0.0.0/8"];

#[tokio::test]
async fn b_045_what_sums_up_is_taken_and_what_does_not_is_refused() {
    let body = b"the program";
    let sums = [
        format!("sha256:{}", hex(&sha2::Sha256::digest(body))),
        format!("sha512:{}", hex(&sha2::Sha512::digest(body))),
        format!("sha1:{}", hex(&sha1::Sha1::digest(body))),
        format!("md5:{}", hex(&md5::Md5::digest(body))),
    ];
    for sum in sums {
        let server = Server::new(vec![answer("200 OK", "", body), answer("200 OK", "", b"another one")]).await;
        let source = format!("http://127.0.0.1:{}/x", server.port);
        let order = order(&source, &json!({ "getterOptions": { "checksum": sum } }), LOOPBACK);
        assert_eq!(get(&order).await.expect(&sum), body);
        let refused = get(&order).await.expect_err("another file");
        assert!(
            refused.contains("the checksum is") && refused.contains(sum.split(':').next_back().unwrap()),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn b_046_neither_an_address_nor_a_name_nor_a_redirect_leads_to_the_node_and_its_neighbours() {
    for (source, says) in [
        ("http://169.254.169.254/latest/meta-data/x", "link-local"),
        // A name, as far as this program sees: who looks it up makes 169.254.169.254 of it.
        ("http://0xa9.254.169.254/latest/x", "its address is 169.254.169.254: it is link-local"),
        ("http://[::ffff:169.254.169.254]/x", "link-local"),
        ("http://localhost:1/x", "loopback"),
        ("http://127.0.0.1:1/x", "artifacts.allowedCIDRs"),
    ] {
        let refused = get(&order(source, &json!({}), &[])).await.expect_err(source);
        assert!(refused.contains("is not asked") && refused.contains(says), "{source}: {refused}");
    }
    for location in ["http://169.254.169.254/latest/", "//0xa9.254.169.254/", "http://[fe80::1]/"] {
        let server = Server::new(vec![answer("302 Found", &format!("Location: {location}\r\n"), b"")]).await;
        let source = format!("http://127.0.0.1:{}/x", server.port);
        let refused = get(&order(&source, &json!({}), LOOPBACK)).await.expect_err(location);
        assert!(refused.contains("is not asked"), "{location}: {refused}");
        assert_eq!(server.asked().await.len(), 1);
    }
}

#[tokio::test]
async fn headers_go_to_the_first_server_alone_and_errors_show_no_query() {
    let second = Server::new(vec![answer("404 No", "", b"")]).await;
    let location = format!("Location: http://127.0.0.1:{}/y?signature=canary\r\n", second.port);
    let first =
        Server::new(vec![answer("302 Found", "Location: /z\r\n", b""), answer("307 There", &location, b"")]).await;
    let source = format!("http://127.0.0.1:{}/x?signature=canary", first.port);
    let refused =
        get(&order(&source, &json!({ "getterHeaders": { "Authorization": "Bearer canary" } }), LOOPBACK)).await;
    let refused = refused.expect_err("not found");
    assert!(refused.contains("/y: answered 404") && !refused.contains("canary"), "{refused}");
    let asked = first.asked().await;
    assert!(asked.iter().all(|asked| asked.contains("authorization: Bearer canary\r\n")), "{asked:?}");
    assert!(
        asked[0].starts_with("GET /x?signature=canary HTTP/1.1\r\n") && asked[1].starts_with("GET /z HTTP/1.1\r\n")
    );
    let asked = second.asked().await;
    assert!(!asked[0].contains("authorization"), "{asked:?}");
}

#[tokio::test]
async fn must_survive_servers_that_send_too_much_too_little_or_no_end() {
    let big = vec![b'x'; usize::try_from(LIMITS.bytes).expect("a size") + 1];
    let endless = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
        b"10000\r\n".to_vec(),
        vec![b'x'; 0x10000],
        b"\r\n".to_vec(),
    ]
    .concat();
    let endless =
        [endless, [b"10000\r\n".to_vec(), vec![b'x'; 0x10000], b"\r\n".to_vec()].concat().repeat(20)].concat();
    for (what, answer, says) in [
        ("says too much", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n".to_vec(), "maxSizeMB"),
        ("sends too much", answer("200 OK", "", &big), "maxSizeMB"),
        ("has no end", endless, "maxSizeMB"),
        ("lies", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort".to_vec(), "broke off"),
        ("leads round", b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".to_vec(), "leads nowhere"),
        ("speaks otherwise", b"SSH-2.0-x\r\n".to_vec(), "no answer in HTTP"),
    ] {
        let server = Server::new(vec![answer]).await;
        let source = format!("http://127.0.0.1:{}/x", server.port);
        let refused = get(&order(&source, &json!({}), LOOPBACK)).await.expect_err(what);
        assert!(refused.contains(says), "{what}: {refused}");
    }
    let round = vec![answer("302 Found", "Location: /x\r\n", b""); 11];
    let server = Server::new(round).await;
    let source = format!("http://127.0.0.1:{}/x", server.port);
    let refused = get(&order(&source, &json!({}), LOOPBACK)).await.expect_err("round and round");
    assert!(refused.contains("more than 10 times"), "{refused}");
}

/// A registry's answers, and the artifact's source.
struct Artifact {
    manifest: Vec<u8>,
    blobs: Vec<Vec<u8>>,
}

impl Artifact {
    /// Layers: kind, annotations, content.
    fn new(layers: &[(&str, Value, &[u8])]) -> Self {
        let layer = |(kind, annotations, body): &(&str, Value, &[u8])| json!({ "mediaType": kind, "digest": digest(body), "size": body.len(), "annotations": annotations });
        let all: Vec<Value> = layers.iter().map(layer).collect();
        let manifest = json!({ "schemaVersion": 2, "layers": all }).to_string().into_bytes();
        Self { manifest, blobs: layers.iter().map(|(_, _, body)| body.to_vec()).collect() }
    }

    fn answers(&self) -> Vec<Vec<u8>> {
        std::iter::once(&self.manifest).chain(&self.blobs).map(|body| answer("200 OK", "", body)).collect()
    }
}

fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&sha2::Sha256::digest(bytes)))
}

/// The files that come of an artifact, and what the registry was asked.
async fn pulled(answers: Vec<Vec<u8>>, more: &Value) -> Result<(Vec<(String, Vec<u8>)>, Vec<String>), String> {
    let server = Server::new(answers).await;
    let dir = tempfile::tempdir().expect("a directory");
    let mut order = order(&format!("oci://127.0.0.1:{}/org/app:1", server.port), more, LOOPBACK);
    if order.plan.is_whole {
        order.plan.file_name = "whole".to_owned();
    }
    let parts = parts(&order, dir.path()).await?;
    let result = dir.path().join("result");
    unpack(&parts, &result, LIMITS)?;
    let asked = server.asked().await;
    Ok((files_below(&result, ""), asked))
}

fn files_below(folder: &Path, above: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).expect("a directory").map(|entry| entry.expect("an entry")) {
        let name = format!("{above}{}", entry.file_name().to_string_lossy());
        if entry.file_type().expect("a kind").is_dir() {
            found.extend(files_below(&entry.path(), &format!("{name}/")));
        } else {
            found.push((name, fs::read(entry.path()).expect("a file")));
        }
    }
    found.sort();
    found
}

fn text(found: &[(String, Vec<u8>)]) -> String {
    found.iter().map(|(name, body)| format!("{name}={}", String::from_utf8_lossy(body))).collect::<Vec<_>>().join(" ")
}

const FILE: &str = "application/vnd.oci.image.layer.v1.tar";

fn titled(name: &str) -> Value {
    json!({ "org.opencontainers.image.title": name })
}

#[tokio::test]
async fn b_048_layers_with_titles_are_files_and_packed_ones_directories() {
    let packed = Packer::new().file("conf/b.txt", b"two").bytes();
    let folder = json!({ "org.opencontainers.image.title": "conf", "io.deis.oras.content.unpack": "true" });
    let image = Packer::new().file("usr/c", b"three").bytes();
    let artifact = Artifact::new(&[
        (FILE, titled("bin/a.txt"), b"one"),
        ("application/vnd.oci.image.layer.v1.tar+gzip", folder, &gz(&packed)),
        (FILE, json!({}), &image),
    ]);
    let (found, asked) = pulled(artifact.answers(), &json!({})).await.expect("pulled");
    assert_eq!(text(&found), "bin/a.txt=one conf/b.txt=two usr/c=three");
    assert!(
        asked[0].starts_with("GET /v2/org/app/manifests/1 ") && asked[0].contains("oci.image.manifest"),
        "{asked:?}"
    );
    assert!(asked[1].starts_with(&format!("GET /v2/org/app/blobs/{} ", digest(b"one"))), "{asked:?}");

    let one = Artifact::new(&[("text/plain", json!({}), b"one")]);
    let (found, _) = pulled(one.answers(), &json!({ "getterMode": "file" })).await.expect("pulled");
    assert_eq!(text(&found), "whole=one");
}

#[tokio::test]
async fn of_several_machines_the_manifest_of_this_one_is_taken() {
    let artifact = Artifact::new(&[(FILE, titled("a"), b"one")]);
    let mine = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let entry = |os: &str, architecture: &str, digest: &str| json!({ "digest": digest, "platform": { "os": os, "architecture": architecture } });
    let own = digest(&artifact.manifest);
    let all =
        [entry("linux", "s390x", &digest(b"x")), entry("windows", mine, &digest(b"y")), entry("linux", mine, &own)];
    let list = json!({ "manifests": all }).to_string();
    let answers = std::iter::once(answer("200 OK", "", list.as_bytes())).chain(artifact.answers()).collect();
    let (found, asked) = pulled(answers, &json!({})).await.expect("pulled");
    assert_eq!(text(&found), "a=one");
    assert!(asked[1].starts_with(&format!("GET /v2/org/app/manifests/{own} ")), "{asked:?}");
    let none = json!({ "manifests": all[..2] }).to_string();
    let refused = pulled(vec![answer("200 OK", "", none.as_bytes())], &json!({})).await.expect_err("none");
    assert!(refused.contains("none with linux"), "{refused}");
}

#[tokio::test]
async fn a_registry_that_wants_a_token_gets_one_that_anyone_gets() {
    let tokens = Server::new(vec![answer("200 OK", "", br#"{"token":"given"}"#)]).await;
    let realm = format!("http://127.0.0.1:{}/token", tokens.port);
    let challenge =
        format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"r\",scope=\"repository:org/app:pull\"\r\n");
    let artifact = Artifact::new(&[(FILE, titled("a"), b"one")]);
    let answers = std::iter::once(answer("401 Unauthorized", &challenge, b"")).chain(artifact.answers()).collect();
    let (found, asked) = pulled(answers, &json!({})).await.expect("pulled");
    assert_eq!(text(&found), "a=one");
    assert!(
        !asked[0].contains("authorization: ")
            && asked[1..].iter().all(|head| head.contains("authorization: Bearer given"))
    );
    let asked = tokens.asked().await;
    assert!(asked[0].starts_with("GET /token?service=r&scope=repository%3Aorg%2Fapp%3Apull "), "{asked:?}");
    // What others want is named.
    let basic = answer("401 Unauthorized", "WWW-Authenticate: Basic realm=\"r\"\r\n", b"");
    let refused = pulled(vec![basic], &json!({})).await.expect_err("refused");
    assert!(refused.contains("give the header Authorization"), "{refused}");
}

#[tokio::test]
async fn a_registry_that_means_no_good_gets_nowhere() {
    let layers = |kind: &str, annotations: Value| Artifact::new(&[(kind, annotations, b"one")]);
    let mut other = layers(FILE, titled("a"));
    other.blobs[0] = b"two".to_vec();
    let large = vec![b'x'; 2 << 20];
    let many: Vec<(&str, Value, &[u8])> = (0..80).map(|n| (FILE, titled(&format!("f{n}")), b"x".as_slice())).collect();
    let plain = |text: &str| vec![answer("200 OK", "", text.as_bytes())];
    let foreign = json!({ "layers": [{ "mediaType": FILE, "digest": "sha256:../../x", "annotations": titled("a") }] });
    for (what, answers, says) in [
        ("a title that leads out", layers(FILE, titled("../a")).answers(), "leads out"),
        ("an absolute title", layers(FILE, titled("/etc/a")).answers(), "leads out"),
        ("no title", layers("text/plain", json!({})).answers(), "has no name"),
        ("another blob", other.answers(), "as its digest has it"),
        ("a digest that is a path", plain(&foreign.to_string()), "only sha256"),
        ("no JSON", plain("<html>"), "not understood"),
        ("no layers", plain("{}"), "0 layers"),
        ("too large a manifest", vec![answer("200 OK", "", &large)], "maxSizeMB"),
        ("too many layers", Artifact::new(&many).answers(), "maxFiles"),
    ] {
        let refused = pulled(answers, &json!({})).await.expect_err(what);
        assert!(refused.contains(says), "{what}: {refused}");
    }
    let two = Artifact::new(&[(FILE, titled("a"), b"one"), (FILE, titled("b"), b"two")]);
    let refused = pulled(two.answers(), &json!({ "getterMode": "file" })).await.expect_err("two");
    assert!(refused.contains("2 layers"), "{refused}");
}

#[tokio::test]
async fn b_048_an_object_of_a_bucket_is_asked_for_with_a_signature_where_there_are_keys() {
    for (more, is_signed) in [
        (json!({}), false),
        (
            json!({ "getterOptions": { "aws_access_key_id": "AK", "aws_access_key_secret": "hush", "region": "eu-x" },
                 "getterHeaders": { "X-Other": "1" } }),
            true,
        ),
    ] {
        let server = Server::new(vec![answer("200 OK", "", b"the program")]).await;
        let source = format!("s3::http://127.0.0.1:{}/bucket/dir/app%20x", server.port);
        assert_eq!(get(&order(&source, &more, LOOPBACK)).await.expect("fetched"), b"the program");
        let asked = server.asked().await.remove(0);
        assert!(asked.starts_with("GET /bucket/dir/app%20x"), "{asked}");
        let is_seen =
            asked.contains("X-Amz-Signature=") && asked.contains("X-Amz-Credential=AK%2F") && asked.contains("eu-x");
        assert_eq!(is_seen, is_signed, "{asked}");
        assert!(!asked.contains("hush") && !asked.contains("x-other"), "{asked}");
    }
}

/// Entries of a tar archive.
struct Packer(tar::Builder<Vec<u8>>);

impl Packer {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    /// An entry with exactly this name, which a careful packer would not write.
    fn entry(mut self, name: &str, kind: tar::EntryType, mode: u32, body: &[u8]) -> Self {
        let mut header = tar::Header::new_gnu();
        header.as_gnu_mut().expect("gnu").name[..name.len()].copy_from_slice(name.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(body.len() as u64);
        if kind == tar::EntryType::Symlink || kind == tar::EntryType::Link {
            header.set_link_name("/etc/passwd").expect("a name");
        }
        header.set_cksum();
        self.0.append(&header, body).expect("packed");
        self
    }

    fn file(self, name: &str, body: &[u8]) -> Self {
        self.entry(name, tar::EntryType::Regular, 0o644, body)
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().expect("packed")
    }
}

fn open(name: &str, bytes: &[u8]) -> (tempfile::TempDir, Result<(), String>) {
    let dir = tempfile::tempdir().expect("a directory");
    fs::write(dir.path().join("download"), bytes).expect("a file");
    let plan = order(&format!("https://a/{name}"), &json!({}), &[]).plan;
    let part = Part { file: dir.path().join("download"), form: Form::Archive(plan.form), name: plan.file_name };
    let done = unpack(&[part], &dir.path().join("result"), LIMITS);
    (dir, done)
}

fn gz(bytes: &[u8]) -> Vec<u8> {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(bytes).and_then(|()| packed.finish()).expect("packed")
}

fn zipped(entries: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, mode, body) in entries {
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
        if mode & 0o170_000 == 0o120_000 {
            writer.add_symlink(*name, "/etc/passwd", options).expect("packed");
        } else {
            writer.start_file(*name, options.unix_permissions(*mode)).expect("packed");
            writer.write_all(body).expect("packed");
        }
    }
    writer.finish().expect("packed").into_inner()
}

#[test]
fn archives_of_each_kind_are_unpacked_with_their_modes() {
    let tar = Packer::new()
        .entry("app/", tar::EntryType::Directory, 0o750, b"")
        .entry("app/run", tar::EntryType::Regular, 0o755, b"run")
        .file("./app/etc/conf", b"conf")
        .file("app/etc/conf", b"newer")
        .bytes();
    // As `xz` and `zstd` pack the bytes "one\n", and `bzip2` does.
    let xz: &[u8] = &[
        0xfd, 0x37, 0x7a, 0x58, 0x5a, 0, 0, 4, 0xe6, 0xd6, 0xb4, 0x46, 2, 0, 0x21, 1, 0x16, 0, 0, 0, 0x74, 0x2f, 0xe5,
        0xa3, 1, 0, 3, 0x6f, 0x6e, 0x65, 0x0a, 0,
    ];
    assert!(open("one.xz", xz).1.is_err(), "cut off");
    let zip = zipped(&[("app/run", 0o755, b"run"), ("app/etc/conf", 0o644, b"newer")]);
    for (name, bytes) in [("a.tar", tar.clone()), ("a.tgz", gz(&tar)), ("a.zip", zip)] {
        let (dir, done) = open(name, &bytes);
        done.expect(name);
        let at = |path: &str| dir.path().join("result").join(path);
        assert_eq!(fs::read_to_string(at("app/etc/conf")).expect("a file"), "newer", "{name}");
        let mode = |path: &str| fs::metadata(at(path)).expect("a file").permissions().mode() & 0o7777;
        assert_eq!((mode("app/run"), mode("app/etc/conf")), (0o755, 0o644), "{name}");
    }
    let (dir, done) = open("notes.txt.gz", &gz(b"text"));
    done.expect("unpacked");
    assert_eq!(fs::read_to_string(dir.path().join("result/notes.txt")).expect("a file"), "text");
}

#[test]
fn b_047_a_157_an_archive_that_wants_more_than_files_is_refused_and_leaves_nothing_outside() {
    use tar::EntryType as T;
    let many = (0..5000).fold(Packer::new(), |packer, n| packer.file(&format!("{n}"), b"")).bytes();
    let bomb = Packer::new().file("zeros", &vec![0; 2 << 20]).bytes();
    let deep = format!("{}x", "d/".repeat(45));
    for (what, name, bytes, says) in [
        ("up", "a.tar", Packer::new().file("../x", b"x").bytes(), "leads out"),
        ("up and down", "a.tar", Packer::new().file("a/../../x", b"x").bytes(), "leads out"),
        ("absolute", "a.tar", Packer::new().file("/tmp/drover-x", b"x").bytes(), "leads out"),
        ("symlink", "a.tar", Packer::new().entry("x", T::Symlink, 0o777, b"").bytes(), "is a link"),
        ("hard link", "a.tar", Packer::new().entry("x", T::Link, 0o644, b"").bytes(), "is a link"),
        ("device", "a.tar", Packer::new().entry("x", T::Char, 0o644, b"").bytes(), "neither a file"),
        ("fifo", "a.tar", Packer::new().entry("x", T::Fifo, 0o644, b"").bytes(), "neither a file"),
        ("setuid", "a.tar", Packer::new().entry("x", T::Regular, 0o4755, b"x").bytes(), "setuid"),
        ("setgid", "a.tar", Packer::new().entry("x", T::Regular, 0o2755, b"x").bytes(), "setgid"),
        ("5,000 files", "a.tar.gz", gz(&many), "maxFiles"),
        (
            "64 levels of new directories",
            "a.tar",
            (0..3).fold(Packer::new(), |packer, n| packer.file(&format!("{n}{deep}"), b"")).bytes(),
            "maxFiles",
        ),
        ("bomb", "a.tar.gz", gz(&bomb), "maxSizeMB"),
        ("bomb of one file", "a.gz", gz(&vec![0; 2 << 20]), "maxSizeMB"),
        ("file and directory", "a.tar", Packer::new().file("x", b"").file("x/y", b"").bytes(), "cannot be made"),
        ("zip, up", "a.zip", zipped(&[("../x", 0o644, b"x")]), "leads out"),
        ("zip, symlink", "a.zip", zipped(&[("x", 0o120_777, b"")]), "is a link"),
        ("zip, bomb", "a.zip", zipped(&[("x", 0o644, &vec![0; 2 << 20])]), "maxSizeMB"),
        ("no archive", "a.tar", b"<html>not found</html>".to_vec(), "tar archive"),
        ("no zip", "a.zip", b"<html>not found</html>".to_vec(), "zip archive"),
        ("no gzip", "a.tar.gz", b"<html>not found</html>".to_vec(), "tar archive"),
        ("no zstd", "a.tar.zst", b"<html>not found</html>".to_vec(), "tar archive"),
        ("no bzip2", "a.tar.bz2", b"<html>not found</html>".to_vec(), "tar archive"),
    ] {
        let (dir, done) = open(name, &bytes);
        let refused = done.expect_err(what);
        assert!(refused.contains(says), "{what}: {refused}");
        let names: Vec<_> =
            fs::read_dir(dir.path()).expect("a list").map(|entry| entry.expect("an entry").file_name()).collect();
        assert_eq!(names.len(), 2, "{what}: {names:?}");
    }
    assert!(!Path::new("/tmp/drover-x").exists());
}

async fn commit(order: Order) -> Result<Vec<Part>, String> {
    let done = tokio::task::spawn_blocking(move || {
        let (dir, trust) = (tempfile::tempdir().expect("a directory"), Trust::of_node());
        let waiting = Waiting::new(Duration::from_secs(LIMITS.seconds))?;
        let FetchWay::Git(tree) = &order.plan.way else { panic!("{order:?}") };
        let web = Web { trust: &trust, allowed: &order.allowed };
        let parts = git::download((&order, tree), web, dir.path(), &waiting)?;
        unpack(&parts, &dir.path().join("result"), LIMITS).map(|()| parts)
    });
    done.await.expect("no panic")
}

/// Lines as git has them: each with its length, in four digits.
fn packet(lines: &[&str]) -> Vec<u8> {
    let line = |line: &&str| if line.is_empty() { "0000".to_owned() } else { format!("{:04x}{line}", line.len() + 4) };
    lines.iter().map(line).collect::<String>().into_bytes()
}

const ADVERTISED: &str = "Content-Type: application/x-git-upload-pack-advertisement\r\n";
const RESULT: &str = "Content-Type: application/x-git-upload-pack-result\r\n";

#[tokio::test]
async fn b_048_must_survive_servers_of_git_that_mean_no_good() {
    let (digits, known) =
        ("0a".repeat(20), ["# service=git-upload-pack\n", "", "version 2\n", "ls-refs\n", "fetch=shallow\n", ""]);
    let begin = || answer("200 OK", ADVERTISED, &packet(&known));
    let has = |bytes: &[u8]| answer("200 OK", RESULT, bytes);
    let head = || has(&packet(&[&format!("{digits} HEAD symref-target:refs/heads/main\n"), ""]));
    let pack = |bytes: &[u8]| {
        let length = format!("{:04x}\u{1}", bytes.len() + 5);
        has(&[&packet(&["packfile\n"])[..], length.as_bytes(), bytes, b"0000"].concat())
    };
    let empty = [&b"PACK\0\0\0\x02\0\0\0\0"[..], &sha1::Sha1::digest(b"PACK\0\0\0\x02\0\0\0\0")[..]].concat();
    let too_large = vec![b'x'; usize::try_from(LIMITS.bytes).expect("a size") + 1];
    for (what, answers, says) in [
        (
            "leads away",
            vec![answer("302 Found", "Location: http://169.254.169.254/x/info/refs\r\n", b"")],
            "is not asked",
        ),
        (
            "leads to no repository",
            vec![answer("302 Found", "Location: /login\r\n", b""), begin()],
            "which is no repository",
        ),
        ("wants a user", vec![answer("401 Who", "", b"")], "give the header Authorization"),
        ("is none", vec![answer("200 OK", "Content-Type: text/html\r\n", b"<html>")], "smart"),
        ("says too much", vec![answer("200 OK", ADVERTISED, &too_large)], ""),
        ("says nothing", vec![answer("200 OK", ADVERTISED, b"")], ""),
        ("counts wrong", vec![answer("200 OK", ADVERTISED, b"ffffversion 2")], ""),
        ("lies", vec![answer("200 OK", ADVERTISED, b"zzzz")], ""),
        ("has no such name", vec![begin(), has(b"0000")], "no commit at HEAD"),
        ("sends rubbish", vec![begin(), head(), has(b"rubbish")], ""),
        ("has an error", vec![begin(), head(), has(&packet(&["ERR no such thing\n"]))], "no such thing"),
        ("sends no pack", vec![begin(), head(), has(b"0000")], ""),
        ("sends a broken pack", vec![begin(), head(), pack(b"PACK\0\0\0\x02\0\0\0\x09rubbish")], ""),
        ("sends half a pack", vec![begin(), head(), pack(&empty[..20])], ""),
        ("sends an empty pack", vec![begin(), head(), pack(&empty)], ""),
        ("sends too much", vec![begin(), head(), has(&too_large)], ""),
        ("leads on a request", vec![begin(), answer("302 Found", "Location: /x\r\n", b"")], "answered 302"),
    ] {
        let server = Server::new(answers).await;
        let refused = commit(order(&format!("git::http://127.0.0.1:{}/x", server.port), &json!({}), LOOPBACK)).await;
        let refused = refused.expect_err(what);
        assert!(refused.contains(says) && refused.len() < 400, "{what}: {refused}");
    }
}
