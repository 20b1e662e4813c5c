//! The files of a sticky disk follow an allocation to another node, by way of the gateway, and go to no other.

use drover_api::{Allocation, ClientNode};
use drover_socket::disks::DiskAsk;
use drover_socket::protocol::{self, Answer, FrameKind};
use drover_testkit::control_plane::User;
use kube::Api;
use serde_json::json;

use crate::cluster::{LONG, client_status, job};
use crate::gateway::{NODE, Stage, token};
use crate::gateway_nodes::another_node;
use crate::gateway_values::turned;

/// Adds a line for each life, beside files of other kinds, and shows what there is.
const LIVES: &str = "cd $NOMAD_ALLOC_DIR/data && echo $NOMAD_ALLOC_NAME >> lives && ln -sfn lives now && \
                     [ -e large ] || head -c 3000000 /dev/urandom > large; cksum < large > $NOMAD_TASK_DIR/sum.$(wc -l < lives); \
                     cat $NOMAD_TASK_DIR/sum.*; cat now; exec sleep 100000";

fn ask(alloc: &Allocation) -> DiskAsk {
    let text = |text: &Option<String>| text.clone().expect("a name");
    let metadata = &alloc.metadata;
    DiskAsk { namespace: text(&metadata.namespace), allocation: text(&metadata.name), uid: text(&metadata.uid) }
}

/// What the gateway answers first to whom asks with this token; else why the connection is not turned.
async fn first_answer(stage: &Stage, token: &str, asked: &[u8]) -> Result<Answer, String> {
    let mut line = turned(stage, token, ("/disks/v1", "drover-disks/1")).await?;
    let frame = protocol::Frame { kind: FrameKind::Message, payload: asked.to_vec() };
    protocol::write_frame(&mut line, &frame).await.expect("asked");
    let answer = tokio::time::timeout(LONG, protocol::read_frame(&mut line)).await.expect("in time");
    let frame = answer.expect("an answer").expect("an answer");
    assert_eq!(frame.kind, FrameKind::Message);
    Ok(serde_json::from_slice(&frame.payload).expect("an answer"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_files_of_a_disk_follow_an_allocation_to_another_node_and_go_to_no_other() {
    let stage = Stage::start("gateway-disks", "").await;
    let cluster = &stage.cluster;
    cluster.namespace("shop").await;
    let group = json!({ "ephemeralDisk": { "sizeMB": 110, "migrate": true }, "update": { "minHealthyTime": "0s" } });
    cluster.apply("shop", &job("db", 1, &group, LIVES));
    let running = async || {
        let all = cluster.allocs("shop").await.into_iter();
        let live: Vec<Allocation> = all.filter(|it| client_status(it).to_string() == "running").collect();
        <[Allocation; 1]>::try_from(live).map(|[one]| one).ok()
    };
    cluster.eventually("it runs", async || running().await.is_some()).await;
    let old = running().await.expect("an allocation");
    let name = old.metadata.name.clone().expect("a name");
    let said = async |alloc: &str| {
        let alloc = alloc.to_owned();
        stage.alloc(User::Admin, &["logs", &alloc]).text()
    };
    cluster.eventually("it has written", async || said(&name).await.contains("db.g[0]")).await;
    let first = said(&name).await;

    let other = another_node(&stage, "n-2", Some((stage.agents, stage.users))).await;
    let drained = stage.command(User::Admin, &["node", "drain", NODE, "--deadline", "5m"]).output().expect("a command");
    assert!(drained.status.success(), "{}", String::from_utf8_lossy(&drained.stderr));
    let is_there = async || running().await.is_some_and(|it| it.spec.node_name == "n-2");
    cluster.eventually("it runs on the other node", is_there).await;
    let new = running().await.expect("an allocation");
    let new_name = new.metadata.name.clone().expect("a name");
    assert_eq!(new.spec.previous_allocation, name);
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    cluster.eventually("it has written", async || lines(&said(&new_name).await).len() >= 4).await;
    // Its own sum is that of the file that came, and both lives are in the list.
    let (before, after) = (lines(&first), lines(&said(&new_name).await));
    assert_eq!(after, [&before[0], &before[0], "db.g[0]", "db.g[0]"], "{before:?}");
    let events = async |alloc: &str| {
        let about = format!("--field-selector=involvedObject.name={alloc}");
        let reasons = "jsonpath={range .items[*]}{.reason}: {.message}{\"\\n\"}{end}";
        cluster.kubectl(&["get", "events", "-n", "shop", &about, "-o", reasons]).expect("events")
    };
    let come = format!("DiskMigrated: 6 files and directories of allocation {name} have come, ");
    cluster.eventually("it is told", async || events(&new_name).await.contains(&come)).await;

    // Who may not have them: the other node, the node for another allocation or for one that is over, and who is none.
    let agent = Some("gateway.drover.dev");
    let (here, there) = (
        token(cluster, "drover-agent", agent, Some(NODE)).await,
        token(cluster, "drover-agent", agent, Some("n-2")).await,
    );
    let asked = |ask: &DiskAsk| serde_json::to_vec(ask).expect("JSON");
    let refused = async |token: &str, asked: Vec<u8>| match first_answer(&stage, token, &asked).await {
        Ok(Answer::Error { code, message }) => (code, message),
        other => panic!("{other:?}"),
    };
    let (mine, its) = (asked(&ask(&new)), asked(&ask(&old)));
    assert_eq!(refused(&here, mine.clone()).await, (403, "the allocation is on another node".to_owned()));
    assert_eq!(refused(&here, its.clone()).await, (403, "the allocation has ended".to_owned()));
    assert_eq!(refused(&there, its).await.0, 403);
    let stranger = asked(&DiskAsk { uid: "another".to_owned(), ..ask(&new) });
    assert_eq!(refused(&there, stranger).await.0, 403);
    assert_eq!(refused(&there, b"{\"namespace\":1}".to_vec()).await.0, 400);
    let nobody = token(cluster, "default", agent, None).await;
    assert!(first_answer(&stage, &nobody, &mine).await.is_err_and(|line| line.contains("403")));
    // Its own node gets them as often as it asks.
    let again = first_answer(&stage, &there, &mine).await.expect("an answer");
    assert!(matches!(&again, Answer::Entry(entry) if entry.path == "alloc/data"), "{again:?}");

    // Without the node that had them nothing comes, and the allocation begins nevertheless.
    let nodes: Api<ClientNode> = Api::all(cluster.client.clone());
    let is_drained = async || nodes.get(NODE).await.expect("the node").spec.drain.is_none();
    cluster.eventually("the drain is over", is_drained).await;
    other.kill();
    let enabled = stage.command(User::Admin, &["node", "eligibility", NODE, "--enable"]).output().expect("a command");
    assert!(enabled.status.success(), "{}", String::from_utf8_lossy(&enabled.stderr));
    let is_back = async || running().await.is_some_and(|it| it.spec.node_name == NODE);
    cluster.eventually("it runs on the first node again", is_back).await;
    let last = running().await.expect("an allocation").metadata.name.expect("a name");
    cluster.eventually("it has written", async || lines(&said(&last).await).len() == 2).await;
    let empty = "DiskNotMigrated: the disk is empty: ";
    cluster.eventually("that is told", async || events(&last).await.contains(empty)).await;
}
