//! `drover system release-finalizers`: frees what is being deleted and waits for a controller that will not come back.
//!
//! Input: objects of the kinds Job, Allocation, CSIVolume and HostVolume, which alone have finalizers of drover's.
//! Output: the same without them, a list, and what is forgotten with them. Must never touch another owner's finalizer,
//! nor an object that is not being deleted.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::{self, IsTerminal, Write};

use anyhow::{Context, bail, ensure};
use drover_api::message::some_of;
use drover_api::{Allocation, CSIVolume, HostVolume, Job, finalizer};
use futures::StreamExt;
use jiff::Timestamp;
use kube::api::ListParams;
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::cluster::connect::{ConnectArgs, Connection};
use crate::cluster::objects::Objects;
use crate::commands::system::leader::refuse_beside_leader;
use crate::ui::output::{self, ReportOutput, name_of};
use crate::ui::stdio::complain;
use crate::ui::table::Table;
use drover_clock::{Clock, SystemClock};

/// How many objects are freed at the same time.
const AT_ONCE: usize = 16;
/// More names than that are not useful.
const MOST_NAMED: usize = 5;

/// Arguments of `drover system release-finalizers`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 all were freed or nothing waits, 1 refused or an error.")]
#[expect(clippy::struct_excessive_bools, reason = "independent switches of a command line")]
pub(crate) struct ReleaseFinalizersArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Free those of all namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Show what would be freed; nothing is written.
    #[arg(long)]
    dry_run: bool,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
    /// Free them although a controller leads, or it is unknown whether one does.
    #[arg(long)]
    force: bool,
    /// How they are printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportOutput,
}

/// Lists what waits, asks, and frees it.
pub(crate) async fn run(args: &ReleaseFinalizersArgs) -> anyhow::Result<u8> {
    let connection = args.connect.connect().await?;
    let waiting = Waiting::find(&connection, args.all_namespaces).await?;
    let n_waiting = waiting.len();
    if n_waiting == 0 {
        let place = if args.all_namespaces { String::new() } else { format!(" in namespace {}", connection.namespace) };
        output::report(&waiting.lines(), args.output, String::new)?;
        complain(&format!("nothing waits for a finalizer of drover{place}"));
        return Ok(0);
    }
    if !args.dry_run {
        ensure!(
            args.yes || io::stdin().is_terminal(),
            "not freed: standard input is no terminal to ask on; look at what would be freed with --dry-run, then give --yes"
        );
        if !args.force {
            refuse_beside_leader(&connection).await?;
        }
    }
    let lines = waiting.lines();
    output::report(&lines, args.output, || table(&lines))?;
    for line in waiting.left_behind() {
        complain(&line);
    }
    if args.dry_run {
        complain(&format!("{} would be freed; nothing was written", counted(n_waiting, "object")));
        return Ok(0);
    }
    if !args.yes && !is_agreed(n_waiting)? {
        complain("nothing was freed");
        return Ok(1);
    }
    let n_freed = waiting.free(&connection).await;
    if n_freed < n_waiting {
        bail!(
            "{n_freed} of {} were freed; do what the lines above say, and run this again",
            counted(n_waiting, "object")
        );
    }
    complain(&format!("{} freed", counted(n_freed, "object")));
    Ok(0)
}

/// Asks a person on the terminal.
fn is_agreed(n_waiting: usize) -> anyhow::Result<bool> {
    let mut screen = io::stderr().lock();
    write!(screen, "free {}? [y/N] ", counted(n_waiting, "object")).and_then(|()| screen.flush()).context("asking")?;
    let mut line = String::new();
    io::stdin().read_line(&mut line).context("reading the answer")?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// What is being deleted and waits for a finalizer of drover's.
#[derive(Debug, Default)]
struct Waiting {
    /// Among them those of a waiting job, which are not being deleted yet: they would wait next.
    allocations: Vec<Allocation>,
    volumes: Vec<CSIVolume>,
    host_volumes: Vec<HostVolume>,
    jobs: Vec<Job>,
}

/// One waiting object, as it is printed.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    /// Kind and name, as kubectl takes them.
    object: String,
    namespace: String,
    finalizer: &'static str,
    /// Since when it is being deleted; none for an allocation that goes with its job.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted_at: Option<Timestamp>,
    /// What stays of it outside the API server; empty for nothing.
    #[serde(skip_serializing_if = "String::is_empty")]
    leaves: String,
}

