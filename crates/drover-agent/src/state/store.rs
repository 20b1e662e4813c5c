//! The agent's state file: what must survive any kind of death of the agent.
//!
//! One thread owns the database. Writes that wait together go into one transaction, so that two hundred starting tasks
//! share the cost of a sync. A write is on disk when its future is ready. Agents on virtual time keep the same records
//! in memory.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use drover_api::JobSpec;
use drover_network::NetworkTable;
use futures::FutureExt;
use futures::future::Shared;
use jiff::Timestamp;
use redb::Database;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use super::file;
use super::memory::MemoryState;
use super::records::{AllocRecord, Flaws, Saved};
use super::tables::{
    ALLOCS, DYNAMIC_META, JOBS, LAST_HEARTBEAT, LAST_TASK_USER, META, MOUNTS, NETWORKS, REBUILDING, TASK_USER, TASKS,
    VOLUMES,
};
use crate::csi::Mounts;
use crate::node::facts::MetaChanges;
use crate::node::host_volume_record::VolumeRecord;
use crate::tasks::record::TaskRecord;
use crate::watch;

/// Writes that wait for the thread; writers wait when it is full.
const QUEUE: usize = 1024;

/// Why the state file is not used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    /// It cannot be opened or read.
    #[error("state file {path} cannot be used: {reason}")]
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

#[derive(Clone, Copy, Debug)]
enum Table {
    Allocs,
    Tasks,
    Jobs,
    Meta,
}

#[derive(Debug)]
enum StateChange {
    Put(Table, String, Vec<u8>),
    Delete(Table, String),
    /// Everything of an allocation.
    Forget(String),
}

#[derive(Debug)]
struct Write {
    change: StateChange,
    done: oneshot::Sender<Result<(), String>>,
}

/// A handle on the state; cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct StateStore(Backing);

#[derive(Clone, Debug)]
enum Backing {
    File(FileState),
    #[cfg_attr(
        not(any(test, feature = "simulated")),
        expect(dead_code, reason = "agents on virtual time alone keep nothing")
    )]
    Memory(MemoryState),
}

#[derive(Clone, Debug)]
struct FileState {
    path: PathBuf,
    writes: mpsc::Sender<Write>,
}

#[cfg(any(test, feature = "simulated"))]
impl MemoryState {
    /// The agent's handle.
    pub(crate) fn store(&self) -> StateStore {
        StateStore(Backing::Memory(self.clone()))
    }
}

/// The state at the agent's start.
pub(crate) struct Opened {
    pub(crate) store: StateStore,
    pub(crate) saved: Saved,
    /// What was found wrong with it. Whether it can be written is told on.
    pub(crate) flaws: watch::Receiver<Flaws>,
    /// Ends when the last handle is dropped; the caller joins it.
    pub(crate) thread: JoinHandle<()>,
}

impl StateStore {
    /// Opens or makes the file and reads all of it. A damaged file is set aside under a name with the time, and one
    /// that cannot be written is read all the same.
    ///
    /// # Errors
    /// When another agent has it open, or a newer build wrote it.
    pub(crate) fn open(path: &Path, now: Timestamp) -> Result<Opened, StateError> {
        let unusable = |reason: String| StateError::Unusable { path: path.to_owned(), reason };
        let (database, saved, flaws) = file::open(path, now).map_err(unusable)?;
        let (flaws, told) = watch::channel(flaws);
        let (writes, queue) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new()
            .name("state".to_owned())
            .spawn({
                let path = path.to_owned();
                move || write_all(&path, database, queue, &flaws)
            })
            .map_err(|error| unusable(error.to_string()))?;
        let store = Self(Backing::File(FileState { path: path.to_owned(), writes }));
        Ok(Opened { store, saved, flaws: told, thread })
    }

    /// One that keeps nothing.
    #[cfg(test)]
    pub(crate) fn refusing() -> Self {
        Self(Backing::File(FileState { path: PathBuf::from("/none"), writes: mpsc::channel(1).0 }))
    }

