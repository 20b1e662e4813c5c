//! One object of a state: read as its kind, checked, and turned into what the scheduler knows of it.

use std::sync::Arc;

use anyhow::{bail, ensure};
use drover_api::allocation::AllocationSpec;
use drover_api::client_node::Fingerprint;
use drover_api::{API_VERSION, Allocation, CSIVolume, ClientNode, Deployment, HostVolume, Job, JobVersion};
use drover_core::definition::Definition;
use drover_core::host_volume::known::KnownVolume;
use drover_core::ids::{JobKey, Uid};
use drover_core::model::{self, Alloc, Node};
use drover_core::settings::Settings;
use drover_core::validate;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::commands::dump::CONFIG_MAP;
use crate::state::documents::Document;
use drover_store::convert;
use drover_store::planned::RecordedVersion;

/// The key of the configuration in its `ConfigMap`.
const CONFIG_KEY: &str = "config.yaml";
/// The fields of the scheduler's configuration.
const SETTINGS: [&str; 4] = ["algorithm", "preemption", "memoryOversubscription", "nodePools"];
/// Highest port.
const PORT_LIMIT: i64 = 65_535;

/// An object as the scheduler knows it.
pub(crate) enum Object {
    Node(Box<Node>),
    Alloc(Box<Alloc>),
    Job(Box<Job>, Arc<Definition>),
    Version(Box<RecordedVersion>),
    Namespace { name: String, is_going: bool },
    Deployment(Box<model::Deployment>),
    Volume(Box<CSIVolume>),
    HostVolume(Box<KnownVolume>),
    Settings(Settings),
}

impl Object {
    /// Kind and name.
    pub(crate) fn identity(&self) -> (&'static str, String) {
        match self {
            Self::Node(node) => ("ClientNode", node.name.to_string()),
            Self::Alloc(alloc) => ("Allocation", alloc.key.to_string()),
            Self::Job(job, _) => ("Job", convert::object_key(&job.metadata).to_string()),
            Self::Version(version) => ("JobVersion", format!("{}/{}", version.job.namespace, version.name)),
            Self::Namespace { name, .. } => ("Namespace", name.clone()),
            Self::Deployment(deployment) => ("Deployment", deployment.key.to_string()),
            Self::Volume(volume) => ("CSIVolume", convert::object_key(&volume.metadata).to_string()),
            Self::HostVolume(volume) => ("HostVolume", volume.key.to_string()),
            Self::Settings(_) => ("ConfigMap", CONFIG_MAP.to_owned()),
        }
    }
}

/// Reads an object of a state.
pub(crate) fn read(document: &Document<'_>, target: &JobKey) -> anyhow::Result<Object> {
    let head = document.head()?;
    let (version, kind) = (head.api_version, head.kind);
    match (&*version, &*kind) {
        (API_VERSION, "ClientNode") => node(typed(document, "ClientNode")?),
        (API_VERSION, "Allocation") => allocation(typed(document, "Allocation")?),
        (API_VERSION, "Job") => job(typed(document, "Job")?),
        (API_VERSION, "JobVersion") => job_version(typed(document, "JobVersion")?, target),
        (API_VERSION, "Deployment") => deployment(typed(document, "Deployment")?),
        (API_VERSION, "CSIVolume") => volume(typed(document, "CSIVolume")?),
        (API_VERSION, "HostVolume") => host_volume(typed(document, "HostVolume")?),
        ("v1", "Namespace") => namespace(typed(document, "Namespace")?),
        ("v1", "ConfigMap") => config(typed(document, "ConfigMap")?),
        _ => bail!(
            "kind: {kind} of {version} has no place in a state; keep ClientNode, Job, JobVersion, Allocation, Deployment, CSIVolume, HostVolume, Namespace and the ConfigMap {CONFIG_MAP}"
        ),
    }
}

/// Parts of a status that people look at and no plan does.
const SHOWN_ONLY: [&str; 4] = ["conditions", "columns", "events", "evaluations"];

/// What a state written by hand leaves out, with what stands for it. An empty uid is the present job's.
const LEFT_OUT: [(&str, &str, &str); 4] = [
    ("JobVersion", "groupNames", ""),
    ("JobVersion", "submittedAt", "1970-01-01T00:00:00Z"),
    ("JobVersion", "jobUID", ""),
    ("Allocation", "jobUID", ""),
];