impl Waiting {
    async fn find(connection: &Connection, all_namespaces: bool) -> anyhow::Result<Self> {
        let all = ListParams::default();
        let mut jobs = connection.objects_of::<Job>(all_namespaces).list(&all).await?;
        jobs.retain(|job| finalizer::is_held(&job.metadata, finalizer::STOP_ALLOCATIONS) && is_deleted(job));
        let of_jobs: BTreeSet<&str> = jobs.iter().filter_map(|job| job.metadata.uid.as_deref()).collect();
        let goes_with_job =
            |alloc: &Allocation| alloc.owner_references().iter().any(|owner| of_jobs.contains(owner.uid.as_str()));
        let mut allocations = connection.objects_of::<Allocation>(all_namespaces).list(&all).await?;
        allocations.retain(|alloc| {
            finalizer::is_held(&alloc.metadata, finalizer::NODE_CLEANUP) && (is_deleted(alloc) || goes_with_job(alloc))
        });
        let mut volumes = connection.objects_of::<CSIVolume>(all_namespaces).list(&all).await?;
        volumes.retain(|volume| finalizer::is_held(&volume.metadata, finalizer::RELEASE_CLAIMS) && is_deleted(volume));
        let mut host_volumes = connection.objects_of::<HostVolume>(all_namespaces).list(&all).await?;
        host_volumes
            .retain(|volume| finalizer::is_held(&volume.metadata, finalizer::REMOVE_VOLUME) && is_deleted(volume));
        Ok(Self { allocations, volumes, host_volumes, jobs })
    }

    fn len(&self) -> usize {
        self.allocations.len() + self.volumes.len() + self.host_volumes.len() + self.jobs.len()
    }

    /// In the order in which they are freed.
    fn lines(&self) -> Vec<Line> {
        let allocations = self.allocations.iter().map(|alloc| {
            let leaves = if has_ended(alloc) { String::new() } else { format!("tasks on {}", alloc.spec.node_name) };
            line(alloc, finalizer::NODE_CLEANUP, leaves)
        });
        let volumes = self.volumes.iter().map(|volume| {
            let n_claims = n_claims(volume);
            let leaves = if n_claims == 0 { String::new() } else { counted(n_claims, "claim") };
            line(volume, finalizer::RELEASE_CLAIMS, leaves)
        });
        let host_volumes = self.host_volumes.iter().map(|volume| {
            let leaves = files_of(volume).map_or_else(String::new, |node| format!("files on {node}"));
            line(volume, finalizer::REMOVE_VOLUME, leaves)
        });
        let jobs = self.jobs.iter().map(|job| line(job, finalizer::STOP_ALLOCATIONS, String::new()));
        allocations.chain(volumes).chain(host_volumes).chain(jobs).collect()
    }

    /// What stays behind without an owner once they are freed, in words.
    fn left_behind(&self) -> Vec<String> {
        let mut said = Vec::new();
        let mut by_node: BTreeMap<&str, usize> = BTreeMap::new();
        for alloc in self.allocations.iter().filter(|alloc| !has_ended(alloc)) {
            *by_node.entry(&alloc.spec.node_name).or_default() += 1;
        }
        if !by_node.is_empty() {
            let nodes =
                by_node.iter().map(|(node, n_allocs)| format!("{} on {node}", counted(*n_allocs, "allocation")));
            said.push(format!(
                "tasks may still run: {}. A node's agent stops them when it sees that they are gone; without an agent they go on until the node's supervisor is ended (its process id is in supervisor.pid of the agent's stateDir)",
                some_of(nodes, MOST_NAMED)
            ));
        }
        let claimed = self.volumes.iter().filter(|volume| n_claims(volume) > 0);
        let claimed: Vec<String> =
            claimed.map(|volume| format!("{} of {}", counted(n_claims(volume), "claim"), name_of(volume))).collect();
        if !claimed.is_empty() {
            said.push(format!(
                "claims are forgotten, not released: {}. What they have attached or mounted stays so until it is detached where the volumes come from",
                some_of(claimed, MOST_NAMED)
            ));
        }
        let made = self
            .host_volumes
            .iter()
            .filter_map(|volume| files_of(volume).map(|node| format!("{} on {node}", name_of(volume))));
        let made: Vec<String> = made.collect();
        if !made.is_empty() {
            said.push(format!(
                "files stay on their nodes: {}. Each lies in host-volumes below the agent's stateDir, in the folder named as the volume's status.id",
                some_of(made, MOST_NAMED)
            ));
        }
        said
    }

