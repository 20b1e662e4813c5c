//! The agent's state file: what must survive any kind of death of the agent.
//!
//! One thread owns the database. Writes that wait together go into one transaction, so that two hundred starting tasks share
//! the cost of a sync. A write is on disk when its future is ready. Agents on virtual time keep the same records in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use drover_api::{Allocation, JobSpec};
use jiff::Timestamp;
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};

use super::report::Report;
use super::task_runner::TaskRecord;

const ALLOCS: TableDefinition<&str, &[u8]> = TableDefinition::new("allocs");
const TASKS: TableDefinition<&str, &[u8]> = TableDefinition::new("tasks");
const JOBS: TableDefinition<&str, &[u8]> = TableDefinition::new("jobs");
const LAST_HEARTBEAT: &str = "lastHeartbeat";
const META: TableDefinition<&str, &[u8]> = TableDefinition::new("meta");

/// The layout of the records; a file of a newer layout is refused.
const LAYOUT: u32 = 1;
/// Writes that wait for the thread; writers wait when it is full.
const QUEUE: usize = 1024;

/// Why the state file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// It cannot be opened or read.
    #[error(
        "state file {path} cannot be used: {reason}. If it is damaged, stop this node's tasks and move the file away: \
         the agent then starts with an empty state"
    )]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A write failed.
    #[error("state file {path} cannot be written: {reason}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The thread has ended.
    #[error("the state file is closed")]
    Closed,
}

/// What is kept of an allocation.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct AllocRecord {
    /// The object as the agent last took it in.
    pub(crate) allocation: Allocation,
    /// What the API server last accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) acknowledged: Option<Report>,
}

/// Everything that was in the file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Saved {
    /// By allocation uid.
    pub(crate) allocs: BTreeMap<String, AllocRecord>,
    /// By allocation uid, then task.
    pub(crate) tasks: BTreeMap<String, BTreeMap<String, TaskRecord>>,
    /// By job key.
    pub(crate) jobs: BTreeMap<String, JobSpec>,
    /// The last heartbeat that was accepted, as far as it was worth keeping.
    pub(crate) last_heartbeat: Option<Timestamp>,
}

#[derive(Clone, Copy, Debug)]
enum Table {
    Allocs,
    Tasks,
    Jobs,
    Meta,
}

#[derive(Debug)]
enum Change {
    Put(Table, String, Vec<u8>),
    Delete(Table, String),
    /// Everything of an allocation.
    Forget(String),
}

#[derive(Debug)]
struct Write {
    change: Change,
    done: oneshot::Sender<Result<(), String>>,
}

/// A handle on the state; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StateStore(Backing);

#[derive(Clone, Debug)]
enum Backing {
    File(FileState),
    Memory(MemoryState),
}

#[derive(Clone, Debug)]
struct FileState {
    path: PathBuf,
    writes: mpsc::Sender<Write>,
}

/// State that lives as long as its last handle: of agents on virtual time, whose machines never lose power by surprise.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryState(Arc<Mutex<Saved>>);

impl MemoryState {
    /// The agent's handle.
    pub(crate) fn store(&self) -> StateStore {
        StateStore(Backing::Memory(self.clone()))
    }

    /// What an agent that starts now finds.
    pub(crate) fn saved(&self) -> Saved {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Saved> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StateStore {
    /// Opens or makes the file and reads all of it. The thread ends when the last handle is dropped; the caller joins it.
    pub(crate) fn open(path: &Path) -> Result<(Self, Saved, JoinHandle<()>), StateError> {
        let unusable = |reason: String| StateError::Unusable { path: path.to_owned(), reason };
        let (database, saved) = open_and_read(path).map_err(unusable)?;
        let (writes, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("state".to_owned())
            .spawn({
                let path = path.to_owned();
                move || write_all(&path, database, queue)
            })
            .map_err(|error| unusable(error.to_string()))?;
        Ok((Self(Backing::File(FileState { path: path.to_owned(), writes })), saved, thread))
    }

    /// Keeps an allocation.
    pub(crate) async fn put_alloc(&self, uid: &str, record: &AllocRecord) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Allocs, uid.to_owned(), record).await,
            Backing::Memory(memory) => {
                memory.lock().allocs.insert(uid.to_owned(), record.clone());
                Ok(())
            }
        }
    }