/// The object as its type; when it cannot be read, what is wrong with its fields.
fn typed<T: DeserializeOwned>(document: &Document<'_>, kind: &str) -> anyhow::Result<T> {
    if let Ok(object) = document.parse() {
        return Ok(object);
    }
    let mut value = document.value()?;
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    ensure!(!name.is_empty(), "{kind}: metadata.name: is missing; name the object");
    // Another version of drover may say more there than this one knows.
    if let Some(Value::Object(status)) = value.get_mut("status") {
        status.retain(|field, _| !SHOWN_ONLY.contains(&field.as_str()));
    }
    if let Some(Value::Object(spec)) = value.get_mut("spec") {
        for (_, field, default) in LEFT_OUT.iter().filter(|(of, _, _)| *of == kind) {
            spec.entry(*field).or_insert_with(|| Value::String((*default).to_owned()));
        }
    }
    let error = match T::deserialize(&value) {
        Ok(object) => return Ok(object),
        Err(error) => error,
    };
    let mut violations = validate::shape(kind, &value);
    violations.extend(validate::status_shape(kind, &value));
    match violations.first() {
        Some(violation) => bail!("{kind} {name}: {violation}"),
        None => bail!("{kind} {name}: cannot be read: {error}; correct it"),
    }
}

/// Gives a namespaced object what one that was written by hand may leave out.
fn complete(kind: &str, meta: &mut ObjectMeta) -> anyhow::Result<()> {
    complete_name(kind, meta)?;
    meta.namespace.get_or_insert_with(|| "default".to_owned());
    Ok(())
}

fn complete_name(kind: &str, meta: &mut ObjectMeta) -> anyhow::Result<()> {
    let name = meta.name.clone().unwrap_or_default();
    ensure!(!name.is_empty(), "{kind}: metadata.name: is missing; name the object");
    if kind != "Job" {
        meta.uid.get_or_insert(name);
    }
    Ok(())
}

/// Refuses a number below zero.
fn natural(object: &str, field: &str, value: i64) -> anyhow::Result<()> {
    ensure!(value >= 0, "{object}: {field}: {value} is negative; set it to 0 or more");
    Ok(())
}

fn node(mut object: ClientNode) -> anyhow::Result<Object> {
    complete_name("ClientNode", &mut object.metadata)?;
    if let Some(print) = object.status.as_ref().and_then(|status| status.fingerprint.as_ref()) {
        check_fingerprint(&format!("ClientNode {}", object.metadata.name.as_deref().unwrap_or_default()), print)?;
    }
    Ok(Object::Node(Box::new(convert::node(&object))))
}

fn check_fingerprint(object: &str, print: &Fingerprint) -> anyhow::Result<()> {
    let (all, reserved) = (&print.resources, &print.reserved);
    for (field, value) in [
        ("resources.cpu", all.cpu),
        ("resources.memoryMB", all.memory_mb),
        ("resources.diskMB", all.disk_mb),
        ("resources.cores", all.cores),
        ("reserved.cpu", reserved.cpu),
        ("reserved.memoryMB", reserved.memory_mb),
        ("reserved.diskMB", reserved.disk_mb),
        ("maxAllocs", print.max_allocs.unwrap_or(0)),
    ] {
        natural(object, &format!("status.fingerprint.{field}"), value)?;
    }
    ensure!(
        all.cores <= 4096,
        "{object}: status.fingerprint.resources.cores: {} is above 4096, more than any machine has; lower it",
        all.cores
    );
    Ok(())
}

fn allocation(mut object: Allocation) -> anyhow::Result<Object> {
    complete("Allocation", &mut object.metadata)?;
    check_allocation(&object.metadata, &object.spec)?;
    Ok(Object::Alloc(Box::new(convert::alloc(&object))))
}