    /// Frees them: how many were freed. What goes wrong with one is told, and stops no other.
    async fn free(&self, connection: &Connection) -> usize {
        // A job goes last: while it is there, it says whose the others are.
        free_all(connection, &self.allocations, finalizer::NODE_CLEANUP).await
            + free_all(connection, &self.volumes, finalizer::RELEASE_CLAIMS).await
            + free_all(connection, &self.host_volumes, finalizer::REMOVE_VOLUME).await
            + free_all(connection, &self.jobs, finalizer::STOP_ALLOCATIONS).await
    }
}

/// A kind of what can be freed.
trait Freeable:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + Serialize + DeserializeOwned
{
}

impl Freeable for Job {}
impl Freeable for Allocation {}
impl Freeable for CSIVolume {}
impl Freeable for HostVolume {}

async fn free_all<K: Freeable>(connection: &Connection, found: &[K], finalizer: &str) -> usize {
    let free = |one| free_one(connection, one, finalizer);
    let mut freed = futures::stream::iter(found).map(free).buffer_unordered(AT_ONCE);
    let mut n_freed = 0;
    while let Some(result) = freed.next().await {
        match result {
            Ok(()) => n_freed += 1,
            Err(error) => complain(&format!("{error:#}")),
        }
    }
    n_freed
}

async fn free_one<K: Freeable>(connection: &Connection, one: &K, finalizer: &str) -> anyhow::Result<()> {
    let objects: Objects<K> = connection.objects_in(&one.namespace().unwrap_or_default());
    if !is_deleted(one) {
        objects.delete(one).await?;
    }
    objects.release(one, finalizer).await
}

fn is_deleted<K: Resource>(object: &K) -> bool {
    object.meta().deletion_timestamp.is_some()
}

fn has_ended(alloc: &Allocation) -> bool {
    alloc.status.as_ref().is_some_and(|status| status.ended_at.is_some())
}

fn n_claims(volume: &CSIVolume) -> usize {
    volume.status.as_ref().map_or(0, |status| status.claims.len())
}

/// The node that keeps files which drover made for a volume.
fn files_of(volume: &HostVolume) -> Option<&str> {
    let node = volume.status.as_ref().map(|status| status.node_name.as_str())?;
    (volume.spec.plugin.is_some() && !node.is_empty()).then_some(node)
}

fn line<K: Resource<DynamicType = ()>>(object: &K, finalizer: &'static str, leaves: String) -> Line {
    Line {
        object: name_of(object),
        namespace: object.namespace().unwrap_or_default(),
        finalizer,
        deleted_at: object.meta().deletion_timestamp.as_ref().map(|at| at.0),
        leaves,
    }
}

fn table(lines: &[Line]) -> String {
    let now = SystemClock.now();
    let mut table = Table::new(&["NAMESPACE", "OBJECT", "FINALIZER", "DELETED", "LEAVES"]);
    for line in lines {
        let ago = |at: Timestamp| output::span(now.duration_since(at).as_secs());
        table.row(vec![
            line.namespace.clone(),
            line.object.clone(),
            line.finalizer.to_owned(),
            line.deleted_at.map_or_else(|| "with its job".to_owned(), ago),
            if line.leaves.is_empty() { "-".to_owned() } else { line.leaves.clone() },
        ]);
    }
    let mut text = String::new();
    table.write(&mut text);
    text
}

