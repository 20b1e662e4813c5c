//! What a gateway needs of the cluster beside its roles, on our own control plane: in another cluster the chart has it.

use anyhow::{Context as _, Result};
use drover_testkit::control_plane::{ReservedPort, User};
use drover_testkit::{agent_door, manifests, workspace};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DynamicObject};
use serde_json::{Value, json};

use super::layout::Layout;
use super::settings::{self, Ports};

/// How long the agent's token holds, in seconds: nothing renews it here, and a session is seldom longer than a month.
const TOKEN_SECONDS: i64 = 30 * 24 * 3600;

/// Ports of the gateway, which stay its own as long as this lives.
#[derive(Debug)]
pub(super) struct GatewayPorts {
    users: ReservedPort,
    agents: ReservedPort,
}

impl GatewayPorts {
    /// Finds two.
    pub(super) fn find() -> Result<Self> {
        Ok(Self { users: ReservedPort::find()?, agents: ReservedPort::find()? })
    }

    /// Their numbers.
    pub(super) fn numbers(&self) -> Ports {
        Ports { users: self.users.number(), agents: self.agents.number() }
    }
}

/// Has the API server hand requests over to the gateway, and writes the agent's token.
pub(super) async fn prepare(client: &kube::Client, layout: &Layout, ports: Ports) -> Result<()> {
    let namespace = drover_api::SYSTEM_NAMESPACE;
    let node = settings::node_name(layout)?;
    let mut objects = manifests::read(&workspace::root().join("charts/drover/files/gateway/certificates.yaml"))?;
    for object in wanted(namespace, &node, ports) {
        objects.push(serde_json::from_value::<DynamicObject>(object).context("an object of the gateway")?);
    }
    for object in &objects {
        manifests::apply(client, object, namespace).await?;
    }
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let spec = json!({
        "audiences": ["gateway.drover.dev"], "expirationSeconds": TOKEN_SECONDS,
        "boundObjectRef": { "kind": "Node", "apiVersion": "v1", "name": node },
    });
    workspace::write_private(&layout.gateway_token(), &agent_door::token(&accounts, "drover-agent", &spec).await?)
}

fn wanted(namespace: &str, node: &str, ports: Ports) -> [Value; 5] {
    let user = json!([{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": User::Gateway.name() }]);
    [
        // A token names a node only where there is one. Nothing runs pods on it.
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": node }, "spec": { "unschedulable": true },
        }),
        json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": { "name": "drover-agent", "namespace": namespace },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "drover-gateway-front-proxy", "namespace": "kube-system" },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "Role",
                "name": "extension-apiserver-authentication-reader",
            },
            "subjects": user,
        }),
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": { "name": "drover-gateway", "namespace": namespace },
            "spec": { "type": "ExternalName", "externalName": "localhost" },
        }),
        json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": { "name": "v1alpha1.subresources.drover.dev" },
            "spec": {
                "group": "subresources.drover.dev", "version": "v1alpha1",
                "groupPriorityMinimum": 1000, "versionPriority": 15,
                "service": { "name": "drover-gateway", "namespace": namespace, "port": ports.users },
            },
        }),
    ]
}
