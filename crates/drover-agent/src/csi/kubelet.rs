//! Drivers that the cluster runs on this node: found by the sockets at which they register with the kubelet, asked
//! again and again how they fare.
//!
//! Input: the kubelet's folder. Output: plugins like those of tasks, with a node half alone. A driver whose
//! registration is gone is unhealthy at once and gone a while later, because it comes back where only its pod was
//! replaced. Whether a registration is taken is for the kubelet to say: it is never answered from here. Must never know
//! what the cluster uses a driver for.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use drover_api::client_node::CsiInfo;
use drover_api::csi_volume::PluginSource;
use drover_api::message;
use drover_clock::Backoff;
use drover_csi::registration::PluginInfo;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::client::{Halves, SocketPlugin};
use super::plugin::{ErrorKind, Plugin, PluginError, PluginFacts};
use super::registry::Instance;
use super::shared::Csi;
use super::tasks::info;

/// How often the folder is looked at: a list of a few names. A watch of it would have to follow folders above it that
/// come later, or are mounted over, and what matters most of a driver, whether it answers, no watch tells.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// How often a driver is asked how it fares.
const PROBE_EVERY: Duration = Duration::from_secs(30);
/// First and longest pause before a driver is asked again that did not answer.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), PROBE_EVERY);
/// How long a driver is known whose registration is gone.
const GONE_AFTER: Duration = Duration::from_mins(1);
/// Most sockets that are followed: far more than any node has drivers.
const MOST: usize = 64;
/// What a CSI driver calls itself when it registers.
const CSI: &str = "CSIPlugin";

/// Where stages and targets of drivers lie that see nothing of the node but the kubelet's folder: in a part of it that
/// is drover's, so that what the kubelet mounts for pods is never met.
pub(super) fn root(kubelet_dir: &Path) -> PathBuf {
    kubelet_dir.join("plugins/drover.dev/csi")
}

/// A driver that has registered.
#[derive(Clone, Debug)]
struct RegisteredDriver {
    name: String,
    plugin: Arc<SocketPlugin>,
    /// Its last answer.
    facts: PluginFacts,
}

/// What registers at a socket.
enum Registrant {
    Driver(RegisteredDriver),
    /// Something else, of which the kubelet knows other kinds.
    Other,
}