fn counted(n: usize, noun: &str) -> String {
    format!("{n} {noun}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::{Value, json};

    use super::*;

    fn alloc(name: &str, node: &str, status: &Value) -> Allocation {
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Allocation",
            "metadata": { "name": name, "namespace": "shop", "finalizers": [finalizer::NODE_CLEANUP],
                "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "jobName": "web", "jobUID": "u", "jobVersion": 0, "group": "g", "index": 0, "nodeName": node, "resources": {} },
            "status": status,
        }))
        .expect("an allocation")
    }

    fn volume(name: &str, n_claims: usize) -> CSIVolume {
        let claims: Vec<Value> =
            (0..n_claims).map(|n| json!({ "allocID": format!("a-{n}"), "mode": "write" })).collect();
        serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume",
            "metadata": { "name": name, "namespace": "shop", "finalizers": [finalizer::RELEASE_CLAIMS],
                "deletionTimestamp": "2026-01-01T00:00:00Z" },
            "spec": { "pluginID": "p", "capabilities": [] },
            "status": { "claims": claims },
        }))
        .expect("a volume")
    }

    fn check(allocations: Vec<Allocation>, volumes: Vec<CSIVolume>, wanted: &Expect) {
        wanted.assert_eq(&Waiting { allocations, volumes, ..Waiting::default() }.left_behind().join("\n"));
    }

    #[test]
    fn what_has_ended_and_what_nobody_claims_leaves_nothing_behind() {
        let ended = json!({ "clientStatus": "complete", "endedAt": "2026-01-01T00:00:00Z" });
        check(vec![alloc("a", "n-1", &ended)], vec![volume("data", 0)], &expect![""]);
    }

    #[test]
    #[expect(clippy::needless_raw_string_hashes, reason = "as expect-test writes it")]
    fn tasks_are_told_by_node_and_claims_by_volume() {
        let running = json!({ "clientStatus": "running" });
        let allocs = vec![alloc("a", "n-1", &running), alloc("b", "n-1", &running), alloc("c", "n-2", &Value::Null)];
        check(
            allocs,
            vec![volume("data", 2)],
            &expect![[r#"
                tasks may still run: 2 allocations on n-1, 1 allocation on n-2. A node's agent stops them when it sees that they are gone; without an agent they go on until the node's supervisor is ended (its process id is in supervisor.pid of the agent's stateDir)
                claims are forgotten, not released: 2 claims of csivol/data. What they have attached or mounted stays so until it is detached where the volumes come from"#]],
        );
    }

    #[test]
    fn files_of_host_volumes_that_drover_made_are_told() {
        let volume = |name: &str, source: &str, value: &str| -> HostVolume {
            let mut volume = json!({
                "apiVersion": "drover.dev/v1alpha1", "kind": "HostVolume", "metadata": { "name": name, "namespace": "shop" },
                "spec": { "capabilities": [] }, "status": { "nodeName": "n-1", "id": "u" },
            });
            volume["spec"][source] = json!(value);
            serde_json::from_value(volume).expect("a volume")
        };
        let host_volumes = vec![volume("made", "plugin", "mkdir"), volume("old", "hostPath", "/srv/old")];
        let left = Waiting { host_volumes, ..Waiting::default() }.left_behind();
        let wanted = "files stay on their nodes: hvol/made on n-1. Each lies in host-volumes below the agent's stateDir, in the folder named as the volume's status.id";
        assert_eq!(left, [wanted]);
    }

    #[test]
    fn of_many_nodes_a_few_are_named() {
        let running = json!({ "clientStatus": "running" });
        let allocs = (0..7).map(|n| alloc("a", &format!("n-{n}"), &running)).collect();
        let said = Waiting { allocations: allocs, ..Waiting::default() }.left_behind().concat();
        assert!(said.contains("1 allocation on n-4 and 2 more. A node's agent"), "{said}");
    }
}
