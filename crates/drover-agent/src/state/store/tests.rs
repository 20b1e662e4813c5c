//! What becomes of the state file: torn, flipped, full, read-only, newer.

use drover_api::Allocation;

use super::*;
use crate::state::tables::{LAYOUT, TASK_USERS};

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

/// A disk of 8 MB for a state file; it goes with this.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", flags, c"size=8m")
            .expect("a small disk, which root alone can make");
        Self(dir)
    }

    pub(crate) fn open(&self) -> Opened {
        StateStore::open(&self.0.path().join("state.redb"), NOW).expect("opened")
    }

    pub(crate) fn fill(&self) {
        drop(std::fs::write(self.0.path().join("ballast"), vec![0; 16 << 20]).expect_err("the disk is full"));
    }

    pub(crate) fn make_room(&self) {
        std::fs::remove_file(self.0.path().join("ballast")).expect("room");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        rustix::mount::unmount(self.0.path(), rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    }
}

/// A job that a full disk has no room for.
pub(crate) fn big_job() -> JobSpec {
    JobSpec { meta: (0..2000).map(|n| (format!("k{n}"), "x".repeat(2000))).collect(), ..JobSpec::default() }
}

fn record(name: &str) -> AllocRecord {
    let mut allocation = Allocation::new(name, drover_api::AllocationSpec::default());
    allocation.metadata.uid = Some(format!("uid-{name}"));
    AllocRecord { allocation, acknowledged: None, tried: None }
}

#[tokio::test]
async fn what_was_written_is_there_after_a_restart() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state.redb");
    let Opened { store, saved, thread, .. } = StateStore::open(&path, NOW).expect("opened");
    assert!(saved.allocs.is_empty());
    let (one, two) = (record("one"), record("two"));
    let (first, second) = tokio::join!(store.put_alloc("uid-one", &one), store.put_alloc("uid-two", &two));
    first.and(second).expect("written");
    store.put_task("uid-one", "web", &TaskRecord::default()).await.expect("written");
    store.put_task("uid-two", "web", &TaskRecord::default()).await.expect("written");
    store.put_job("job/1", &JobSpec::default()).await.expect("encoded").wait().await.expect("written");
    store.forget("uid-two").await.expect("written");
    drop(store);
    thread.join().expect("joined");
    let Opened { saved, .. } = StateStore::open(&path, NOW).expect("opened again");
    assert_eq!(saved.allocs.keys().collect::<Vec<_>>(), ["uid-one"]);
    assert_eq!(saved.tasks.keys().collect::<Vec<_>>(), ["uid-one"]);
    assert_eq!(saved.jobs.keys().collect::<Vec<_>>(), ["job/1"]);
}

#[tokio::test]
async fn users_of_allocations_are_there_after_a_restart_and_so_are_those_of_a_build_that_kept_them_in_one_record() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state.redb");
    let Opened { store, thread, .. } = StateStore::open(&path, NOW).expect("opened");
    let Backing::File(file) = &store.0 else { panic!("a file") };
    let earlier = serde_json::json!({ "last": 6, "given": { "old": 5, "moved": 6 } });
    file.put(Table::Meta, TASK_USERS.to_owned(), &earlier).await.expect("written");
    for (uid, number) in [("a", 7), ("b", 8), ("c", 9), ("moved", 4)] {
        store.put_task_user(uid, number).await.expect("queued").wait().await.expect("written");
    }
    store.put_task_user("a0", 10).await.expect("queued").wait().await.expect("written");
    store.delete_task_user("b").await.expect("written");
    drop(store);
    thread.join().expect("joined");
    let Opened { saved, .. } = StateStore::open(&path, NOW).expect("opened again");
    let expected = serde_json::json!({ "last": 10, "given": { "old": 5, "moved": 4, "a": 7, "a0": 10, "c": 9 } });
    assert_eq!(serde_json::to_value(&saved.task_users).expect("JSON"), expected);
}