    /// Keeps a task.
    pub(crate) async fn put_task(&self, uid: &str, task: &str, record: &TaskRecord) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Tasks, format!("{uid}/{task}"), record).await,
            Backing::Memory(memory) => {
                memory.lock().tasks.entry(uid.to_owned()).or_default().insert(task.to_owned(), record.clone());
                Ok(())
            }
        }
    }

    /// Keeps a version of a job.
    pub(crate) async fn put_job(&self, key: &str, job: &JobSpec) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Jobs, key.to_owned(), job).await,
            Backing::Memory(memory) => {
                memory.lock().jobs.insert(key.to_owned(), job.clone());
                Ok(())
            }
        }
    }

    /// Keeps the time of a heartbeat.
    pub(crate) async fn put_heartbeat(&self, at: Timestamp) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Meta, LAST_HEARTBEAT.to_owned(), &at).await,
            Backing::Memory(memory) => {
                memory.lock().last_heartbeat = Some(at);
                Ok(())
            }
        }
    }

    /// Forgets a version of a job.
    pub(crate) async fn delete_job(&self, key: &str) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.write(Change::Delete(Table::Jobs, key.to_owned())).await,
            Backing::Memory(memory) => {
                memory.lock().jobs.remove(key);
                Ok(())
            }
        }
    }

    /// Forgets an allocation and its tasks.
    pub(crate) async fn forget(&self, uid: &str) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.write(Change::Forget(uid.to_owned())).await,
            Backing::Memory(memory) => {
                let mut saved = memory.lock();
                saved.allocs.remove(uid);
                saved.tasks.remove(uid);
                Ok(())
            }
        }
    }
}

impl FileState {
    async fn put<T: Serialize + Sync>(&self, table: Table, key: String, value: &T) -> Result<(), StateError> {
        let bytes = serde_json::to_vec(value)
            .map_err(|error| StateError::Write { path: self.path.clone(), reason: error.to_string() })?;
        self.write(Change::Put(table, key, bytes)).await
    }

    async fn write(&self, change: Change) -> Result<(), StateError> {
        let (done, result) = oneshot::channel();
        self.writes.send(Write { change, done }).await.map_err(|_| StateError::Closed)?;
        result
            .await
            .map_err(|_| StateError::Closed)?
            .map_err(|reason| StateError::Write { path: self.path.clone(), reason })
    }
}

/// Opens the file, compares every page with its checksum, and reads all of it. What is damaged is refused as a whole: a record that
/// was guessed could start or end a task.
fn open_and_read(path: &Path) -> Result<(Database, Saved), String> {
    // The database asserts what a damaged file breaks; that must not end the agent without a word.
    let opened = std::panic::catch_unwind(|| {
        let mut database = Database::create(path).map_err(|error| error.to_string())?;
        match database.check_integrity() {
            Ok(true) => {}
            Ok(false) => {
                tracing::warn!(path = %path.display(), "the last write to the state file was torn and is undone");
            }
            Err(error) => return Err(format!("it is damaged: {error}")),
        }
        let saved = read(&database)?;
        Ok((database, saved))
    });
    opened.unwrap_or_else(|_| Err("it is damaged: its pages contradict each other".to_owned()))
}

fn read(database: &Database) -> Result<Saved, String> {
    check_layout(database)?;
    let text = |error: redb::Error| error.to_string();
    let transaction = database.begin_read().map_err(|error| text(error.into()))?;
    let mut saved = Saved {
        allocs: records(&transaction, ALLOCS)?,
        jobs: records(&transaction, JOBS)?,
        last_heartbeat: meta_record(&transaction, LAST_HEARTBEAT)?,
        ..Saved::default()
    };
    for (key, record) in records::<TaskRecord>(&transaction, TASKS)? {
        let Some((uid, task)) = key.split_once('/') else {
            return Err(format!("task record {key:?} has no allocation"));
        };
        saved.tasks.entry(uid.to_owned()).or_default().insert(task.to_owned(), record);
    }
    Ok(saved)
}

