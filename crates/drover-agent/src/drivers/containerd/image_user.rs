//! The user of a container, as the files of its image know it.
//!
//! Input: `NAME`, `UID`, `NAME:GROUP` or `UID:GID`, and the image's own lists. Output: numbers. Must never know the
//! accounts of the node.

use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use drover_containerd::api::types::Mount;
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// The most bytes of a list of users.
const MAX_LIST_BYTES: u64 = 1 << 20;

/// Numbers of a container's first process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ImageUser {
    pub(super) uid: u32,
    pub(super) gid: u32,
    /// More groups.
    pub(super) groups: Vec<u32>,
}

/// The image's lists of users and groups.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageAccounts {
    passwd: String,
    group: String,
}

impl ImageAccounts {
    /// Reads them of the layers that a container's root is mounted of. An image without them has none.
    ///
    /// # Errors
    /// When a list is no file, or too long.
    pub(super) fn read(root: &[Mount]) -> io::Result<Self> {
        let layers = layers(root);
        Ok(Self { passwd: list(&layers, "etc/passwd")?, group: list(&layers, "etc/group")? })
    }

    /// The user that a text names, with more groups; an empty text is root.
    ///
    /// # Errors
    /// The name that the image does not know.
    pub(super) fn find(&self, text: &str, more_groups: &[String]) -> Result<ImageUser, String> {
        let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
        let number = if user.is_empty() { Some(0) } else { user.parse::<u32>().ok() };
        let known = self.users().find(|known| number.map_or(known.name == user, |uid| known.uid == uid));
        let uid = number.or(known.as_ref().map(|known| known.uid)).ok_or_else(|| {
            format!("user {user:?} is not in the image's /etc/passwd: take one of it, or a number as UID:GID")
        })?;
        let gid = match group.filter(|group| !group.is_empty()) {
            Some(group) => self.group(group)?,
            // As with Docker: a number of which the image knows nothing is in root's group.
            None => known.as_ref().map_or(0, |known| known.gid),
        };
        let mut groups: Vec<u32> = Vec::new();
        // As with Docker: who names a group gets that one alone.
        if let (Some(known), None) = (&known, group) {
            groups.extend(self.groups_of(known.name));
        }
        for group in more_groups {
            groups.push(self.group(group)?);
        }
        groups.sort_unstable();
        groups.dedup();
        Ok(ImageUser { uid, gid, groups })
    }

    fn users(&self) -> impl Iterator<Item = KnownUser<'_>> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let (name, uid, gid) = (fields.next()?, fields.nth(1)?, fields.next()?);
            Some(KnownUser { name, uid: uid.parse().ok()?, gid: gid.parse().ok()? })
        })
    }

    fn group(&self, text: &str) -> Result<u32, String> {
        if let Ok(gid) = text.parse() {
            return Ok(gid);
        }
        let found = self.group.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next()? == text).then(|| fields.nth(1)?.parse().ok()).flatten()
        });
        found.ok_or_else(|| format!("group {text:?} is not in the image's /etc/group: take one of it, or a number"))
    }

    fn groups_of(&self, user: &str) -> impl Iterator<Item = u32> {
        self.group.lines().filter_map(move |line| {
            let mut fields = line.split(':').skip(2);
            let (gid, members) = (fields.next()?, fields.next()?);
            members.split(',').any(|member| member == user).then(|| gid.parse().ok()).flatten()
        })
    }
}

struct KnownUser<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

/// The directories of a root, the uppermost first.
fn layers(root: &[Mount]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for mount in root {
        if mount.r#type != "overlay" {
            found.push(PathBuf::from(&mount.source));
            continue;
        }
        let option = |name: &str| mount.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='));
        found.extend(option("upperdir").map(PathBuf::from));
        found.extend(option("lowerdir").into_iter().flat_map(|dirs| dirs.split(':')).map(PathBuf::from));
    }
    found
}

