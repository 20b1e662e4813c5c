//! Disks that come as they were, and streams that would lead out of the allocation's directory or fill the node.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use drover_core::lifecycle::GarbageLimits;
use tokio::sync::mpsc;

use super::*;
use crate::node::alloc_dir::{AllocDir, TaskFolder};
use crate::node::disk::{Disk as _, HostDisk, KeptDisk};
use crate::node::disk_reader::{DiskPiece, pieces};

/// Two allocations with tasks `web` and `log`; their mounts go with them.
struct World {
    old: AllocDir,
    new: AllocDir,
    _dir: tempfile::TempDir,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let [old, new] = ["old", "new"].map(|uid| {
            let alloc = AllocDir::new(dir.path(), uid);
            alloc.build(None).expect("built");
            for task in ["web", "log"] {
                alloc.build_task(&TaskFolder { task, secrets_mb: 1, owner: None }).expect("built");
            }
            alloc
        });
        Self { old, new, _dir: dir }
    }

    /// What becomes of these pieces in the new allocation.
    async fn receive(&self, sent: Vec<DiskPiece>, reserved: u64, limits: GarbageLimits) -> Result<Written, String> {
        let (tell, pieces) = mpsc::channel(sent.len().max(1));
        for piece in sent {
            tell.try_send(piece).expect("room");
        }
        drop(tell);
        let kept = KeptDisk { tasks: vec!["web".to_owned(), "log".to_owned()], reserved };
        HostDisk { limits }.receive(&self.new, kept, pieces).await.map_err(|error| error.to_string())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for alloc in [&self.old, &self.new] {
            alloc.destroy().expect("destroyed");
        }
    }
}

/// A disk that has room for everything, and one that has none.
const EMPTY: GarbageLimits = GarbageLimits { disk_percent: 100, inode_percent: 100, live: 1 };
const FULL: GarbageLimits = GarbageLimits { disk_percent: 0, inode_percent: 0, live: 1 };
const MIB: u64 = 1024 * 1024;

fn entry(path: &str, kind: DiskEntryKind, mode: u32) -> DiskPiece {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    DiskPiece::Entry(DiskEntry { path: path.to_owned(), kind, mode, uid, gid, modified_seconds: 1_000_000_000 })
}

fn dir(path: &str) -> DiskPiece {
    entry(path, DiskEntryKind::Directory, 0o755)
}

fn file(path: &str) -> DiskPiece {
    entry(path, DiskEntryKind::File, 0o640)
}

fn link(path: &str, target: &str) -> DiskPiece {
    entry(path, DiskEntryKind::Link(target.to_owned()), 0o777)
}

fn data(text: &str) -> DiskPiece {
    DiskPiece::Data(text.as_bytes().to_vec())
}

async fn read(alloc: &AllocDir) -> Vec<DiskPiece> {
    let mut pieces = pieces(alloc, vec!["web".to_owned(), "log".to_owned()]);
    let mut all = Vec::new();
    while let Some(piece) = pieces.recv().await {
        all.push(piece.expect("read"));
    }
    all
}