/// Makes the tables of a new file and refuses a file of a newer build.
fn check_layout(database: &Database) -> Result<(), String> {
    let run = || -> Result<Option<u32>, redb::Error> {
        let transaction = database.begin_write()?;
        let found = {
            let mut meta = transaction.open_table(META)?;
            transaction.open_table(ALLOCS)?;
            transaction.open_table(TASKS)?;
            transaction.open_table(JOBS)?;
            let found = meta.get("layout")?.and_then(|value| value.value().try_into().ok().map(u32::from_be_bytes));
            if found.is_none() {
                meta.insert("layout", LAYOUT.to_be_bytes().as_slice())?;
            }
            found
        };
        transaction.commit()?;
        Ok(found)
    };
    match run().map_err(|error| error.to_string())? {
        Some(found) if found > LAYOUT => {
            Err(format!("its layout {found} is newer than {LAYOUT}, the newest of this build: use the newer droverd"))
        }
        Some(_) | None => Ok(()),
    }
}

fn records<T: DeserializeOwned>(
    transaction: &redb::ReadTransaction,
    definition: TableDefinition<'_, &str, &[u8]>,
) -> Result<BTreeMap<String, T>, String> {
    let collect = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
        let table = transaction.open_table(definition)?;
        let mut all = Vec::new();
        for entry in table.iter()? {
            let (key, value) = entry?;
            all.push((key.value().to_owned(), value.value().to_vec()));
        }
        Ok(all)
    };
    collect()
        .map_err(|error| error.to_string())?
        .into_iter()
        .map(|(key, value)| {
            let record = serde_json::from_slice(&value).map_err(|error| format!("record {key:?}: {error}"))?;
            Ok((key, record))
        })
        .collect()
}

fn meta_record<T: DeserializeOwned>(transaction: &redb::ReadTransaction, key: &str) -> Result<Option<T>, String> {
    let bytes = || -> Result<Option<Vec<u8>>, redb::Error> {
        let table = transaction.open_table(META)?;
        Ok(table.get(key)?.map(|value| value.value().to_vec()))
    };
    let bytes = bytes().map_err(|error| error.to_string())?;
    bytes.map(|bytes| serde_json::from_slice(&bytes).map_err(|error| format!("record {key:?}: {error}"))).transpose()
}

fn write_all(path: &Path, database: Database, mut queue: mpsc::Receiver<Write>) {
    let mut database = Some(database);
    let mut batch = Vec::with_capacity(QUEUE);
    while queue.blocking_recv_many(&mut batch, QUEUE) > 0 {
        let result = commit_or_reopen(path, &mut database, &batch);
        if let Err(reason) = &result {
            tracing::error!(reason, "state file cannot be written");
        }
        for write in batch.drain(..) {
            // A writer that was cancelled does not ask for the result.
            drop(write.done.send(result.clone()));
        }
    }
}

/// After a failed write (a full disk) the database refuses all further ones until it is opened anew.
fn commit_or_reopen(path: &Path, database: &mut Option<Database>, batch: &[Write]) -> Result<(), String> {
    let changes = || batch.iter().map(|write| &write.change);
    if let Some(open) = database {
        match commit(open, changes()) {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!(error = %error, "state file is opened anew after a failed write"),
        }
    }
    // Two open ones would exclude each other.
    drop(database.take());
    let open = database.insert(Database::create(path).map_err(|error| error.to_string())?);
    commit(open, changes()).map_err(|error| error.to_string())
}