impl Csi {
    /// Finds drivers, and follows each, until it is dropped.
    pub(super) async fn follow_kubelet(&self, kubelet_dir: &Path) {
        let registry = kubelet_dir.join("plugins_registry");
        let mut followers = JoinSet::new();
        let mut known = BTreeSet::new();
        loop {
            for socket in sockets(&registry) {
                if known.len() < MOST && known.insert(socket.clone()) {
                    let csi = self.clone();
                    followers.spawn(async move {
                        csi.follow_registration(&socket).await;
                        socket
                    });
                }
            }
            tokio::select! {
                biased;
                Some(ended) = followers.join_next() => match ended {
                    Ok(socket) => drop(known.remove(&socket)),
                    Err(error) => tracing::error!(error = %error, "a driver of the cluster is not followed any more"),
                },
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    /// Asks the driver that registers at a socket how it fares, until the socket is gone for a while.
    async fn follow_registration(&self, socket: &Path) {
        let mut driver: Option<RegisteredDriver> = None;
        let mut n_failed: u32 = 0;
        loop {
            if !is_there(socket) {
                let error = unavailable(format!("its registration {} is gone", socket.display()));
                self.tell_of_driver(socket, driver.as_ref(), Err(&error));
                if !came_back(socket).await {
                    break;
                }
                // What registers there now may be something else.
                n_failed = n_failed.max(1);
            }
            let asked = match &driver {
                Some(known) if n_failed == 0 => Ok(Registrant::Driver(known.clone())),
                Some(_) | None => registered(socket, driver.as_ref()).await,
            };
            let answered = match asked {
                Ok(Registrant::Driver(found)) => {
                    self.forget_renamed(socket, driver.as_ref(), &found);
                    driver.insert(found).plugin.probe().await
                }
                Ok(Registrant::Other) => {
                    while_there(socket, Duration::MAX).await;
                    continue;
                }
                Err(error) => Err(error),
            };
            if let (Ok(facts), Some(driver)) = (&answered, &mut driver) {
                driver.facts = facts.clone();
            }
            self.tell_of_driver(socket, driver.as_ref(), answered.as_ref());
            n_failed = if answered.is_ok() { 0 } else { n_failed.saturating_add(1) };
            while_there(socket, pause(n_failed)).await;
        }
        if let Some(driver) = &driver {
            tracing::info!(plugin = driver.name, "a CSI driver of the cluster has gone");
            self.drop_plugin(&driver.name, &key(socket));
        }
    }

    /// A socket that now is another driver's says nothing of the one before.
    fn forget_renamed(&self, socket: &Path, before: Option<&RegisteredDriver>, now: &RegisteredDriver) {
        if let Some(before) = before.filter(|before| before.name != now.name) {
            self.drop_plugin(&before.name, &key(socket));
        }
    }

    /// Reports how a driver fares, unless its name is not known.
    fn tell_of_driver(
        &self,
        socket: &Path,
        driver: Option<&RegisteredDriver>,
        answered: Result<&PluginFacts, &PluginError>,
    ) {
        let Some(driver) = driver else {
            if let Err(error) = answered {
                tracing::debug!(socket = %socket.display(), error = %error, "it is not known what registers there");
            }
            return;
        };
        // Whether its volumes need a controller is for the cluster to say.
        let said = CsiInfo {
            source: PluginSource::Kubelet,
            requires_controller_plugin: false,
            ..info(&driver.facts, NODE_HALF, "")
        };
        let said = match answered {
            Ok(_) => said,
            Err(error) => {
                tracing::warn!(plugin = driver.name, error = %error, "a CSI driver of the cluster is not well");
                CsiInfo { healthy: false, description: message::cut(&error.reason), ..said }
            }
        };
        let plugin: Arc<dyn Plugin> = Arc::clone(&driver.plugin) as _;
        self.put_plugin(&driver.name, &key(socket), Instance { plugin, info: said, facts: driver.facts.clone() });
    }
}

/// What the agent uses of a driver: the other half is the cluster's.
const NODE_HALF: Halves = Halves { controller: false, node: true };

/// By what a driver's instance is told from others of its name; no uid of an allocation looks like it.
fn key(socket: &Path) -> String {
    socket.to_string_lossy().into_owned()
}

/// The sockets at which something may register, in the order of their names.
fn sockets(registry: &Path) -> BTreeSet<PathBuf> {
    let entries = match std::fs::read_dir(registry) {
        Ok(entries) => entries,
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::debug!(error = %error, folder = %registry.display(), "drivers of the cluster cannot be looked for");
            }
            return BTreeSet::new();
        }
    };
    let paths = entries.filter_map(Result::ok).map(|entry| entry.path());
    paths.filter(|path| path.extension().is_some_and(|ending| ending == "sock")).collect()
}

fn is_there(socket: &Path) -> bool {
    socket.symlink_metadata().is_ok()
}

/// Whether a socket that is gone comes back in time.
async fn came_back(socket: &Path) -> bool {
    let began = Instant::now();
    while began.elapsed() < GONE_AFTER {
        tokio::time::sleep(LOOK_EVERY).await;
        if is_there(socket) {
            return true;
        }
    }
    false
}

/// Waits as long as this, or until a socket is gone.
async fn while_there(socket: &Path, span: Duration) {
    let began = Instant::now();
    while is_there(socket) {
        let rest = span.saturating_sub(began.elapsed());
        if rest.is_zero() {
            return;
        }
        tokio::time::sleep(rest.min(LOOK_EVERY)).await;
    }
}

fn pause(n_failed: u32) -> Duration {
    match n_failed {
        0 => PROBE_EVERY,
        n => Backoff::new(PAUSES.0, PAUSES.1).after(n),
    }
}

/// Asks what registers at a socket. What was known of a driver stays known until it answers itself.
async fn registered(socket: &Path, known: Option<&RegisteredDriver>) -> Result<Registrant, PluginError> {
    let said = SocketPlugin::new(socket.to_owned(), Halves { controller: false, node: false }).registered().await?;
    if said.r#type != CSI {
        return Ok(Registrant::Other);
    }
    let endpoint = endpoint(socket, &said)?;
    let facts = known.filter(|known| known.name == said.name).map(|known| known.facts.clone()).unwrap_or_default();
    let plugin = Arc::new(SocketPlugin::new(endpoint, NODE_HALF));
    Ok(Registrant::Driver(RegisteredDriver { name: said.name, plugin, facts }))
}