fn check_allocation(meta: &ObjectMeta, spec: &AllocationSpec) -> anyhow::Result<()> {
    let is_sound = spec.index >= 0
        && spec.job_version >= 0
        && spec.resources.disk_mb >= 0
        && spec.resources.tasks.values().all(|task| task.cpu >= 0 && task.memory_mb >= 0)
        && spec.resources.ports.iter().all(|port| (0..=PORT_LIMIT).contains(&port.value))
        && !spec.job_name.is_empty()
        && !spec.node_name.is_empty();
    if is_sound {
        return Ok(());
    }
    let object = format!("Allocation {}", convert::object_key(meta));
    natural(&object, "spec.index", spec.index)?;
    natural(&object, "spec.jobVersion", spec.job_version)?;
    natural(&object, "spec.resources.diskMB", spec.resources.disk_mb)?;
    for (name, task) in &spec.resources.tasks {
        natural(&object, &format!("spec.resources.tasks.{name}.cpu"), task.cpu)?;
        natural(&object, &format!("spec.resources.tasks.{name}.memoryMB"), task.memory_mb)?;
    }
    for (n, port) in spec.resources.ports.iter().enumerate() {
        ensure!(
            (0..=PORT_LIMIT).contains(&port.value),
            "{object}: spec.resources.ports[{n}].value: {} is no port; take 0 to {PORT_LIMIT}",
            port.value
        );
    }
    ensure!(!spec.job_name.is_empty(), "{object}: spec.jobName: is empty; name its job");
    bail!("{object}: spec.nodeName: is empty; name its node")
}

fn job(mut object: Job) -> anyhow::Result<Object> {
    complete("Job", &mut object.metadata)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    let definition = Definition::new(&object.spec, &name);
    Ok(Object::Job(Box::new(object), definition))
}

fn job_version(mut object: JobVersion, target: &JobKey) -> anyhow::Result<Object> {
    complete("JobVersion", &mut object.metadata)?;
    let meta = object.metadata;
    let (name, namespace) = (meta.name.unwrap_or_default(), meta.namespace.unwrap_or_default());
    natural(&format!("JobVersion {namespace}/{name}"), "spec.version", object.spec.version)?;
    let job = JobKey::new(namespace, object.spec.job_name.clone());
    let definition = Definition::new(&object.spec.job, &object.spec.job_name);
    Ok(Object::Version(Box::new(RecordedVersion {
        name,
        uid: Uid::from(object.spec.job_uid),
        number: object.spec.version,
        definition,
        spec: (job == *target).then_some(object.spec.job),
        job,
    })))
}

fn deployment(mut object: Deployment) -> anyhow::Result<Object> {
    complete("Deployment", &mut object.metadata)?;
    let name = format!("Deployment {}", convert::object_key(&object.metadata));
    natural(&name, "spec.jobVersion", object.spec.job_version)?;
    Ok(Object::Deployment(Box::new(convert::deployment(&object))))
}

fn volume(mut object: CSIVolume) -> anyhow::Result<Object> {
    complete("CSIVolume", &mut object.metadata)?;
    Ok(Object::Volume(Box::new(object)))
}

fn host_volume(mut object: HostVolume) -> anyhow::Result<Object> {
    complete("HostVolume", &mut object.metadata)?;
    Ok(Object::HostVolume(Box::new(convert::host_volume(&object))))
}

fn namespace(mut object: Namespace) -> anyhow::Result<Object> {
    complete_name("Namespace", &mut object.metadata)?;
    let is_going = object.metadata.deletion_timestamp.is_some();
    Ok(Object::Namespace { name: object.metadata.name.unwrap_or_default(), is_going })
}

fn config(mut object: ConfigMap) -> anyhow::Result<Object> {
    complete("ConfigMap", &mut object.metadata)?;
    let name = object.metadata.name.clone().unwrap_or_default();
    ensure!(
        name == CONFIG_MAP,
        "ConfigMap {}: metadata.name: only {CONFIG_MAP} is read from a state; remove this one",
        convert::object_key(&object.metadata)
    );
    settings(object.data.unwrap_or_default().get(CONFIG_KEY).map_or("", String::as_str)).map(Object::Settings)
}

/// The scheduler's part of the controller's configuration.
fn settings(text: &str) -> anyhow::Result<Settings> {
    let at = format!("ConfigMap {CONFIG_MAP}: data.{CONFIG_KEY}");
    let whole: Value = match text.trim() {
        "" => return Ok(Settings::default()),
        text => {
            serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{at}: is no YAML: {error}; correct it"))?
        }
    };
    let (of_scheduler, field) = if let Some(block) = whole.get("scheduler") {
        (block.clone(), "scheduler: ")
    } else {
        // The rest of the file is the controller's.
        let own = |name: &&&str| whole.get(**name).is_some();
        let fields = SETTINGS.iter().filter(own).map(|name| ((*name).to_owned(), whole[*name].clone()));
        (Value::Object(fields.collect()), "")
    };
    Settings::deserialize(of_scheduler).map_err(|error| anyhow::anyhow!("{at}: {field}{error}; correct it"))
}
