//! Lives of claims during which one write meets an accident, each write in turn.

use drover_api::{CSIVolume, annotation};
use drover_store::Part;
use serde_json::json;

use super::{Cluster, user, volume, with_plugin};
use crate::tests::{Scene, Story, World, in_default, no_accident_changes_the_end};

const WRITER: &str = "single-node-writer";

impl Scene for Cluster {
    fn world(&mut self) -> &mut World {
        &mut self.world
    }

    async fn live(&mut self, seconds: u64) {
        Cluster::live(self, seconds).await;
    }
}

fn begun() -> Cluster {
    let cluster = Cluster::new(&[with_plugin("n1"), with_plugin("n2")]);
    cluster.world.create(&volume("data", WRITER));
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_claimed_handed_on_and_deleted() {
    let story = Story {
        begin: begun,
        acts: &[
            (|cluster| drop(cluster.world.create(&user("a", 1, "data", WRITER))), 15),
            (|cluster| drop(cluster.world.create(&user("b", 1, "data", WRITER))), 5),
            (|cluster| cluster.stop("a"), 40),
            (|cluster| cluster.stop("b"), 20),
            (|cluster| cluster.world.delete::<CSIVolume>(&in_default("data")), 20),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn readers_of_one_volume_come_and_go() {
    let story = Story {
        begin: || {
            let cluster = Cluster::new(&[with_plugin("n1"), with_plugin("n2")]);
            cluster.world.create(&volume("data", "multi-node-reader-only"));
            cluster
        },
        acts: &[
            (|cluster| drop(cluster.world.create(&user("r", 3, "data", "multi-node-reader-only"))), 20),
            (|cluster| cluster.stop("r"), 30),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_detach_that_fails_at_first_frees_the_claim_in_the_end() {
    let story = Story {
        begin: || {
            let mut cluster = begun();
            cluster.answer("controller-unpublish", vec![json!({ "error": "the disk is locked" }); 2]);
            cluster
        },
        acts: &[
            (|cluster| drop(cluster.world.create(&user("a", 1, "data", WRITER))), 15),
            (|cluster| cluster.stop("a"), 90),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_is_made_enlarged_and_deleted_with_its_data() {
    let story = Story {
        begin: || {
            let mut cluster = Cluster::new(&[with_plugin("n1"), with_plugin("n2")]);
            cluster.answer("create-volume", vec![json!({ "externalID": "disk-7", "capacityBytes": 1 << 30 }); 2]);
            cluster.answer("controller-expand", vec![json!({ "capacityBytes": 2_i64 << 30 }); 2]);
            let mut made = volume("data", WRITER);
            made.spec.external_id = String::new();
            made.spec.capacity = serde_json::from_value(json!({ "min": "1Gi" })).unwrap();
            cluster.world.create(&made);
            cluster
        },
        acts: &[
            (|_| {}, 15),
            (
                |cluster| {
                    let larger = json!({ "spec": { "capacity": { "min": "2Gi" } } });
                    cluster.world.merge::<CSIVolume>(&in_default("data"), Part::Spec, larger);
                },
                20,
            ),
            (|cluster| cluster.annotate("data", annotation::DELETE_DATA, &json!("true")), 5),
            (|cluster| cluster.world.delete::<CSIVolume>(&in_default("data")), 40),
        ],
    };
    no_accident_changes_the_end(story).await;
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_taken() {
    let story = Story {
        begin: || {
            let mut cluster = begun();
            let taken = json!({ "id": "snap-1", "name": "before", "sizeBytes": 7, "readyToUse": true });
            cluster.answer("create-snapshot", vec![json!({ "snapshots": [taken] }); 2]);
            cluster
        },
        acts: &[(|_| {}, 10), (|cluster| cluster.annotate("data", annotation::TAKE_SNAPSHOT, &json!("before")), 40)],
    };
    no_accident_changes_the_end(story).await;
}