    /// All tasks that run are known again.
    pub(crate) async fn note_rebuilt(&self) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.write(StateChange::Delete(Table::Meta, REBUILDING.to_owned())).await,
            Backing::Memory(memory) => {
                memory.write(|saved| saved.is_rebuilding = false).await;
                Ok(())
            }
        }
    }

    /// Writes next to nothing, so that a file that could not be written is tried again.
    pub(crate) async fn probe(&self) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.write(StateChange::Delete(Table::Meta, "probe".to_owned())).await,
            Backing::Memory(_) => Ok(()),
        }
    }

    /// Keeps an allocation.
    pub(crate) async fn put_alloc(&self, uid: &str, record: &AllocRecord) -> Result<(), StateError> {
        self.put_alloc_soon(uid, record).await?.wait().await
    }

    /// Keeps an allocation as well, but is ready as soon as that has its place among the writes: what it returns waits
    /// for the disk.
    pub(crate) async fn put_alloc_soon(&self, uid: &str, record: &AllocRecord) -> Result<Pending, StateError> {
        match &self.0 {
            Backing::File(file) => file.put_soon(Table::Allocs, uid.to_owned(), record).await,
            Backing::Memory(memory) => {
                memory.write(|saved| drop(saved.allocs.insert(uid.to_owned(), record.clone()))).await;
                Ok(Pending(None))
            }
        }
    }

    /// Keeps a task.
    pub(crate) async fn put_task(&self, uid: &str, task: &str, record: &TaskRecord) -> Result<(), StateError> {
        self.put_task_soon(uid, task, record).await?.wait().await
    }

    /// Keeps a task as well, but is ready as soon as that has its place among the writes: what it returns waits for the
    /// disk.
    pub(crate) async fn put_task_soon(
        &self,
        uid: &str,
        task: &str,
        record: &TaskRecord,
    ) -> Result<Pending, StateError> {
        match &self.0 {
            Backing::File(file) => file.put_soon(Table::Tasks, format!("{uid}/{task}"), record).await,
            Backing::Memory(memory) => {
                let keep = |saved: &mut Saved| {
                    saved.tasks.entry(uid.to_owned()).or_default().insert(task.to_owned(), record.clone());
                };
                memory.write(keep).await;
                Ok(Pending(None))
            }
        }
    }

    /// Keeps a version of a job. It is ready as soon as that has its place among the writes: what it returns waits for
    /// the disk.
    pub(crate) async fn put_job(&self, key: &str, job: &JobSpec) -> Result<Pending, StateError> {
        match &self.0 {
            Backing::File(file) => file.put_soon(Table::Jobs, key.to_owned(), job).await,
            Backing::Memory(memory) => {
                memory.write(|saved| drop(saved.jobs.insert(key.to_owned(), job.clone()))).await;
                Ok(Pending(None))
            }
        }
    }

    /// Keeps the time of a heartbeat.
    pub(crate) async fn put_heartbeat(&self, at: Timestamp) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Meta, LAST_HEARTBEAT.to_owned(), &at).await,
            Backing::Memory(memory) => {
                memory.write(|saved| saved.last_heartbeat = Some(at)).await;
                Ok(())
            }
        }
    }

    /// Keeps the node's metadata.
    pub(crate) async fn put_meta(&self, meta: &MetaChanges) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Meta, DYNAMIC_META.to_owned(), meta).await,
            Backing::Memory(memory) => {
                memory.write(|saved| saved.dynamic_meta.clone_from(meta)).await;
                Ok(())
            }
        }
    }

    /// Keeps the host volumes that were made at run time.
    pub(crate) async fn put_volumes(&self, volumes: &BTreeMap<String, VolumeRecord>) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Meta, VOLUMES.to_owned(), volumes).await,
            Backing::Memory(memory) => {
                memory.write(|saved| saved.volumes.clone_from(volumes)).await;
                Ok(())
            }
        }
    }

    /// Keeps what is mounted of CSI volumes.
    pub(crate) async fn put_mounts(&self, mounts: &Mounts) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Meta, MOUNTS.to_owned(), mounts).await,
            Backing::Memory(memory) => {
                memory.write(|saved| saved.mounts.clone_from(mounts)).await;
                Ok(())
            }
        }
    }

    /// Keeps an allocation's user, which is the one that was given last. It is ready as soon as that has its place
    /// among the writes: what it returns waits for the disk.
    pub(crate) async fn put_task_user(&self, uid: &str, number: u32) -> Result<Pending, StateError> {
        match &self.0 {
            Backing::File(file) => {
                let bytes = file.encode(&number)?;
                drop(file.begin(StateChange::Put(Table::Meta, LAST_TASK_USER.to_owned(), bytes.clone())).await?);
                file.begin(StateChange::Put(Table::Meta, format!("{TASK_USER}{uid}"), bytes)).await
            }
            Backing::Memory(memory) => {
                let keep = |saved: &mut Saved| {
                    saved.task_users.learn(uid, number);
                    saved.task_users.went_on_to(number);
                };
                memory.write(keep).await;
                Ok(Pending(None))
            }
        }
    }

    /// Forgets an allocation's user.
    pub(crate) async fn delete_task_user(&self, uid: &str) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.write(StateChange::Delete(Table::Meta, format!("{TASK_USER}{uid}"))).await,
            Backing::Memory(memory) => {
                let release = |saved: &mut Saved| {
                    saved.task_users.release(uid);
                };
                memory.write(release).await;
                Ok(())
            }
        }
    }

    /// Keeps the networks of allocations.
    pub(crate) async fn put_networks(&self, networks: &NetworkTable) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.put(Table::Meta, NETWORKS.to_owned(), networks).await,
            Backing::Memory(memory) => {
                memory.write(|saved| saved.networks.clone_from(networks)).await;
                Ok(())
            }
        }
    }

    /// Forgets a version of a job.
    pub(crate) async fn delete_job(&self, key: &str) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.write(StateChange::Delete(Table::Jobs, key.to_owned())).await,
            Backing::Memory(memory) => {
                memory.write(|saved| drop(saved.jobs.remove(key))).await;
                Ok(())
            }
        }
    }

    /// Forgets an allocation and its tasks.
    pub(crate) async fn forget(&self, uid: &str) -> Result<(), StateError> {
        match &self.0 {
            Backing::File(file) => file.write(StateChange::Forget(uid.to_owned())).await,
            Backing::Memory(memory) => {
                let forget = |saved: &mut Saved| {
                    saved.allocs.remove(uid);
                    saved.tasks.remove(uid);
                };
                memory.write(forget).await;
                Ok(())
            }
        }
    }
}

