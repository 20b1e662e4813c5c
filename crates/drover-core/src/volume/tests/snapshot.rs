//! What people request of snapshots and what the status says of them afterwards (section 7).

use drover_api::annotation;
use drover_api::csi_volume::{MOST_SNAPSHOTS, VolumeSnapshot};
use expect_test::{Expect, expect};

use super::*;
use crate::volume::snapshot::{SnapshotOutcome, SnapshotRequest};

fn request(annotations: &[(&str, &str)]) -> Option<SnapshotRequest> {
    let all = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    SnapshotRequest::of(Some(&all))
}

fn taken(id: &str, second: i64) -> VolumeSnapshot {
    let created_at = jiff::Timestamp::from_second(second).ok();
    VolumeSnapshot { id: id.to_owned(), created_at, ready_to_use: true, ..VolumeSnapshot::default() }
}

fn listed(status: &CSIVolumeStatus) -> Vec<(&str, &str)> {
    status.snapshots.iter().map(|one| (&*one.id, &*one.name)).collect()
}

fn told(status: &mut CSIVolumeStatus, request: SnapshotRequest, answer: Result<Vec<VolumeSnapshot>, String>) {
    let outcome = SnapshotOutcome { request, answer };
    outcome.tell(status);
    assert!(outcome.is_told_by(status));
    let before = status.clone();
    outcome.tell(status);
    assert_eq!(*status, before, "telling it twice changes nothing");
}

#[test]
fn of_several_wishes_the_list_is_the_last_and_shows_what_became_of_the_others() {
    let all = [
        (annotation::LIST_SNAPSHOTS, "true"),
        (annotation::DELETE_SNAPSHOT, "s-1"),
        (annotation::TAKE_SNAPSHOT, "nightly"),
    ];
    assert_eq!(request(&all), Some(SnapshotRequest::Take("nightly".to_owned())));
    assert_eq!(request(&all[..2]), Some(SnapshotRequest::Delete("s-1".to_owned())));
    assert_eq!(request(&all[..1]), Some(SnapshotRequest::List));
    assert_eq!((request(&[]), SnapshotRequest::of(None)), (None, None));
    for (name, value) in all {
        assert_eq!(request(&[(name, value)]).expect("a request").annotation(), name);
    }
}

#[test]
fn the_status_says_what_the_provider_answered_and_an_error_until_the_next_answer() {
    let mut status = CSIVolumeStatus::default();
    let take = || SnapshotRequest::Take("nightly".to_owned());
    told(&mut status, take(), Ok(vec![taken("s-1", 10)]));
    told(&mut status, SnapshotRequest::Take("weekly".to_owned()), Ok(vec![taken("s-2", 20)]));
    assert_eq!(listed(&status), [("s-2", "weekly"), ("s-1", "nightly")], "the newest first");
    told(&mut status, take(), Ok(vec![taken("s-1", 10)]));
    assert_eq!(status.snapshots.len(), 2, "the same name is the same snapshot");

    told(&mut status, take(), Err("no room".to_owned()));
    assert_eq!((&*status.snapshot_error, status.snapshots.len()), ("no room", 2));
    let first = VolumeSnapshot { created_at: None, ..taken("s-3", 0) };
    told(&mut status, SnapshotRequest::List, Ok(vec![first, taken("s-1", 10)]));
    assert_eq!(&*status.snapshot_error, "");
    assert_eq!(listed(&status), [("s-1", "nightly"), ("s-3", "")], "what has no time is last; names are kept");

    told(&mut status, SnapshotRequest::Delete("s-1".to_owned()), Ok(Vec::new()));
    told(&mut status, SnapshotRequest::Delete("s-9".to_owned()), Ok(Vec::new()));
    assert_eq!(listed(&status), [("s-3", "")]);
    let many = (0..).map(|n| taken(&format!("m-{n}"), n)).take(MOST_SNAPSHOTS + 5);
    told(&mut status, SnapshotRequest::List, Ok(many.collect()));
    assert_eq!(
        (status.snapshots.len(), &*status.snapshots[0].id),
        (MOST_SNAPSHOTS, "m-104"),
        "the oldest are left out"
    );
}

#[test]
fn what_cannot_be_wished_is_refused_with_what_would_help() {
    fn refused(stage: &Stage, request: &SnapshotRequest, wanted: &Expect) {
        let (spec, status) = (stage.spec(), stage.status());
        let said = request.check(&spec, &status, stage.plugins.get(&spec.plugin_id));
        wanted.assert_eq(&said.err().unwrap_or_default());
    }
    let mut stage = Stage::new(AccessMode::SingleNodeWriter);
    let take = SnapshotRequest::Take("nightly".to_owned());
    refused(
        &stage,
        &take,
        &expect!["no controller of plugin p says that it has the capability CREATE_DELETE_SNAPSHOT"],
    );
    refused(
        &stage,
        &SnapshotRequest::List,
        &expect!["no controller of plugin p says that it has the capability LIST_SNAPSHOTS"],
    );
    for name in ["n-1", "n-2"] {
        let more = ["CREATE_DELETE_SNAPSHOT", "LIST_SNAPSHOTS"].map(str::to_owned);
        stage.put_node(plugin_node(name, |info| info.capabilities.extend(more)));
    }
    refused(&stage, &take, &expect![""]);
    refused(&stage, &SnapshotRequest::List, &expect![""]);
    let long = SnapshotRequest::Take("n".repeat(91));
    refused(
        &stage,
        &long,
        &expect![
            "annotation drover.dev/take-snapshot: the name of a snapshot has 1 to 90 bytes and no control characters"
        ],
    );
    refused(
        &stage,
        &SnapshotRequest::Delete(String::new()),
        &expect!["annotation drover.dev/delete-snapshot: give the id of a snapshot, as status.snapshots has it"],
    );
    let status = stage.status();
    let unmade = CSIVolumeSpec { external_id: String::new(), ..stage.spec() };
    stage.put_volume(&v1(), unmade, status.clone());
    refused(&stage, &take, &expect!["the volume does not exist at its provider yet; its conditions say why"]);
    let stranger = CSIVolumeSpec { plugin_id: "q".to_owned(), ..stage.spec() };
    stage.put_volume(&v1(), stranger, status);
    refused(
        &stage,
        &take,
        &expect!["plugin q is not known; look at the job that runs it (its task has csiPlugin.id q)"],
    );
}