/// What the uppermost layer has that has the file; nothing when none has.
fn list(layers: &[PathBuf], name: &str) -> io::Result<String> {
    for layer in layers {
        match open(layer, name) {
            Ok(file) => {
                let metadata = rustix::fs::fstat(&file)?;
                match FileType::from_raw_mode(metadata.st_mode) {
                    FileType::RegularFile => return read(&file, name),
                    // A layer that takes away what the ones below it have.
                    FileType::CharacterDevice => return Ok(String::new()),
                    _ => return Err(io::Error::new(io::ErrorKind::InvalidData, format!("/{name} is no file"))),
                }
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(String::new())
}

/// Opens a file of a layer, whose links lead nowhere but into the layer.
fn open(layer: &Path, name: &str) -> rustix::io::Result<OwnedFd> {
    let root = rustix::fs::openat(CWD, layer, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(&root, name, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), resolve)
}

fn read(file: &OwnedFd, name: &str) -> io::Result<String> {
    let file = std::fs::File::open(crate::node::beneath::held_path(file))?;
    let mut text = Vec::new();
    file.take(MAX_LIST_BYTES + 1).read_to_end(&mut text)?;
    if u64::try_from(text.len()).unwrap_or(u64::MAX) > MAX_LIST_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/{name} has more than {MAX_LIST_BYTES} bytes"),
        ));
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b_001_the_user_is_the_one_that_the_image_knows() {
        let accounts = ImageAccounts {
            passwd: "root:x:0:0::/:/bin/sh\nweb:x:101:102::/:/bin/sh\nbroken\n".into(),
            group: "root:x:0:\nweb:x:102:\nlogs:x:7:root,web\n".into(),
        };
        let none = ImageAccounts::default();
        let user = |uid, gid, groups: &[u32]| Ok(ImageUser { uid, gid, groups: groups.to_vec() });
        for (accounts, text, more, wanted) in [
            (&accounts, "", "", user(0, 0, &[7])),
            (&accounts, "web", "", user(101, 102, &[7])),
            (&accounts, "101", "", user(101, 102, &[7])),
            (&accounts, "web:root", "", user(101, 0, &[])),
            (&accounts, "5:logs", "web 9", user(5, 7, &[9, 102])),
            (&none, "", "", user(0, 0, &[])),
            (&none, "1000", "", user(1000, 0, &[])),
            (&none, "1000:1000", "", user(1000, 1000, &[])),
        ] {
            let more: Vec<String> = more.split_whitespace().map(str::to_owned).collect();
            assert_eq!(accounts.find(text, &more), wanted, "{text}");
        }
        assert!(none.find("web", &[]).expect_err("unknown").contains("user \"web\" is not in the image's /etc/passwd"));
        assert!(accounts.find("web:no", &[]).expect_err("unknown").contains("group \"no\""));
        assert!(accounts.find("web", &["no".into()]).expect_err("unknown").contains("group \"no\""));
    }

    #[test]
    fn lists_come_from_the_uppermost_layer_that_has_them_and_from_nowhere_else() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = |name: &str| dir.path().join(name);
        for layer in ["up", "mid", "low", "link"] {
            std::fs::create_dir_all(path(layer).join("etc")).expect("a directory");
        }
        std::fs::write(path("mid/etc/passwd"), "a:x:1:1::\n").expect("a file");
        std::fs::write(path("low/etc/passwd"), "b:x:2:2::\n").expect("a file");
        std::os::unix::fs::symlink("/etc/passwd", path("link/etc/passwd")).expect("a link");
        let overlay = |layers: &[&str]| {
            let lower: Vec<String> = layers.iter().map(|layer| path(layer).display().to_string()).collect();
            let options = vec![
                format!("workdir={}", path("work").display()),
                format!("upperdir={}", path("up").display()),
                format!("lowerdir={}", lower.join(":")),
            ];
            [Mount { r#type: "overlay".into(), source: "overlay".into(), options, ..Mount::default() }]
        };
        let read = |root: &[Mount]| ImageAccounts::read(root).expect("lists").passwd;
        assert_eq!(read(&overlay(&["mid", "low"])), "a:x:1:1::\n");
        let bind = Mount { r#type: "bind".into(), source: path("low").display().to_string(), ..Mount::default() };
        assert_eq!(read(&[bind]), "b:x:2:2::\n");
        // A link of an image to a file of the node leads to nothing.
        let found = ImageAccounts::read(&overlay(&["link", "low"]));
        assert!(found.is_err() || found.expect("lists").passwd == "b:x:2:2::\n");
    }
}