#[test]
fn an_agent_that_is_just_dying_is_waited_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state.redb");
    let dying = StateStore::open(&path, NOW).expect("opened");
    let ends = std::thread::spawn(move || {
        std::thread::park_timeout(std::time::Duration::from_millis(100));
        drop(dying.store);
        dying.thread.join().expect("joined");
    });
    drop(StateStore::open(&path, NOW).expect("opened once the other has let go"));
    ends.join().expect("joined");
}

#[tokio::test]
async fn writing_goes_on_when_a_full_disk_has_room_again() {
    let disk = SmallDisk::new();
    let Opened { store, flaws, thread, .. } = disk.open();
    disk.fill();
    let refused = store.put_job("job/big", &big_job()).await.expect("encoded").wait().await.expect_err("no room");
    assert!(refused.to_string().contains("state.redb"), "{refused}");
    assert!(flaws.borrow().unwritable.is_some());
    disk.make_room();
    store.put_job("job/1", &JobSpec::default()).await.expect("encoded").wait().await.expect("written again");
    assert_eq!(*flaws.borrow(), Flaws::default());
    drop(store);
    thread.join().expect("joined");
}

/// The allocations in the file, or why it was set aside.
fn opened(path: &Path) -> Result<Vec<String>, String> {
    let Opened { store, saved, flaws, thread } = StateStore::open(path, NOW).map_err(|error| error.to_string())?;
    drop(store);
    thread.join().expect("joined");
    if let Some(reason) = flaws.borrow().lost.clone() {
        assert!(saved.allocs.is_empty(), "nothing of a damaged file is used");
        return Err(reason);
    }
    Ok(saved.allocs.values().map(|it| serde_json::to_string(&it.allocation).expect("text")).collect())
}

/// A file with one allocation, and the same file after a second one was written.
async fn before_and_after(path: &Path) -> [Vec<u8>; 2] {
    let mut images = Vec::new();
    for name in ["one", "two"] {
        let Opened { store, thread, .. } = StateStore::open(path, NOW).expect("opened");
        store.put_alloc(&format!("uid-{name}"), &record(name)).await.expect("written");
        drop(store);
        thread.join().expect("joined");
        images.push(std::fs::read(path).expect("the file"));
    }
    images.try_into().expect("two")
}

#[tokio::test]
async fn a_write_that_was_torn_at_any_byte_is_there_or_not_or_the_file_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("state.redb");
    let [before, after] = before_and_after(&path).await;
    let wanted: Vec<Vec<String>> = [&before, &after]
        .into_iter()
        .map(|image| {
            std::fs::write(&path, image).expect("written");
            opened(&path).expect("whole")
        })
        .collect();
    assert_eq!((wanted[0].len(), wanted[1].len()), (1, 2));
    assert_eq!(before.len(), after.len());
    // Only where both differ another byte makes another file.
    let differ: Vec<usize> = (0..after.len()).filter(|n| before[*n] != after[*n]).collect();
    assert!(differ.len() > 100);
    std::panic::set_hook(Box::new(|_| {}));
    for torn in differ {
        let mut image = before.clone();
        image[..torn].copy_from_slice(&after[..torn]);
        std::fs::write(&path, &image).expect("written");
        match opened(&path) {
            Ok(found) => assert!(wanted.contains(&found), "torn at {torn}: {found:?}"),
            Err(error) => assert!(error.contains("damaged"), "torn at {torn}: {error}"),
        }
    }
    drop(std::panic::take_hook());
}

