//! A client that sends any bytes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use drover_api::{Allocation, AllocationSpec};
use drover_clock::SystemClock;
use drover_store::Key;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{Caller, Server};
use crate::allocations::directory::{Directory, Listed};
use crate::node::alloc_dir::AllocDir;
use crate::node::facts::MetaHandle;
use crate::node::host_volumes::{VolumeFolders, Volumes};
use crate::reporting::reports::Reports;
use crate::state::MemoryState;

/// The allocation.
const UID: &str = "0a1b2c3d";
/// Answers after which the client has seen enough: statistics never end.
const MOST_READ: usize = 256 * 1024;

/// Serves a client of the node's and one of a gateway, on a node with one allocation, whose runner has gone, with files
/// and folders in it.
pub(crate) fn fuzz(data: &[u8]) {
    let user = Caller::Gateway { namespace: "shop".to_owned(), uid: UID.to_owned() };
    for caller in [Caller::Node, Caller::GatewayOfNode, user] {
        serve(caller, data);
    }
}

fn serve(caller: Caller, data: &[u8]) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().expect("a runtime");
    runtime.block_on(async {
        let (node, _folder) = server();
        let (mut client, served) = UnixStream::pair().expect("a pair of sockets");
        let (from, to) = served.into_split();
        let client = async {
            client.write_all(data).await.ok()?;
            client.shutdown().await.ok()?;
            let (mut n, mut buffer) = (0, vec![0; 4096]);
            while n < MOST_READ {
                match client.read(&mut buffer).await.ok()? {
                    0 => break,
                    read => n += read,
                }
            }
            Some(n)
        };
        tokio::select! {
            () = node.converse(caller, Box::new(from), Box::new(to)) => {}
            () = async { client.await; tokio::time::sleep(Duration::from_secs(30)).await; } => {}
        }
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
}

fn server() -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = AllocDir::new(&folder.path().join("allocs"), UID);
    std::fs::create_dir_all(dir.root().join("alloc/logs")).expect("a folder");
    for (name, text) in [("alloc/logs/web.stdout.0", "one\n"), ("alloc/logs/web.stdout.1", "two\n")] {
        std::fs::write(dir.root().join(name), text).expect("a file");
    }
    std::os::unix::fs::symlink("/etc", dir.root().join("alloc/out")).expect("a link");
    let (commands, _gone) = mpsc::channel(1);
    let key = Key { namespace: Some("shop".to_owned()), name: "web-g-0".to_owned() };
    let directory = Directory::default();
    directory.enter(UID, Listed { key, commands, dir, tasks: vec!["web".to_owned()] });
    let reports = Reports::default();
    reports.observe(UID, Arc::new(Allocation::new("web-g-0", AllocationSpec::default())));
    let (state, (facts, _unread)) = (MemoryState::default().store(), mpsc::channel(64));
    let fixed = BTreeMap::from([("rack".to_owned(), "r1".to_owned())]);
    let server = Server {
        news: None,
        directory,
        reports,
        clock: Arc::new(SystemClock),
        meta: MetaHandle::new(fixed, BTreeMap::new(), state.clone(), facts.clone()),
        volumes: Volumes::new(
            VolumeFolders { made: folder.path().join("volumes"), ..VolumeFolders::default() },
            state,
            facts,
        ),
        alloc_dir: folder.path().to_owned(),
        stop: CancellationToken::new(),
    };
    (server, folder)
}
