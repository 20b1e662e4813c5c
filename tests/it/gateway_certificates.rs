//! Certificates of the gateway that are renewed many times over while it serves.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use drover_testkit::control_plane::User;

use crate::gateway::{Finds, Ran, Stage, aggregate, gateway};

/// What the gateway's Secret holds under a key.
fn secret(stage: &Stage, key: &str) -> String {
    let path = format!("jsonpath={{.data.{}}}", key.replace('.', "\\."));
    stage.cluster.kubectl(&["get", "secret/drover-gateway-tls", "-n", "drover-system", "-o", &path]).expect("a Secret")
}

/// Whether a replica shows a certificate that those believe who have read the published authorities.
fn is_believed(stage: &Stage, users: SocketAddr) -> Result<(), String> {
    let file = stage.cluster.path("published");
    std::fs::write(&file, stage.authority()).expect("a file");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-o", "/dev/null", "--max-time", "60", "--cacert"]).arg(file);
    let ran = Ran::of(curl.arg(format!("https://localhost:{}/apis", users.port())).output().expect("curl"));
    if ran.code == 0 { Ok(()) } else { Err(ran.err) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn g_022_no_call_fails_while_certificates_and_authorities_are_renewed_again_and_again() {
    // The table's minute, five minutes and twenty minutes; CI does a quarter of it, twice as fast.
    let asked = std::env::var("DROVER_CERTIFICATES").unwrap_or_else(|_| "30x5".to_owned());
    let (seconds, lives) = asked.split_once('x').expect("SECONDSxLIVES");
    let leaf = Duration::from_secs(seconds.parse().expect("seconds"));
    let lives: u32 = lives.parse().expect("a number");
    let (authority, lasts) = (leaf * 5, leaf * lives);
    let config = format!("certificates: {{leaf: {}s, authority: {}s}}\n", leaf.as_secs(), authority.as_secs());
    let mut stage = Stage::start_with("gateway-renewed", &config, Finds::ByName).await;
    // The API server knows the second one, the agent the first: what is between the two is believed anew each time.
    let peers = format!("{config}peers: [\"{}\"]\n", stage.agents);
    let (mut second, users, _) = gateway(&stage.cluster, "gateway-r", &peers).await;
    aggregate(&stage.cluster, users);
    let name = stage.run("web", "exec sleep 10000").await.metadata.name.expect("a name");
    let exec = || stage.exec(User::Admin, &name, &["/bin/echo", "done"], b"");
    stage.cluster.eventually("calls are carried", async || exec().code == 0).await;

    let (begun, mut n_calls) = (Instant::now(), 0);
    let (mut leaves, mut authorities) = (BTreeSet::new(), BTreeSet::new());
    let mut turns = tokio::time::interval(Duration::from_millis(500));
    while begun.elapsed() < lasts {
        turns.tick().await;
        let ran = exec();
        let at = begun.elapsed();
        assert!(ran.code == 0 && ran.out == b"done\n", "call {n_calls}, after {at:?}: {ran:?}");
        for users in [stage.users, users] {
            is_believed(&stage, users).unwrap_or_else(|why| unreachable!("call {n_calls}, after {at:?}: {why}"));
        }
        n_calls += 1;
        leaves.insert(secret(&stage, "tls.crt"));
        authorities.insert(secret(&stage, "ca.crt"));
    }
    let (n_leaves, n_authorities, lives) = (leaves.len(), authorities.len(), usize::try_from(lives).expect("few"));
    assert!(n_leaves >= lives && n_authorities > lives / 5, "{n_leaves} leaves, {n_authorities} authorities");
    for process in [stage.gateway.as_mut().expect("a gateway"), &mut second] {
        assert!(process.is_running(), "a replica has ended");
    }
}
