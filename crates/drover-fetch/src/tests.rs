//! Downloads and archives of servers that mean no good, on the loopback device.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use drover_api::names::hex;
use drover_core::artifact::fetch_plan;
use serde_json::{Value, json};
use sha2::Digest;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::connect::Trust;
use crate::download::download;
use crate::order::{FetchLimits, Order};
use crate::unpack::unpack;

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
                asked.push(String::from_utf8(head).expect("text"));
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
    let to = dir.path().join("download");
    download(order, &Trust::of_node(), &to).await.map(|()| fs::read(&to).expect("a file"))
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
    let done = unpack(&dir.path().join("download"), &dir.path().join("result"), &plan, LIMITS);
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
