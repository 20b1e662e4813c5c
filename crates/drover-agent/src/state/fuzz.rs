//! State files of any bytes.

use std::collections::BTreeMap;

use redb::Database;
use redb::backends::InMemoryBackend;
use serde::Deserialize;
use serde_json::Value;

use super::file::{guarded, in_memory, read, read_whole};
use super::tables::{ALLOCS, JOBS, META, TASKS};

/// A state file's records, as a document.
#[derive(Deserialize)]
struct Records {
    #[serde(default)]
    allocs: BTreeMap<String, Value>,
    #[serde(default)]
    tasks: BTreeMap<String, Value>,
    #[serde(default)]
    jobs: BTreeMap<String, Value>,
    #[serde(default)]
    meta: BTreeMap<String, Value>,
}

/// Reads a file of these pages, or one with these records.
pub(crate) fn fuzz(data: &[u8]) {
    match serde_json::from_slice::<Records>(data) {
        Ok(records) => {
            let Ok(database) = written(&records) else { return };
            let database = std::panic::AssertUnwindSafe(database);
            let Ok(saved) = guarded(|| read(&database)) else { return };
            for record in saved.allocs.values() {
                let again = serde_json::to_vec(record).and_then(|bytes| serde_json::from_slice(&bytes));
                let again: super::AllocRecord = again.expect("what was read can be written and read");
                assert_eq!(again.allocation, record.allocation, "a record changes when it is written");
            }
            for record in saved.tasks.values().flat_map(BTreeMap::values) {
                let again = serde_json::to_vec(record).expect("what was read can be written");
                drop(serde_json::from_slice::<crate::tasks::record::TaskRecord>(&again).expect("and read"));
            }
        }
        Err(_) => drop(guarded(|| read_whole(in_memory(data)?))),
    }
}

fn written(records: &Records) -> Result<Database, redb::Error> {
    let database = Database::builder().create_with_backend(InMemoryBackend::new())?;
    let transaction = database.begin_write()?;
    for (definition, all) in
        [(ALLOCS, &records.allocs), (TASKS, &records.tasks), (JOBS, &records.jobs), (META, &records.meta)]
    {
        let mut table = transaction.open_table(definition)?;
        for (key, value) in all {
            table.insert(key.as_str(), value.to_string().as_bytes())?;
        }
    }
    transaction.commit()?;
    Ok(database)
}