#[tokio::test]
async fn what_a_disk_keeps_comes_with_its_names_rights_links_and_times() {
    let world = World::new();
    let (data, local) = (world.old.shared().join("data"), world.old.task("web").join("local"));
    let strange = OsStr::from_bytes(b"caf\xe9 50%41\n");
    fs::create_dir_all(data.join("deep/er")).expect("a directory");
    fs::write(data.join("deep/er/rows"), vec![7; 200_000]).expect("a file");
    fs::set_permissions(data.join("deep/er/rows"), fs::Permissions::from_mode(0o6751)).expect("a mode");
    fs::write(data.join(strange), "strange").expect("a file");
    fs::write(data.join("empty"), "").expect("a file");
    symlink("deep/er/rows", data.join("now")).expect("a link");
    symlink("../../web/local/cache", data.join("cache")).expect("a link");
    fs::write(local.join("cache"), "kept too").expect("a file");
    fs::write(world.old.task("web").join("secrets/key"), "not kept").expect("a file");
    rustix::fs::mkfifoat(rustix::fs::CWD, data.join("fifo"), Mode::RWXU).expect("a FIFO");
    let _socket = std::os::unix::net::UnixListener::bind(data.join("socket")).expect("a socket");
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(1_234_567_890);
    let times = FileTimes::new().set_modified(at);
    File::options().write(true).open(local.join("cache")).expect("a file").set_times(times).expect("a time");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(local.join("cache"), Some(4242), Some(4343)).expect("an owner");
    }

    let written = world.receive(read(&world.old).await, 0, EMPTY).await.expect("received");
    assert_eq!(written, Written { n_files: 11, n_bytes: 200_000 + 7 + 8 });
    let (data, local) = (world.new.shared().join("data"), world.new.task("web").join("local"));
    let mode = |path: &Path| fs::symlink_metadata(path).expect("metadata").mode() & 0o7777;
    assert_eq!(fs::read(data.join("deep/er/rows")).expect("a file"), vec![7; 200_000]);
    assert_eq!(mode(&data.join("deep/er/rows")), 0o751, "without the rights of its owner");
    assert_eq!(fs::read_to_string(data.join(strange)).expect("a file"), "strange");
    assert_eq!(fs::read(data.join("empty")).expect("a file").len(), 0);
    assert_eq!(fs::read_link(data.join("now")).expect("a link"), Path::new("deep/er/rows"));
    assert_eq!(fs::read_to_string(data.join("cache")).expect("a file"), "kept too");
    assert!(!data.join("fifo").exists() && !data.join("socket").exists());
    assert!(!world.new.task("web").join("secrets/key").exists());
    let found = fs::metadata(local.join("cache")).expect("metadata");
    assert_eq!(found.modified().expect("a time"), at);
    if rustix::process::geteuid().is_root() {
        assert_eq!((found.uid(), found.gid()), (4242, 4343), "what is of third users stays theirs");
    }
    assert!(!world.new.root().join(".arriving").exists());
}

/// Nothing outside changes, nothing of it stays, and the allocation begins with an empty disk.
#[tokio::test]
async fn must_survive_a_167_an_agent_that_sends_what_leads_out() {
    let outside = tempfile::tempdir().expect("a directory");
    let out = outside.path().to_str().expect("a path");
    let top = || dir("alloc/data");
    let streams: Vec<(Vec<DiskPiece>, &str)> = vec![
        (vec![top(), file("alloc/data/../escape.txt"), data("x")], "leads out"),
        (vec![top(), file("../escape.txt"), data("x")], "leads out"),
        (vec![top(), file("/etc/escape.txt"), data("x")], "leads out"),
        (vec![top(), file("alloc/data//escape.txt")], "leads out"),
        (vec![top(), file("alloc/data/a%00b")], "holds a zero"),
        (vec![top(), file(&format!("alloc/data/{}", "n".repeat(5000)))], "too long"),
        (vec![top(), file(&format!("alloc/data/{}x", "d/".repeat(200)))], "too many directories deep"),
        (vec![top(), link("alloc/data/l", "../../../escape.txt")], "the link leads out"),
        (vec![top(), link("alloc/data/l", "a/../../../../escape.txt")], "the link leads out"),
        (vec![top(), link("alloc/data/l", "/etc/passwd")], "the link leads out"),
        (vec![top(), link("alloc/data/l", "")], "the link leads out"),
        // Written through a link, or in its place.
        (vec![top(), link("alloc/data/l", "deep"), file("alloc/data/l/x"), data("x")], "cannot be made"),
        (vec![top(), dir("alloc/data/l"), link("alloc/data/l", "x")], "cannot be made"),
        (vec![top(), link("alloc/data/l", "x"), dir("alloc/data/l")], "cannot be made"),
        (vec![link("alloc/data", "../../.."), file("alloc/data/x")], "cannot be made"),
        (vec![file("alloc/data/x"), data("x")], "cannot be made"),
        // What does not end.
        (vec![top(), file("alloc/data/x"), data("half")], "not all of it has come"),
    ];
    for (mut sent, wanted) in streams {
        let world = World::new();
        if wanted != "not all of it has come" {
            sent.push(DiskPiece::End);
        }
        let refused = world.receive(sent.clone(), 100 * MIB, EMPTY).await.expect_err("refused");
        assert!(refused.contains(wanted), "{sent:?}: {refused}");
        let left = fs::read_dir(world.new.shared().join("data")).expect("an empty disk").count();
        assert_eq!((left, world.new.root().join(".arriving").exists()), (0, false), "{sent:?}");
    }
    assert_eq!(fs::read_dir(out).expect("a directory").count(), 0);
    assert!(!Path::new("/etc/escape.txt").exists());
}

