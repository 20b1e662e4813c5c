//! Says when something in a folder changes, so that who waits for that need not look again and again.
//!
//! Input: folders that are held open. Output: a sign for each, when a file in it is written, made, renamed or deleted.
//! One descriptor of the kernel's inotify for all; those who follow the same folder share what the kernel keeps for it.
//! A sign is a hint: the kernel drops some when too many come, and a folder that is replaced by another one is silent.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use drover_supervisor::watch_owned;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::sync::watch;

use crate::node::beneath::held_path;

/// The pause between two reads: a task that writes without pause is not listened to without pause.
const READ_EVERY: Duration = Duration::from_millis(20);
/// What is read at a time, in bytes: about 500 signs.
const READ_BYTES: usize = 16 * 1024;

/// The signs of all folders that are followed; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct FolderNews(Arc<FolderTable>);

#[derive(Debug)]
struct FolderTable {
    inotify: OwnedFd,
    /// By the kernel's number.
    folders: Mutex<BTreeMap<i32, watch::Sender<()>>>,
}

/// A folder that is followed as long as this lives.
#[derive(Debug)]
pub(crate) struct FollowedFolder {
    news: watch::Receiver<()>,
    number: i32,
    of: FolderNews,
}

impl FolderNews {
    /// Follows nothing yet. The second part hands the kernel's signs on, while it runs.
    ///
    /// # Errors
    /// When the kernel gives no descriptor.
    pub(crate) fn open() -> io::Result<(Self, impl Future<Output = ()>)> {
        let inotify = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let read = inotify.try_clone()?;
        let news = Self(Arc::new(FolderTable { inotify, folders: Mutex::default() }));
        let signs = news.clone().hand_on(read);
        Ok((news, signs))
    }

    fn folders(&self) -> MutexGuard<'_, BTreeMap<i32, watch::Sender<()>>> {
        self.0.folders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows a folder from now on.
    ///
    /// # Errors
    /// When the kernel refuses: it follows too many.
    pub(crate) fn follow(&self, folder: &impl AsFd) -> io::Result<FollowedFolder> {
        let flags = WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::CREATE
            | WatchFlags::MOVE
            | WatchFlags::DELETE
            | WatchFlags::ONLYDIR;
        // Who lets it go must not do so between both.
        let mut folders = self.folders();
        let number = inotify::add_watch(&self.0.inotify, held_path(folder), flags)?;
        let news = folders.entry(number).or_insert_with(|| watch::Sender::new(())).subscribe();
        Ok(FollowedFolder { news, number, of: self.clone() })
    }

    async fn hand_on(self, read: OwnedFd) {
        let read = match watch_owned(read) {
            Ok(read) => read,
            Err(error) => return tracing::error!(%error, "changes of folders are not told"),
        };
        loop {
            let mut ready = match read.readable().await {
                Ok(ready) => ready,
                Err(error) => return tracing::error!(%error, "changes of folders are told no more"),
            };
            if let Err(error) = self.take(read.get_ref()) {
                return tracing::error!(%error, "changes of folders are told no more");
            }
            ready.clear_ready();
            drop(ready);
            tokio::time::sleep(READ_EVERY).await;
        }
    }

    /// Hands on what there is.
    fn take(&self, read: &OwnedFd) -> io::Result<()> {
        let mut buffer = [MaybeUninit::uninit(); READ_BYTES];
        let mut signs = inotify::Reader::new(read, &mut buffer);
        loop {
            let sign = match signs.next() {
                Ok(sign) => sign,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let mut folders = self.folders();
            if sign.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                for folder in folders.values() {
                    folder.send_replace(());
                }
            } else if sign.events().contains(ReadFlags::IGNORED) {
                // The folder is gone: its followers see that their sender is.
                folders.remove(&sign.wd());
            } else if let Some(folder) = folders.get(&sign.wd()) {
                folder.send_replace(());
            }
        }
    }
}

impl FollowedFolder {
    /// What changed until now is known.
    pub(crate) fn is_known(&mut self) {
        self.news.borrow_and_update();
    }

    /// Waits for a change that is not known. False: nothing more is told, the folder is gone.
    pub(crate) async fn changed(&mut self) -> bool {
        self.news.changed().await.is_ok()
    }
}

impl Drop for FollowedFolder {
    fn drop(&mut self) {
        let mut folders = self.of.folders();
        // This one counts still.
        if folders.get(&self.number).is_some_and(|folder| folder.receiver_count() <= 1) {
            folders.remove(&self.number);
            if let Err(error) = inotify::remove_watch(&self.of.0.inotify, self.number) {
                tracing::debug!(%error, "the kernel had stopped to follow a folder");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use futures::FutureExt as _;
    use tokio::task::JoinSet;

    use super::*;
    use crate::node::beneath::Place;

    const LONG: Duration = Duration::from_mins(1);

    fn followed(news: &FolderNews, folder: &Path) -> FollowedFolder {
        news.follow(&Place::open(folder).expect("opened")).expect("followed")
    }

    #[tokio::test]
    async fn who_follows_a_folder_hears_of_its_changes_and_of_no_other() {
        let (dir, other) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let (news, signs) = FolderNews::open().expect("a descriptor");
        let mut running = JoinSet::new();
        running.spawn(signs);
        let (mut first, mut second) = (followed(&news, dir.path()), followed(&news, dir.path()));
        let mut beside = followed(&news, other.path());
        for change in [
            &(|| fs::write(dir.path().join("a"), "x")) as &dyn Fn() -> io::Result<()>,
            &|| fs::rename(dir.path().join("a"), dir.path().join("b")),
            &|| fs::remove_file(dir.path().join("b")),
        ] {
            for it in [&mut first, &mut second] {
                it.is_known();
            }
            change().expect("a change");
            for it in [&mut first, &mut second] {
                assert!(tokio::time::timeout(LONG, it.changed()).await.expect("in time"));
            }
            // What belongs to the same change may still be on its way.
            tokio::time::timeout(READ_EVERY * 3, second.changed()).await.ok();
        }
        assert!(beside.changed().now_or_never().is_none());
        drop(first);
        second.is_known();
        fs::write(dir.path().join("c"), "x").expect("a change");
        assert!(tokio::time::timeout(LONG, second.changed()).await.expect("in time"), "one is left");
        drop((second, beside));
        assert!(news.folders().is_empty(), "the kernel follows nothing any more");
    }

    #[tokio::test]
    async fn the_end_of_a_folder_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let (news, signs) = FolderNews::open().expect("a descriptor");
        let mut running = JoinSet::new();
        running.spawn(signs);
        let mut followed = followed(&news, dir.path());
        drop(dir);
        let gone = async { while followed.changed().await {} };
        tokio::time::timeout(LONG, gone).await.expect("in time");
        drop(followed);
        assert!(news.folders().is_empty());
    }
}