fn commit<'a>(database: &Database, changes: impl Iterator<Item = &'a Change>) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut allocs = transaction.open_table(ALLOCS)?;
        let mut tasks = transaction.open_table(TASKS)?;
        let mut jobs = transaction.open_table(JOBS)?;
        let mut meta = transaction.open_table(META)?;
        for change in changes {
            match change {
                Change::Put(Table::Allocs, key, value) => drop(allocs.insert(key.as_str(), value.as_slice())?),
                Change::Put(Table::Tasks, key, value) => drop(tasks.insert(key.as_str(), value.as_slice())?),
                Change::Put(Table::Jobs, key, value) => drop(jobs.insert(key.as_str(), value.as_slice())?),
                Change::Put(Table::Meta, key, value) => drop(meta.insert(key.as_str(), value.as_slice())?),
                Change::Delete(Table::Meta, key) => drop(meta.remove(key.as_str())?),
                Change::Delete(Table::Allocs, key) => drop(allocs.remove(key.as_str())?),
                Change::Delete(Table::Tasks, key) => drop(tasks.remove(key.as_str())?),
                Change::Delete(Table::Jobs, key) => drop(jobs.remove(key.as_str())?),
                Change::Forget(uid) => {
                    drop(allocs.remove(uid.as_str())?);
                    let (from, to) = (format!("{uid}/"), format!("{uid}0"));
                    tasks.retain_in(from.as_str()..to.as_str(), |_, _| false)?;
                }
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> AllocRecord {
        let mut allocation = Allocation::new(name, drover_api::AllocationSpec::default());
        allocation.metadata.uid = Some(format!("uid-{name}"));
        AllocRecord { allocation, acknowledged: None }
    }

    #[tokio::test]
    async fn what_was_written_is_there_after_a_restart() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state.redb");
        let (store, saved, thread) = StateStore::open(&path).expect("opened");
        assert!(saved.allocs.is_empty());
        let (one, two) = (record("one"), record("two"));
        let (first, second) = tokio::join!(store.put_alloc("uid-one", &one), store.put_alloc("uid-two", &two));
        first.and(second).expect("written");
        store.put_task("uid-one", "web", &TaskRecord::default()).await.expect("written");
        store.put_task("uid-two", "web", &TaskRecord::default()).await.expect("written");
        store.put_job("job/1", &JobSpec::default()).await.expect("written");
        store.forget("uid-two").await.expect("written");
        drop(store);
        thread.join().expect("joined");
        let (_store, saved, _thread) = StateStore::open(&path).expect("opened again");
        assert_eq!(saved.allocs.keys().collect::<Vec<_>>(), ["uid-one"]);
        assert_eq!(saved.tasks.keys().collect::<Vec<_>>(), ["uid-one"]);
        assert_eq!(saved.jobs.keys().collect::<Vec<_>>(), ["job/1"]);
    }

    #[tokio::test]
    async fn writing_goes_on_when_a_full_disk_has_room_again() {
        if !rustix::process::geteuid().is_root() {
            // Only root can make a small disk.
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let flags = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", flags, c"size=8m").expect("a small disk");
        let (store, _, thread) = StateStore::open(&dir.path().join("state.redb")).expect("opened");
        let ballast = dir.path().join("ballast");
        drop(std::fs::write(&ballast, vec![0; 16 << 20]).expect_err("the disk is full"));
        let big =
            JobSpec { meta: (0..2000).map(|n| (format!("k{n}"), "x".repeat(2000))).collect(), ..JobSpec::default() };
        let refused = store.put_job("job/big", &big).await.expect_err("no room").to_string();
        assert!(refused.contains("state.redb"), "{refused}");
        std::fs::remove_file(&ballast).expect("room");
        store.put_job("job/1", &JobSpec::default()).await.expect("written again");
        drop(store);
        thread.join().expect("joined");
        rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    }

    fn opened(path: &Path) -> Result<Vec<String>, String> {
        let (store, saved, thread) = StateStore::open(path).map_err(|error| error.to_string())?;
        drop(store);
        thread.join().expect("joined");
        Ok(saved.allocs.values().map(|it| serde_json::to_string(&it.allocation).expect("text")).collect())
    }

    /// A file with one allocation, and the same file after a second one was written.
    async fn before_and_after(path: &Path) -> [Vec<u8>; 2] {
        let mut images = Vec::new();
        for name in ["one", "two"] {
            let (store, _, thread) = StateStore::open(path).expect("opened");
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
                Err(error) => assert!(error.contains("state.redb"), "torn at {torn}: {error}"),
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
                Err(error) => assert!(error.contains("state.redb"), "flipped at {at}: {error}"),
            }
        }
        drop(std::panic::take_hook());
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_written_is_named() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let none = rustix::mount::MountFlags::empty();
        rustix::mount::mount("tmpfs", dir.path(), "tmpfs", none, c"size=8m").expect("a disk");
        let path = dir.path().join("state.redb");
        let [_, _] = before_and_after(&path).await;
        rustix::mount::mount_remount(dir.path(), rustix::mount::MountFlags::RDONLY, "").expect("read-only");
        let error = opened(&path).expect_err("refused");
        assert!(error.contains("state.redb") && error.contains("Read-only"), "{error}");
        rustix::mount::unmount(dir.path(), rustix::mount::UnmountFlags::DETACH).expect("unmounted");
    }

    #[test]
    fn a_damaged_file_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state.redb");
        std::fs::write(&path, "this is no database at all, but some text").expect("written");
        let error = StateStore::open(&path).map(|_| ()).expect_err("refused").to_string();
        assert!(error.contains("state.redb") && error.contains("move the file away"), "{error}");
    }
}
