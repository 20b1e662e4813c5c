//! Opening the state file, whatever became of it: whole, damaged, on a disk that takes no writes.
//!
//! Every page is compared with its checksum and all of it is read. What is damaged is not used at all: a record that
//! was guessed could start or end a task. The file then gets another name, so that people can look at it, and the agent
//! begins with nothing.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use redb::backends::InMemoryBackend;
use redb::{Database, DatabaseError, ReadableDatabase, ReadableTable, StorageBackend, TableDefinition};
use serde::de::DeserializeOwned;

use super::records::{Flaws, Saved};
use super::tables::{
    ALLOCS, DYNAMIC_META, JOBS, LAST_HEARTBEAT, LAST_TASK_USER, LAYOUT, META, MOUNTS, NETWORKS, REBUILDING, TASK_USER,
    TASK_USER_END, TASK_USERS, TASKS, VOLUMES,
};
use crate::node::task_user_table::TaskUserTable;
use crate::tasks::record::TaskRecord;

/// How long a dying agent is waited for.
const TAKE_OVER: Duration = Duration::from_secs(3);
/// How often it is looked whether it has let go.
const TAKE_OVER_PAUSE: Duration = Duration::from_millis(5);
/// How many damaged files are kept for people.
const KEPT: usize = 3;

/// Why a file is not used as it is.
#[derive(Debug)]
pub(super) enum Unread {
    /// What it says cannot be trusted.
    Damaged(String),
    /// Its disk takes no writes.
    Unwritable(String),
    /// Neither; a person has to act.
    Unusable(String),
}

impl From<redb::Error> for Unread {
    fn from(error: redb::Error) -> Self {
        let text = error.to_string();
        match error {
            redb::Error::Io(error) if is_unwritable(&error) => Self::Unwritable(text),
            redb::Error::DatabaseAlreadyOpen => {
                Self::Unusable("another agent has it open: end that one first".to_owned())
            }
            redb::Error::UpgradeRequired(_) => Self::Unusable(text),
            _ => Self::Damaged(text),
        }
    }
}

impl From<DatabaseError> for Unread {
    fn from(error: DatabaseError) -> Self {
        redb::Error::from(error).into()
    }
}

fn is_unwritable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
    )
}

/// Opens the file; without a database it cannot be written.
pub(super) fn open(path: &Path, now: Timestamp) -> Result<(Option<Database>, Saved, Flaws), String> {
    take_up_new(path);
    match guarded(|| open_and_read(path)) {
        Ok((database, saved)) => {
            let lost = saved.is_rebuilding.then(|| "the agent ended before it knew its tasks again".to_owned());
            Ok((Some(database), saved, Flaws { lost, unwritable: None }))
        }
        Err(Unread::Unusable(reason)) => Err(reason),
        Err(Unread::Unwritable(reason)) => {
            tracing::error!(path = %path.display(), reason, "the state file cannot be written: nothing new is started");
            read_unwritable(path, reason)
        }
        Err(Unread::Damaged(reason)) => Ok(begin_anew(path, now, &reason)),
    }
}

/// The database asserts what a damaged file breaks; that must not end the agent without a word.
pub(super) fn guarded<T>(open: impl FnOnce() -> Result<T, Unread> + std::panic::UnwindSafe) -> Result<T, Unread> {
    std::panic::catch_unwind(open)
        .unwrap_or_else(|_| Err(Unread::Damaged("its pages contradict each other".to_owned())))
}

fn open_and_read(path: &Path) -> Result<(Database, Saved), Unread> {
    read_whole(take_over(path)?)
}

/// Opens the file once an agent that is just dying has let go of it: a thread of it may still wait for the disk.
fn take_over(path: &Path) -> Result<Database, DatabaseError> {
    let until = Instant::now() + TAKE_OVER;
    loop {
        match Database::create(path) {
            Err(DatabaseError::DatabaseAlreadyOpen) if Instant::now() < until => {
                std::thread::park_timeout(TAKE_OVER_PAUSE);
            }
            opened => return opened,
        }
    }
}

pub(super) fn read_whole(mut database: Database) -> Result<(Database, Saved), Unread> {
    if !database.check_integrity()? {
        tracing::warn!("the last write to the state file was torn and is undone");
    }
    let saved = read(&database)?;
    Ok((database, saved))
}

/// Reads a file that cannot be written, in a copy: what was torn has to be undone somewhere.
fn read_unwritable(path: &Path, reason: String) -> Result<(Option<Database>, Saved, Flaws), String> {
    let unwritable = Some(reason);
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Ok((None, Saved::default(), Flaws { lost: Some(error.to_string()), unwritable })),
    };
    if bytes.is_empty() {
        return Ok((None, Saved::default(), Flaws { lost: None, unwritable }));
    }
    match guarded(|| read_whole(in_memory(&bytes)?)) {
        Ok((_, saved)) => Ok((None, saved, Flaws { lost: None, unwritable })),
        Err(Unread::Unusable(reason)) => Err(reason),
        Err(Unread::Damaged(reason) | Unread::Unwritable(reason)) => {
            Ok((None, Saved::default(), Flaws { lost: Some(reason), unwritable }))
        }
    }
}