#[tokio::test]
async fn a_flipped_bit_changes_nothing_or_the_file_is_refused() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("a directory");
    let path = dir.path().join("state.redb");
    let [_, whole] = before_and_after(&path).await;
    let wanted = opened(&path).expect("whole");
    std::panic::set_hook(Box::new(|_| {}));
    let used: Vec<usize> = (0..whole.len()).filter(|n| whole[*n] != 0).collect();
    // A prime step meets every kind of byte in every place of a record, in a fraction of the time.
    for (n, at) in used.into_iter().step_by(13).enumerate() {
        let mut image = whole.clone();
        image[at] ^= 1 << (n % 8);
        std::fs::write(&path, &image).expect("written");
        match opened(&path) {
            Ok(found) => assert_eq!(found, wanted, "flipped at {at}"),
            Err(error) => assert!(error.contains("damaged"), "flipped at {at}: {error}"),
        }
    }
    drop(std::panic::take_hook());
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_read_and_named_and_taken_again_when_it_can_be() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let none = rustix::mount::MountFlags::empty();
    rustix::mount::mount("tmpfs", dir.path(), "tmpfs", none, c"size=8m").expect("a disk");
    let path = dir.path().join("state.redb");
    let [_, _] = before_and_after(&path).await;
    rustix::mount::mount_remount(dir.path(), rustix::mount::MountFlags::RDONLY, "").expect("read-only");
    let Opened { store, saved, flaws, thread } = StateStore::open(&path, NOW).expect("the agent comes up");
    assert_eq!(saved.allocs.len(), 2, "what ran is known");
    let reason = flaws.borrow().unwritable.clone().expect("a reason");
    assert!(reason.contains("Read-only") && flaws.borrow().lost.is_none(), "{reason}");
    let refused = store.put_alloc("uid-3", &record("three")).await.expect_err("refused").to_string();
    assert!(refused.contains("state.redb") && refused.contains("Read-only"), "{refused}");
    rustix::mount::mount_remount(dir.path(), none, "").expect("writable");
    store.probe().await.expect("written");
    assert_eq!(*flaws.borrow(), Flaws::default());
    drop(store);
    thread.join().expect("joined");
    rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).expect("unmounted");
}

#[tokio::test]
async fn a_damaged_file_is_set_aside_and_the_agent_knows_until_it_has_found_its_tasks() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state.redb");
    std::fs::write(&path, "this is no database at all, but some text").expect("written");
    let open = || StateStore::open(&path, NOW).expect("the agent comes up");
    let Opened { store, flaws, thread, .. } = open();
    let reason = flaws.borrow().lost.clone().expect("a reason");
    assert!(reason.contains("state.redb.damaged-1800000000"), "{reason}");
    let aside = std::fs::read_to_string(dir.path().join("state.redb.damaged-1800000000")).expect("the file");
    assert!(aside.starts_with("this is no database"));
    store.put_alloc("uid-one", &record("one")).await.expect("written");
    drop(store);
    thread.join().expect("joined");
    // An agent that dies before it knows all its tasks again leaves that to the next one.
    let Opened { store, saved, flaws, thread } = open();
    assert_eq!((saved.allocs.len(), flaws.borrow().lost.is_some()), (1, true));
    store.note_rebuilt().await.expect("written");
    drop(store);
    thread.join().expect("joined");
    assert_eq!(*open().flaws.borrow(), Flaws::default());
}

#[test]
fn a_new_file_that_had_no_name_yet_gets_it_and_old_damaged_ones_go() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state.redb");
    for second in 0..5 {
        std::fs::write(&path, "damaged").expect("written");
        let now = NOW + jiff::SignedDuration::from_secs(second);
        let Opened { store, thread, .. } = StateStore::open(&path, now).expect("the agent comes up");
        drop(store);
        thread.join().expect("joined");
    }
    let names = || -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(dir.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    let aside = ["state.redb.damaged-1800000002", "state.redb.damaged-1800000003", "state.redb.damaged-1800000004"];
    assert_eq!(names(), [&["state.redb"], &aside[..]].concat());
    std::fs::rename(&path, dir.path().join("state.redb.new")).expect("renamed");
    assert!(StateStore::open(&path, NOW).expect("the agent comes up").flaws.borrow().lost.is_some());
    assert_eq!(names(), [&["state.redb"], &aside[..]].concat());
}

#[test]
fn a_file_of_a_newer_build_is_left_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("state.redb");
    let database = Database::create(&path).expect("made");
    let transaction = database.begin_write().expect("begun");
    transaction
        .open_table(META)
        .expect("a table")
        .insert("layout", (LAYOUT + 1).to_be_bytes().as_slice())
        .map(drop)
        .expect("written");
    transaction.commit().expect("written");
    drop(database);
    let error = StateStore::open(&path, NOW).map(|_| ()).expect_err("refused").to_string();
    assert!(error.contains("state.redb") && error.contains("use the newer droverd"), "{error}");
}