#[tokio::test]
async fn what_is_named_elsewhere_is_left_out_and_what_comes_twice_is_replaced() {
    let world = World::new();
    let sent = vec![
        dir("alloc/data"),
        file("alloc/data/x"),
        data("first"),
        link("alloc/data/x", "y"),
        file("alloc/data/x"),
        data("last"),
        // Of no task of this group, and of no place that a sticky disk keeps.
        dir("other/local"),
        file("other/local/x"),
        data("x"),
        file("web/secrets/key"),
        data("x"),
        file("alloc/logs/web.stdout.0"),
        data("x"),
        file("escape"),
        data("x"),
        DiskPiece::End,
    ];
    world.receive(sent, 100 * MIB, EMPTY).await.expect("received");
    let x = world.new.shared().join("data/x");
    assert_eq!(fs::read_to_string(x).expect("a file"), "last");
    for other in ["other", "web/secrets/key", "alloc/logs/web.stdout.0", "escape"] {
        assert!(!world.new.root().join(other).exists(), "{other}");
    }
}

/// What a group has reserved always fits; more of it, or files without number, only as long as the node has room.
#[tokio::test]
async fn must_survive_a_disk_without_end() {
    let large = || [vec![dir("alloc/data"), file("alloc/data/x")], vec![data(&"x".repeat(60_000)); 100]].concat();
    let many = || {
        let files = (0..3000).map(|n| file(&format!("alloc/data/{n}")));
        std::iter::once(dir("alloc/data")).chain(files).collect::<Vec<_>>()
    };
    for sent in [large(), many()] {
        let sent = || [sent.clone(), vec![DiskPiece::End]].concat();
        let world = World::new();
        let refused = world.receive(sent(), MIB, FULL).await.expect_err("refused");
        assert!(refused.contains("larger than the 1 MB that the group reserves"), "{refused}");
        assert_eq!(fs::read_dir(world.new.shared().join("data")).expect("an empty disk").count(), 0);
        assert!(world.receive(sent(), 100 * MIB, FULL).await.is_ok(), "reserved");
        let world = World::new();
        assert!(world.receive(sent(), MIB, EMPTY).await.is_ok(), "there is room");
    }
}

/// A generator beside the cases: random trees come as they were, whatever their names.
#[tokio::test]
async fn every_tree_comes_as_it_was() {
    fn shape(root: &Path) -> Vec<(Vec<u8>, u32, Vec<u8>)> {
        let mut found = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(next).expect("a directory") {
                let path = entry.expect("an entry").path();
                let metadata = path.symlink_metadata().expect("metadata");
                let holds = if metadata.is_dir() {
                    open.push(path.clone());
                    Vec::new()
                } else if metadata.is_symlink() {
                    fs::read_link(&path).expect("a link").into_os_string().as_bytes().to_vec()
                } else {
                    fs::read(&path).expect("a file")
                };
                let name = path.strip_prefix(root).expect("beneath").as_os_str().as_bytes().to_vec();
                found.push((name, metadata.mode(), holds));
            }
        }
        found.sort();
        found
    }

    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = World::new();
        let root = world.old.shared().join("data");
        let mut dirs = vec![root.clone()];
        for _ in 0..random.usize(0..40) {
            let length = random.usize(1..12);
            let bytes = std::iter::repeat_with(|| random.u8(1..)).filter(|byte| *byte != b'/').take(length);
            let name: Vec<u8> = bytes.collect();
            let path = dirs[random.usize(..dirs.len())].join(OsStr::from_bytes(&name));
            if path.symlink_metadata().is_ok() || matches!(&name[..], b"." | b"..") {
                continue;
            }
            match random.u8(0..3) {
                0 => {
                    fs::create_dir(&path).expect("a directory");
                    dirs.push(path);
                }
                1 => symlink(OsStr::from_bytes(&name), &path).expect("a link"),
                _ => {
                    let size = random.usize(0..150_000);
                    fs::write(&path, vec![random.u8(..); size]).expect("a file");
                    let mode = 0o400 | random.u32(0..0o1000);
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("a mode");
                }
            }
        }
        let before = shape(&root);
        world.receive(read(&world.old).await, 0, EMPTY).await.expect("received");
        assert_eq!(shape(&world.new.shared().join("data")), before, "{seed}");
    }
}
