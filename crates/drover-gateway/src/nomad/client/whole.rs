//! Answers of an agent that are sent as a whole: lists, samples, and that something was done.

use std::collections::BTreeMap;

use drover_nomad::{ClientOrder, FileFacts, Reply as Answered, TaskUsage, Usage, check_results, file, files, usage};
use drover_socket::client::Exchange;
use drover_socket::protocol::{AllocStats, FileInfo, TaskStats};
use serde_json::json;

use super::begin::NodeSession;
use crate::answers::Refusal;
use crate::replies::{WholeAnswer, in_turn, whole_answer};

/// The answer, once the agent has come to an end.
///
/// # Errors
/// What the agent refuses, 504 when it does not come to an end.
pub(super) async fn answer(session: NodeSession) -> Result<Answered, Refusal> {
    let NodeSession { query, order, placed, exchange: Exchange { replies, inputs }, open, recheck: _ } = session;
    let n_samples = matches!(order, ClientOrder::Stats { .. }).then_some(2);
    let WholeAnswer { files: listed, file: found, sample, checks } = whole_answer(in_turn(replies), n_samples).await?;
    drop((inputs, open));
    let incomplete = || Refusal::new(504, "the agent's answer is incomplete");
    let value = match order {
        ClientOrder::List { .. } => files(&listed.into_iter().map(facts).collect::<Vec<_>>()),
        ClientOrder::Stat { .. } => file(&facts(found.ok_or_else(incomplete)?)),
        ClientOrder::Stats { task } => usage(&used(&sample.ok_or_else(incomplete)?), task.as_deref(), &placed),
        ClientOrder::Checks => {
            let checks: Result<BTreeMap<_, _>, _> = checks
                .unwrap_or_default()
                .into_iter()
                .map(|(id, check)| Ok((id, serde_json::from_value(check)?)))
                .collect();
            let wrong = |error: serde_json::Error| Refusal::new(504, format!("the agent's checks are none: {error}"));
            check_results(&checks.map_err(wrong)?, &placed.shown_name)
        }
        // Clients look for nothing in it.
        ClientOrder::Gc => return Ok(Answered::nothing()),
        ClientOrder::Restart { .. }
        | ClientOrder::Signal { .. }
        | ClientOrder::Read { .. }
        | ClientOrder::Stream { .. }
        | ClientOrder::Logs(_)
        | ClientOrder::Exec { .. } => json!({}),
    };
    Ok(Answered::of(&value, &query)?)
}

fn facts(file: FileInfo) -> FileFacts {
    let FileInfo { name, is_dir, size, mode, modified_at, content_type } = file;
    FileFacts { name, is_dir, size, mode, modified_at, content_type }
}

fn used(stats: &AllocStats) -> Usage {
    let of = |used: &TaskStats| TaskUsage {
        cores: used.cpu_fraction,
        memory_bytes: used.memory_bytes,
        memory_peak_bytes: used.memory_peak_bytes,
    };
    let tasks = stats.tasks.iter().map(|(name, used)| (name.clone(), of(used))).collect();
    Usage { time: stats.time, total: of(&stats.total), tasks }
}