impl FileState {
    async fn put<T: Serialize + Sync>(&self, table: Table, key: String, value: &T) -> Result<(), StateError> {
        self.put_soon(table, key, value).await?.wait().await
    }

    async fn put_soon<T: Serialize + Sync>(&self, table: Table, key: String, value: &T) -> Result<Pending, StateError> {
        let bytes = self.encode(value)?;
        self.begin(StateChange::Put(table, key, bytes)).await
    }

    fn encode<T: Serialize>(&self, value: &T) -> Result<Vec<u8>, StateError> {
        serde_json::to_vec(value)
            .map_err(|error| StateError::Write { path: self.path.clone(), reason: error.to_string() })
    }

    async fn write(&self, change: StateChange) -> Result<(), StateError> {
        self.begin(change).await?.wait().await
    }

    async fn begin(&self, change: StateChange) -> Result<Pending, StateError> {
        let (done, result) = oneshot::channel();
        self.writes.send(Write { change, done }).await.map_err(|_| StateError::Closed)?;
        Ok(Pending(Some((self.path.clone(), result.shared()))))
    }
}

/// What became of a write, once that is known.
type WriteEnd = oneshot::Receiver<Result<(), String>>;

/// A write that has its place among the others and is not on disk yet.
#[derive(Clone, Debug)]
pub(crate) struct Pending(Option<(PathBuf, Shared<WriteEnd>)>);

impl Pending {
    /// Waits until it is on disk.
    pub(crate) async fn wait(self) -> Result<(), StateError> {
        let Some((path, result)) = self.0 else { return Ok(()) };
        result.await.map_err(|_| StateError::Closed)?.map_err(|reason| StateError::Write { path, reason })
    }

    /// What became of it, once that is known.
    pub(crate) fn so_far(&self) -> Option<Result<(), StateError>> {
        self.clone().wait().now_or_never()
    }
}

fn write_all(
    path: &Path,
    mut database: Option<Database>,
    mut queue: mpsc::Receiver<Write>,
    flaws: &watch::Sender<Flaws>,
) {
    let mut batch = Vec::with_capacity(QUEUE);
    while queue.blocking_recv_many(&mut batch, QUEUE) > 0 {
        let result = commit_or_reopen(path, &mut database, &batch);
        let unwritable = result.as_ref().err().cloned();
        if let Some(reason) = &unwritable {
            tracing::error!(reason, "state file cannot be written");
        }
        flaws.send_if_modified(|known| {
            let is_news = known.unwritable.is_some() != unwritable.is_some();
            known.unwritable = unwritable;
            is_news
        });
        for write in batch.drain(..) {
            // A writer that was cancelled does not ask for the result.
            drop(write.done.send(result.clone()));
        }
    }
}

/// After a failed write (a full disk) the database refuses all further ones until it is opened again.
fn commit_or_reopen(path: &Path, database: &mut Option<Database>, batch: &[Write]) -> Result<(), String> {
    let changes = || batch.iter().map(|write| &write.change);
    if let Some(open) = database {
        match commit(open, changes()) {
            Ok(()) => return Ok(()),
            Err(error) => tracing::warn!(error = %error, "state file is opened again after a failed write"),
        }
    }
    // Two open ones would exclude each other.
    drop(database.take());
    let open = database.insert(Database::create(path).map_err(|error| error.to_string())?);
    commit(open, changes()).map_err(|error| error.to_string())
}

fn commit<'a>(database: &Database, changes: impl Iterator<Item = &'a StateChange>) -> Result<(), redb::Error> {
    let transaction = database.begin_write()?;
    {
        let mut allocs = transaction.open_table(ALLOCS)?;
        let mut tasks = transaction.open_table(TASKS)?;
        let mut jobs = transaction.open_table(JOBS)?;
        let mut meta = transaction.open_table(META)?;
        for change in changes {
            match change {
                StateChange::Put(Table::Allocs, key, value) => drop(allocs.insert(key.as_str(), value.as_slice())?),
                StateChange::Put(Table::Tasks, key, value) => drop(tasks.insert(key.as_str(), value.as_slice())?),
                StateChange::Put(Table::Jobs, key, value) => drop(jobs.insert(key.as_str(), value.as_slice())?),
                StateChange::Put(Table::Meta, key, value) => drop(meta.insert(key.as_str(), value.as_slice())?),
                StateChange::Delete(Table::Meta, key) => drop(meta.remove(key.as_str())?),
                StateChange::Delete(Table::Allocs, key) => drop(allocs.remove(key.as_str())?),
                StateChange::Delete(Table::Tasks, key) => drop(tasks.remove(key.as_str())?),
                StateChange::Delete(Table::Jobs, key) => drop(jobs.remove(key.as_str())?),
                StateChange::Forget(uid) => {
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
pub(crate) mod tests;