/// Where a driver's own socket is.
fn endpoint(socket: &Path, said: &PluginInfo) -> Result<PathBuf, PluginError> {
    if said.name.is_empty() || said.name.len() > 63 {
        return Err(unavailable(format!("a driver's name has 1 to 63 characters, and {:?} has not", said.name)));
    }
    let is_ours = |version: &String| version.trim_start_matches('v').starts_with("1.");
    if !said.supported_versions.is_empty() && !said.supported_versions.iter().any(is_ours) {
        let versions = said.supported_versions.join(", ");
        return Err(unavailable(format!("driver {} speaks CSI {versions} and not 1.x", said.name)));
    }
    let endpoint = said.endpoint.strip_prefix("unix://").unwrap_or(&said.endpoint);
    match endpoint {
        "" => Ok(socket.to_owned()),
        path if Path::new(path).is_absolute() => Ok(PathBuf::from(path)),
        path => Err(unavailable(format!("driver {} names the socket {path:?}, which is no absolute path", said.name))),
    }
}

fn unavailable(reason: String) -> PluginError {
    PluginError { reason, kind: ErrorKind::Retryable }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(endpoint: &str) -> PluginInfo {
        PluginInfo {
            r#type: CSI.to_owned(),
            name: "disks.example.com".to_owned(),
            endpoint: endpoint.to_owned(),
            supported_versions: vec!["1.0.0".to_owned()],
        }
    }

    #[test]
    fn a_driver_says_where_it_is_or_is_where_it_registers() {
        let at = |said: &PluginInfo| endpoint(Path::new("/reg.sock"), said).map_err(|error| error.reason);
        assert_eq!(at(&said("/plugins/csi.sock")), Ok(PathBuf::from("/plugins/csi.sock")));
        assert_eq!(at(&said("unix:///plugins/csi.sock")), Ok(PathBuf::from("/plugins/csi.sock")));
        assert_eq!(at(&said("")), Ok(PathBuf::from("/reg.sock")));
        let refused = |said: PluginInfo| at(&said).expect_err("refused");
        assert!(refused(said("csi.sock")).contains("no absolute path"));
        assert!(refused(PluginInfo { supported_versions: vec!["0.3.0".to_owned()], ..said("") }).contains("0.3.0"));
        assert!(refused(PluginInfo { name: String::new(), ..said("") }).contains("1 to 63"));
        assert!(at(&PluginInfo { supported_versions: Vec::new(), ..said("") }).is_ok());
    }

    #[test]
    fn only_sockets_are_looked_at_and_a_folder_that_is_not_there_has_none() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(sockets(&dir.path().join("plugins_registry")), BTreeSet::new());
        for name in ["b-reg.sock", "a-reg.sock", "kubernetes.io", ".lock"] {
            std::fs::write(dir.path().join(name), "").expect("a file");
        }
        let found: Vec<PathBuf> = sockets(dir.path()).into_iter().collect();
        assert_eq!(found, ["a-reg.sock", "b-reg.sock"].map(|name| dir.path().join(name)));
    }

    #[test]
    fn pauses_grow_up_to_that_between_probes() {
        let pauses = [0, 1, 2, 3, 40].map(pause);
        let milliseconds = [30_000, 250, 500, 1000, 30_000].map(Duration::from_millis);
        assert_eq!(pauses, milliseconds);
    }

    #[tokio::test(start_paused = true)]
    async fn a_socket_that_comes_back_in_time_is_the_same_driver_and_another_one_is_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("a-reg.sock");
        assert!(!came_back(&socket).await);
        std::fs::write(&socket, "").expect("a file");
        assert!(came_back(&socket).await);
        let began = Instant::now();
        while_there(&socket, PROBE_EVERY).await;
        assert_eq!(began.elapsed(), PROBE_EVERY);
        std::fs::remove_file(&socket).expect("removed");
        while_there(&socket, PROBE_EVERY).await;
        assert_eq!(began.elapsed(), PROBE_EVERY);
    }
}
