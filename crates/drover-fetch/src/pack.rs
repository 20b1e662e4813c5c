//! A pack of git's objects, as it was downloaded: no repository, no configuration, no hooks. What its commit has is
//! read of it, object by object.

use std::path::Path;

use gix_hash::{Kind as HashKind, ObjectId};
use gix_object::tree::EntryKind;
use gix_object::{CommitRefIter, Kind, TagRefIter, TreeRefIter};
use gix_pack::Bundle;
use gix_pack::cache::Never;
use gix_zlib::Inflate;

/// Largest file of a repository; one that is larger would take the memory of the fetch.
pub(crate) const MOST_OBJECT: usize = 128 * 1024 * 1024;
/// Most tags one of another.
const MOST_TAGS: usize = 8;

/// What is wanted of a pack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Commit {
    /// A commit, or a tag of one.
    pub(crate) id: ObjectId,
    /// Its path in the repository, without a slash at either end; empty: all of it.
    pub(crate) folder: String,
    /// Whether it is a file.
    pub(crate) is_file: bool,
}

impl Commit {
    /// The name of what is wanted.
    pub(crate) fn name(&self) -> &str {
        self.folder.rsplit('/').next().unwrap_or_default()
    }
}

/// What a folder of a repository has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    File { blob: ObjectId, is_program: bool },
    Folder(ObjectId),
    Link,
    Submodule,
}

/// A pack with its index.
pub(crate) struct Pack {
    bundle: Bundle,
    inflate: Inflate,
    object: Vec<u8>,
}

impl Pack {
    /// Opens the file of a pack, or of an index.
    pub(crate) fn open(file: &Path) -> Result<Self, String> {
        let bundle = Bundle::at(file, HashKind::Sha1);
        let bundle = bundle.map_err(|error| format!("the download cannot be read: {}", error.probable_cause()))?;
        Ok(Self { bundle, inflate: Inflate::default(), object: Vec::new() })
    }

    fn get(&mut self, id: ObjectId) -> Result<Kind, String> {
        let found = self.bundle.find(&id, &mut self.object, &mut self.inflate, &mut Never);
        match found.map_err(|error| format!("object {id} cannot be read: {}", error.probable_cause()))? {
            Some((data, _)) => Ok(data.kind),
            None => Err(format!("the server did not send object {id}, which the commit has")),
        }
    }

    /// What the commit has at the path.
    pub(crate) fn find(&mut self, commit: &Commit) -> Result<Item, String> {
        let mut found = Item::Folder(self.tree(commit.id)?);
        let mut seen = String::new();
        for part in commit.folder.split('/').filter(|part| !part.is_empty()) {
            let Item::Folder(tree) = found else { return Err(format!("{seen} is no folder of the repository")) };
            seen = if seen.is_empty() { part.to_owned() } else { format!("{seen}/{part}") };
            let inner = self.folder(tree)?.into_iter().find(|(name, _)| name == part);
            found = inner.ok_or_else(|| format!("the repository has no {seen} in commit {}", commit.id))?.1;
        }
        Ok(found)
    }

    /// The whole tree of a commit, or of the commit that a tag is of.
    fn tree(&mut self, id: ObjectId) -> Result<ObjectId, String> {
        let mut id = id;
        for _ in 0..MOST_TAGS {
            let wrong = |error: gix_error::Error| format!("object {id} cannot be read: {}", error.probable_cause());
            match self.get(id)? {
                Kind::Commit => {
                    return CommitRefIter::from_bytes(&self.object, HashKind::Sha1).tree_id().map_err(wrong);
                }
                Kind::Tree => return Ok(id),
                Kind::Tag => {
                    id = TagRefIter::from_bytes(&self.object, HashKind::Sha1).target_id().map_err(wrong)?;
                }
                Kind::Blob => break,
            }
        }
        Err(format!("object {id} is no commit"))
    }

    /// What a folder has, by name.
    pub(crate) fn folder(&mut self, tree: ObjectId) -> Result<Vec<(String, Item)>, String> {
        if self.get(tree)? != Kind::Tree {
            return Err(format!("object {tree} is no folder"));
        }
        let entries = TreeRefIter::from_bytes(&self.object, HashKind::Sha1).map(|entry| {
            let entry = entry.map_err(|error| format!("folder {tree} cannot be read: {}", error.probable_cause()))?;
            let name = str::from_utf8(entry.filename).map_err(|_| "a file's name is no UTF-8".to_owned())?;
            let id = entry.oid.to_owned();
            let item = match entry.mode.kind() {
                EntryKind::Tree => Item::Folder(id),
                EntryKind::Blob => Item::File { blob: id, is_program: false },
                EntryKind::BlobExecutable => Item::File { blob: id, is_program: true },
                EntryKind::Link => Item::Link,
                EntryKind::Commit => Item::Submodule,
            };
            Ok((name.to_owned(), item))
        });
        entries.collect()
    }

    /// The content of a file.
    pub(crate) fn file(&mut self, blob: ObjectId) -> Result<&[u8], String> {
        match self.get(blob)? {
            Kind::Blob => Ok(&self.object),
            _ => Err(format!("object {blob} is no file")),
        }
    }
}
