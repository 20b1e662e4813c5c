//! Which controllers there are, and which of them decides: the endpoints of their Service, and the holder of the Lease.

use std::sync::Arc;
use std::time::Duration;

use drover_api::LEADER_LEASE;
use drover_nomad::ServerFacts;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::answers::Refusal;

/// How long an answer is kept: callers that ask all the time ask the API server no more often.
const KEPT: Duration = Duration::from_secs(5);
/// How long the API server may take.
const LONGEST: Duration = Duration::from_secs(5);

/// The controllers; clones are the same.
#[derive(Clone)]
pub(crate) struct Controllers {
    client: Client,
    namespace: String,
    kept: Arc<Mutex<Option<KeptControllers>>>,
}

/// An answer, and when it came.
type KeptControllers = (Instant, Vec<ServerFacts>);

impl Controllers {
    /// Those of drover's own namespace.
    pub(crate) fn new(client: Client, namespace: String) -> Self {
        Self { client, namespace, kept: Arc::default() }
    }

    /// Who they are, in the order of their names.
    ///
    /// # Errors
    /// 503 when the API server does not say.
    pub(super) async fn now(&self) -> Result<Vec<ServerFacts>, Refusal> {
        // Those who ask meanwhile wait for the same answer.
        let mut kept = self.kept.lock().await;
        if let Some((_, known)) = kept.as_ref().filter(|(since, _)| since.elapsed() < KEPT) {
            return Ok(known.clone());
        }
        let silent = |why: String| Refusal::new(503, format!("the API server does not say who leads: {why}"));
        let asked =
            tokio::time::timeout(LONGEST, self.ask()).await.map_err(|_| silent("it does not answer".to_owned()))?;
        let found = asked.map_err(|error| silent(error.to_string()))?;
        *kept = Some((Instant::now(), found.clone()));
        Ok(found)
    }

    async fn ask(&self) -> kube::Result<Vec<ServerFacts>> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), &self.namespace);
        let slices: Api<EndpointSlice> = Api::namespaced(self.client.clone(), &self.namespace);
        let of_service = format!("kubernetes.io/service-name={LEADER_LEASE}-metrics");
        let selected = ListParams::default().labels(&of_service);
        let (lease, slices) = tokio::try_join!(leases.get_opt(LEADER_LEASE), slices.list(&selected))?;
        let holder = lease.and_then(|lease| lease.spec?.holder_identity).filter(|holder| !holder.is_empty());
        Ok(servers(holder.as_deref(), &slices.items))
    }
}

/// The endpoints, and the holder also where it is none of them.
fn servers(holder: Option<&str>, slices: &[EndpointSlice]) -> Vec<ServerFacts> {
    let mut found = Vec::new();
    for slice in slices {
        let port = slice.ports.iter().flatten().find_map(|port| u16::try_from(port.port?).ok()).unwrap_or(0);
        for endpoint in slice.endpoints.iter().flatten() {
            let name = endpoint.target_ref.as_ref().and_then(|target| target.name.clone()).unwrap_or_default();
            let is_ready = endpoint.conditions.as_ref().and_then(|conditions| conditions.ready) != Some(false);
            let addr = endpoint.addresses.first().cloned().unwrap_or_default();
            found.push(ServerFacts { leads: holder == Some(name.as_str()), name, addr, port, is_ready });
        }
    }
    if let Some(holder) = holder.filter(|holder| !found.iter().any(|server| server.name == *holder)) {
        found.push(ServerFacts { name: holder.to_owned(), is_ready: true, leads: true, ..ServerFacts::default() });
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_holder_of_the_lease_leads_the_endpoints_and_is_there_without_one() {
        let endpoint = |name: &str, ready: bool| {
            json!({ "addresses": [format!("10.0.0.{}", name.len())], "conditions": { "ready": ready },
                    "targetRef": { "kind": "Pod", "name": name } })
        };
        let slice = json!({ "addressType": "IPv4", "ports": [{ "name": "metrics", "port": 8080 }],
                            "endpoints": [endpoint("bb", true), endpoint("a", false)] });
        let slices = [serde_json::from_value(slice).expect("a slice")];
        let of = |holder: Option<&str>| -> Vec<(String, String, u16, bool, bool)> {
            let all = servers(holder, &slices);
            all.into_iter().map(|it| (it.name, it.addr, it.port, it.is_ready, it.leads)).collect()
        };
        let a = ("a".to_owned(), "10.0.0.1".to_owned(), 8080, false, false);
        let bb = |leads: bool| ("bb".to_owned(), "10.0.0.2".to_owned(), 8080, true, leads);
        assert_eq!(of(Some("bb")), [a.clone(), bb(true)]);
        assert_eq!(of(None), [a.clone(), bb(false)]);
        assert_eq!(of(Some("c")), [a, bb(false), ("c".to_owned(), String::new(), 0, true, true)]);
    }
}