pub(super) fn in_memory(bytes: &[u8]) -> Result<Database, Unread> {
    let backend = InMemoryBackend::new();
    let copied = backend.set_len(bytes.len() as u64).and_then(|()| backend.write(0, bytes));
    copied.map_err(|error| Unread::Damaged(error.to_string()))?;
    Ok(Database::builder().create_with_backend(backend)?)
}

/// Gives the damaged file another name and makes a new one.
fn begin_anew(path: &Path, now: Timestamp, damage: &str) -> (Option<Database>, Saved, Flaws) {
    let aside = PathBuf::from(format!("{}.damaged-{}", path.display(), now.as_second()));
    match replace(path, &aside) {
        Ok(database) => {
            remove_oldest(path);
            let lost = format!("the state file was damaged ({damage}) and is now {}", aside.display());
            tracing::error!(lost, "what runs is asked of the API server and the supervisor");
            (Some(database), Saved::default(), Flaws { lost: Some(lost), unwritable: None })
        }
        Err(reason) => {
            let lost = format!("the state file is damaged ({damage}) and cannot be replaced");
            tracing::error!(path = %path.display(), reason, lost, "nothing new is started");
            (None, Saved::default(), Flaws { lost: Some(lost), unwritable: Some(reason) })
        }
    }
}

/// The new file says that the agent does not know its tasks yet, and takes the name at once: an agent that dies
/// meanwhile leaves either the damaged file or that one.
fn replace(path: &Path, aside: &Path) -> Result<Database, String> {
    let text = |error: io::Error| error.to_string();
    let new = new_name(path);
    match std::fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(text(error)),
        Ok(()) | Err(_) => {}
    }
    let database = Database::create(&new).map_err(|error| error.to_string())?;
    let mark = || -> Result<(), redb::Error> {
        let transaction = database.begin_write()?;
        transaction.open_table(META)?.insert(REBUILDING, b"true".as_slice())?;
        transaction.commit()?;
        Ok(())
    };
    mark().map_err(|error| error.to_string())?;
    std::fs::rename(path, aside).map_err(text)?;
    std::fs::rename(&new, path).map_err(text)?;
    Ok(database)
}

fn new_name(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.new", path.display()))
}

/// An agent that died between two names has left the new file beside its place.
fn take_up_new(path: &Path) {
    let new = new_name(path);
    if !path.exists()
        && new.exists()
        && let Err(error) = std::fs::rename(&new, path)
    {
        tracing::error!(error = %error, path = %new.display(), "the new state file does not get its name");
    }
}

/// Damaged files are evidence, and their number has an end.
fn remove_oldest(path: &Path) {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else { return };
    let prefix = format!("{name}.damaged-");
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    let mut aside: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)))
        .collect();
    aside.sort();
    for old in aside.iter().rev().skip(KEPT) {
        if let Err(error) = std::fs::remove_file(old) {
            tracing::warn!(error = %error, path = %old.display(), "an old damaged state file is left");
        }
    }
}

pub(super) fn read(database: &Database) -> Result<Saved, Unread> {
    check_layout(database)?;
    read_records(database).map_err(Unread::Damaged)
}

fn read_records(database: &Database) -> Result<Saved, String> {
    let text = |error: redb::Error| error.to_string();
    let transaction = database.begin_read().map_err(|error| text(error.into()))?;
    let mut saved = Saved {
        allocs: records(&transaction, ALLOCS)?,
        jobs: records(&transaction, JOBS)?,
        last_heartbeat: meta_record(&transaction, LAST_HEARTBEAT)?,
        volumes: meta_record(&transaction, VOLUMES)?.unwrap_or_default(),
        mounts: meta_record(&transaction, MOUNTS)?.unwrap_or_default(),
        task_users: task_users(&transaction)?,
        networks: meta_record(&transaction, NETWORKS)?.unwrap_or_default(),
        dynamic_meta: meta_record(&transaction, DYNAMIC_META)?.unwrap_or_default(),
        is_rebuilding: meta_record(&transaction, REBUILDING)?.unwrap_or_default(),
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

/// The users of allocations, each in a record of its own.
fn task_users(transaction: &redb::ReadTransaction) -> Result<TaskUserTable, String> {
    let earlier: TaskUserTable = meta_record(transaction, TASK_USERS)?.unwrap_or_default();
    let last: Option<u32> = meta_record(transaction, LAST_TASK_USER)?;
    let collect = || -> Result<Vec<(String, Vec<u8>)>, redb::Error> {
        let table = transaction.open_table(META)?;
        let mut all = Vec::new();
        for entry in table.range(TASK_USER..TASK_USER_END)? {
            let (key, value) = entry?;
            all.push((key.value().trim_start_matches(TASK_USER).to_owned(), value.value().to_vec()));
        }
        Ok(all)
    };
    let mut users = earlier;
    for (uid, value) in collect().map_err(|error| error.to_string())? {
        let number = serde_json::from_slice(&value).map_err(|error| format!("the user of {uid:?}: {error}"))?;
        users.learn(&uid, number);
    }
    users.went_on_to(last.unwrap_or_default());
    Ok(users)
}

/// Makes the tables of a new file and refuses a file of a newer build.
fn check_layout(database: &Database) -> Result<(), Unread> {
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
    match run()? {
        Some(found) if found > LAYOUT => Err(Unread::Unusable(format!(
            "its layout {found} is newer than {LAYOUT}, the newest of this build: use the newer droverd"
        ))),
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
