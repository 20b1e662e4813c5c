//! `drover dump`: what a plan needs to know of a cluster, one JSON object per line. No Secret is ever read, and fields
//! that may hold credentials are left out.

use anyhow::{Context, bail};
use drover_api::{Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion, SYSTEM_NAMESPACE};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::{Client, Resource};
use serde_json::{Value, json};

use crate::cluster::api_errors::{About, explain};
use crate::cluster::connect::{ConnectArgs, block_on};
use crate::ui::stdio::{answer, complain};

/// The `ConfigMap` with the scheduler's configuration.
pub(crate) const CONFIG_MAP: &str = "drover-config";
/// Objects of one answer of the API server.
const PAGE: u32 = 500;
/// Fields that may hold credentials, wherever they stand.
const CONFIDENTIAL: [&str; 4] = ["mountFlags", "publishContext", "csiAnswers", "payload"];

/// What to write.
#[derive(Debug, clap::Args)]
pub(crate) struct DumpArgs {
    /// Objects of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    all_namespaces: bool,
    /// drover's own namespace, which holds the `ConfigMap` drover-config.
    #[arg(long, default_value = SYSTEM_NAMESPACE)]
    pub(crate) system_namespace: String,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Which namespaces' objects.
#[derive(Clone, Debug)]
pub(crate) enum Scope {
    All,
    One(String),
}

/// Writes the state to standard output.
pub(crate) fn run(args: &DumpArgs) -> anyhow::Result<u8> {
    block_on(async {
        let connection = args.connect.connect().await?;
        let scope = if args.all_namespaces { Scope::All } else { Scope::One(connection.namespace) };
        let reader = Reader { client: connection.client, scope };
        reader.read_all(&args.system_namespace, |lines| answer(&lines)).await
    })?;
    Ok(0)
}

/// Reads objects of every kind.
pub(crate) struct Reader {
    pub(crate) client: Client,
    pub(crate) scope: Scope,
}

impl Reader {
    /// Hands over the lines, page by page.
    pub(crate) async fn read_all(
        &self,
        system_namespace: &str,
        mut take: impl FnMut(Vec<u8>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.namespaces(&mut take).await?;
        self.config(system_namespace, &mut take).await?;
        self.kind::<ClientNode>(None, &mut take).await?;
        let namespace = match &self.scope {
            Scope::All => None,
            Scope::One(namespace) => Some(namespace.as_str()),
        };
        self.kind::<Job>(namespace, &mut take).await?;
        self.kind::<JobVersion>(namespace, &mut take).await?;
        self.kind::<Deployment>(namespace, &mut take).await?;
        self.kind::<CSIVolume>(namespace, &mut take).await?;
        self.kind::<HostVolume>(namespace, &mut take).await?;
        self.kind::<Allocation>(namespace, &mut take).await
    }

    async fn namespaces(&self, take: &mut impl FnMut(Vec<u8>) -> anyhow::Result<()>) -> anyhow::Result<()> {
        let Scope::One(name) = &self.scope else { return self.kind::<Namespace>(None, take).await };
        let resource = ApiResource::erase::<Namespace>(&());
        let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        match api.get(name).await {
            Ok(namespace) => take(line(namespace, &resource)?),
            // Few people may read namespaces; without it the namespace counts as there to stay.
            Err(kube::Error::Api(status)) if status.code == 403 => {
                complain(&format!("warning: namespace {name} is left out: {}", status.message));
                Ok(())
            }
            Err(error) => Err(explain::<Namespace>(About { verb: "read", namespace: None, name }, error)),
        }
    }

    async fn config(
        &self,
        system_namespace: &str,
        take: &mut impl FnMut(Vec<u8>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let resource = ApiResource::erase::<ConfigMap>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), system_namespace, &resource);
        match api.get_opt(CONFIG_MAP).await {
            Ok(None) => Ok(()),
            Ok(Some(config)) => take(line(config, &resource)?),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                complain(&format!("warning: the scheduler's configuration is left out: {}", status.message));
                Ok(())
            }
            Err(error) => {
                let about = About { verb: "read", namespace: Some(system_namespace), name: CONFIG_MAP };
                Err(explain::<ConfigMap>(about, error))
            }
        }
    }

    async fn kind<K>(
        &self,
        namespace: Option<&str>,
        take: &mut impl FnMut(Vec<u8>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()>,
    {
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match api.list(&params).await {
                Ok(page) => page,
                Err(kube::Error::Api(status)) if status.code == 410 => {
                    bail!("listing {}: the list took longer than the API server keeps it; try again", resource.plural)
                }
                Err(error) => return Err(explain::<K>(About { verb: "list", namespace, name: "" }, error)),
            };
            let mut lines = Vec::new();
            for object in page.items {
                lines.extend(line(object, &resource)?);
            }
            take(lines)?;
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                None => return Ok(()),
                Some(token) => params = params.continue_token(&token),
            }
        }
    }
}

/// An object as one line, without what no plan needs and what may be confidential.
fn line(mut object: DynamicObject, resource: &ApiResource) -> anyhow::Result<Vec<u8>> {
    object.metadata.managed_fields = None;
    // It repeats the whole object, with what is left out below.
    if let Some(annotations) = &mut object.metadata.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    let mut whole = json!({ "apiVersion": resource.api_version, "kind": resource.kind, "metadata": object.metadata });
    if let (Value::Object(whole), Value::Object(rest)) = (&mut whole, object.data) {
        whole.extend(rest.into_iter().map(|(name, mut value)| {
            remove_confidential(&mut value);
            (name, value)
        }));
    }
    let mut line = serde_json::to_vec(&whole).context("writing an object as JSON")?;
    line.push(b'\n');
    Ok(line)
}

fn remove_confidential(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !CONFIDENTIAL.contains(&name.as_str()) || is_rule(value));
            fields.values_mut().for_each(remove_confidential);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_confidential),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `payload` is also the rule of a parameterized job that says whether a dispatch brings one.
fn is_rule(value: &Value) -> bool {
    matches!(value.as_str(), Some("optional" | "required" | "forbidden"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_holds_no_confidential_field_and_no_bookkeeping() {
        let object: DynamicObject = serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "Job",
            "metadata": {
                "name": "j", "managedFields": [{ "manager": "canary-string" }],
                "annotations": { "kubectl.kubernetes.io/last-applied-configuration": "canary-string", "a": "b" }
            },
            "spec": {
                "dispatch": { "parent": "p", "payload": "canary-string" },
                "parameterized": { "payload": "required" },
                "groups": [{ "volumes": [{ "mountOptions": { "fsType": "cifs", "mountFlags": ["password=canary-string"] } }] }]
            },
            "status": { "claims": [{ "publishContext": { "token": "canary-string" } }] }
        }))
        .unwrap();
        let text = String::from_utf8(line(object, &ApiResource::erase::<Job>(&())).unwrap()).unwrap();
        assert!(!text.contains("canary-string"), "{text}");
        assert!(
            text.contains(r#""payload":"required""#)
                && text.contains(r#""fsType":"cifs""#)
                && text.contains(r#""a":"b""#)
        );
        assert!(
            text.starts_with(r#"{"apiVersion":"drover.dev/v1alpha1","kind":"Job","metadata":{"#)
                && text.ends_with("}\n")
        );
    }
}
