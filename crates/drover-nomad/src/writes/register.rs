//! Jobs as clients submit them: registered, checked, or read from a job file.

use std::sync::Arc;

use drover_api::{Job, JobSpec, annotation};
use drover_core::definition::Definition;
use drover_core::validate;
use drover_jobspec::Inputs;
use serde::Deserialize;
use serde_json::{Value, json};

use super::authors;
use super::body;
use super::following::{ask_again, check_priority, registered};
use super::order::{Change, Demand, WriteOrder, WriteView};
use crate::fault::Fault;
use crate::wire::submission;
use crate::world::job_id;

/// What programs that keep manifests in step with a store put on what they apply: a label or an annotation that begins
/// so, and what they are called.
const KEEPERS: &[(&str, &str)] = &[
    ("meta.helm.sh/", "Helm"),
    ("helm.toolkit.fluxcd.io/", "Flux"),
    ("kustomize.toolkit.fluxcd.io/", "Flux"),
    ("argocd.argoproj.io/", "Argo CD"),
];

/// What stands around a job.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RegisterBody {
    enforce_index: bool,
    job_modify_index: i64,
    preserve_counts: bool,
    eval_priority: i64,
    submission: Option<SubmissionBody>,
}

/// The text that a job was made from.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct SubmissionBody {
    source: String,
    format: String,
}

/// A job that is to stand in the place of the one with its id, or to be made.
pub(super) struct WantedJob<'a> {
    /// The job, in its namespace.
    pub(super) job: Job,
    /// The one that is there.
    pub(super) before: Option<&'a Arc<Job>>,
}

impl<'a> WantedJob<'a> {
    /// The job of a request, whose path may name its id.
    ///
    /// # Errors
    /// 400 where it is none, has another id, or its object's name is another job's.
    pub(super) fn read(id: Option<&str>, view: WriteView<'a>) -> Result<Self, Fault> {
        let job = submitted(view)?;
        if let Some(id) = id.filter(|id| *id != job_id(&job)) {
            return Err(Fault::bad(format!("Job.ID is {:?}, and the path names {id:?}: give that one", job_id(&job))));
        }
        let (namespace, name) = names_of(&job);
        let before = view.world.jobs.named(namespace, name);
        if let Some(other) = before.filter(|before| job_id(before) != job_id(&job)) {
            return Err(Fault::bad(format!(
                "Job.ID: {:?} and {:?}, which is there, would be one object, djob/{name}: take another id",
                job_id(&job),
                job_id(other)
            )));
        }
        Ok(Self { job, before })
    }

    /// What its author should know.
    ///
    /// # Errors
    /// 400 with why it is not taken.
    pub(super) fn check(&self) -> Result<Vec<String>, Fault> {
        let (_, name) = names_of(&self.job);
        check(name, self.before.map(|before| &before.spec), &self.job.spec)
    }

    /// What its author must be allowed to do.
    pub(super) fn demands(&self) -> Vec<Demand> {
        let (namespace, name) = names_of(&self.job);
        authors::of_job(namespace, name, self.before.map(|before| &before.spec), &self.job.spec)
    }
}

/// Puts a job in the place of the one with its id, or makes it.
pub(super) fn register(id: Option<&str>, view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    let request: RegisterBody = body::read(view.body)?;
    check_priority(request.eval_priority)?;
    let mut wanted = WantedJob::read(id, view)?;
    enforce(&request, wanted.before.map(AsRef::as_ref))?;
    if let Some(before) = wanted.before {
        keep(&request, &before.spec, &mut wanted.job.spec);
    }
    let (mut warnings, demands) = (wanted.check()?, wanted.demands());
    let WantedJob { mut job, before } = wanted;
    let (source, too_long) = source(&request, &job);
    warnings.extend(too_long);
    let is_template = job.spec.periodic.is_some() || job.spec.parameterized.is_some();
    let Some(before) = before else {
        job.metadata.annotations.get_or_insert_default().extend(source);
        let answer = registered(view.now, is_template, warnings);
        return Ok(WriteOrder::new(demands, vec![Change::Create(job.into())], answer));
    };
    let warnings = [warnings, kept_in_step(before)].concat();
    let answer = registered(view.now, is_template, warnings);
    // What both mean is compared: a default that one of them writes out makes no new version.
    let change = if as_read(before, &before.spec) == as_read(before, &job.spec) {
        ask_again(before)
    } else {
        let mut changed = Job { spec: job.spec, ..Job::clone(before) };
        let annotations = changed.metadata.annotations.get_or_insert_default();
        annotations.remove(annotation::SUBMISSION);
        annotations.extend(source);
        Change::Replace(changed.into())
    };
    Ok(WriteOrder::new(demands, vec![change], answer))
}

/// Whether a job would be taken in the place of the one that is there, of which its caller must be allowed to know.
pub(super) fn validate(view: WriteView<'_>, hearing: Option<Demand>) -> WriteOrder {
    let found = submitted(view).and_then(|job| {
        let (namespace, name) = names_of(&job);
        let before = view.world.jobs.named(namespace, name);
        check(name, before.map(|before| &before.spec), &job.spec)
    });
    let (errors, warnings) = match found {
        Ok(warnings) => (Vec::new(), warnings),
        Err(fault) => (fault.message.lines().map(str::to_owned).collect(), Vec::new()),
    };
    let answer = json!({
        "DriverConfigValidated": true,
        "ValidationErrors": errors,
        "Error": errors.join("\n"),
        "Warnings": warnings.join("\n"),
    });
    WriteOrder::nothing(hearing.into_iter().collect(), answer)
}

/// Reads a job file; functions that read files are refused.
pub(super) fn parse(view: WriteView<'_>) -> Result<WriteOrder, Fault> {
    #[derive(Debug, Default, Deserialize)]
    #[serde(rename_all = "PascalCase", default)]
    struct Body {
        #[serde(rename = "JobHCL")]
        job_hcl: String,
        variables: String,
    }
    let Body { job_hcl, variables } = body::read(view.body)?;
    if job_hcl.trim().is_empty() {
        return Err(Fault::bad("JobHCL is empty: give the text of a job file"));
    }
    let files = if variables.is_empty() { Vec::new() } else { vec![("Variables".to_owned(), variables)] };
    let inputs = Inputs { files, ..Inputs::default() };
    let manifests = drover_jobspec::manifests("JobHCL", &job_hcl, &inputs).map_err(|faults| Fault::all(&faults))?;
    let [manifest] = manifests.as_slice() else {
        return Err(Fault::bad("JobHCL holds no job: give the text of a file with one block `job`"));
    };
    let job: Job = of_manifest(manifest.clone())?;
    Ok(WriteOrder::nothing(Vec::new(), drover_jobspec::wire_job(&job)))
}

/// The job of a request, in its namespace.
fn submitted(view: WriteView<'_>) -> Result<Job, Fault> {
    let text = std::str::from_utf8(view.body).map_err(|_| Fault::bad("the body is no text: encode it as UTF-8"))?;
    let has_job = serde_json::from_str::<Value>(text).is_ok_and(|body| body["Job"].is_object());
    if !has_job {
        return Err(Fault::bad("Job is missing: give the job that is meant"));
    }
    let manifest = drover_jobspec::wire_manifest("request", text).map_err(|faults| Fault::all(&faults))?;
    let mut job = of_manifest(manifest)?;
    // The job's own word counts, as it does for Nomad's servers.
    let namespace = job.metadata.namespace.take().filter(|namespace| !namespace.is_empty());
    job.metadata.namespace = Some(namespace.unwrap_or_else(|| view.query.namespace()));
    Ok(job)
}

fn of_manifest(manifest: Value) -> Result<Job, Fault> {
    let violations = validate::shape("Job", &manifest);
    if !violations.is_empty() {
        return Err(Fault::all(&violations));
    }
    serde_json::from_value(manifest).map_err(|error| Fault::bad(format!("the job cannot be read: {error}")))
}

/// The namespace and the name of a job's object.
fn names_of(job: &Job) -> (&str, &str) {
    (job.metadata.namespace.as_deref().unwrap_or_default(), job.metadata.name.as_deref().unwrap_or_default())
}

/// Clients of Nomad recognise the text by its beginning.
fn enforce(request: &RegisterBody, before: Option<&Job>) -> Result<(), Fault> {
    if !request.enforce_index {
        return Ok(());
    }
    let (wanted, found) = (request.job_modify_index, before.and_then(|before| before.metadata.generation));
    let why = match found {
        Some(found) if wanted == 0 => format!("the job is there, with index {found}"),
        Some(found) if found != wanted => format!("the job has index {found}"),
        None if wanted != 0 => "there is no such job".to_owned(),
        Some(_) | None => return Ok(()),
    };
    Err(Fault::bad(format!("Enforcing job modify index {wanted}: {why}; plan the change and register it again")))
}

/// The annotation with the text that the job was made from; else why there is none.
fn source(request: &RegisterBody, job: &Job) -> (Option<(String, String)>, Option<String>) {
    let Some(SubmissionBody { source, format }) = request.submission.as_ref().filter(|it| !it.source.is_empty()) else {
        return (None, None);
    };
    if source.len() > submission::MOST_BYTES {
        let why = format!("the job's source has more than {} bytes and is not kept", submission::MOST_BYTES);
        return (None, Some(why));
    }
    (Some((annotation::SUBMISSION.to_owned(), submission::annotation(job, format, source))), None)
}

/// What of the job that is there stays.
fn keep(request: &RegisterBody, before: &JobSpec, after: &mut JobSpec) {
    if !request.preserve_counts {
        return;
    }
    after.scale.clone_from(&before.scale);
    for group in &mut after.groups {
        if let Some(known) = before.group(&group.name) {
            group.count = known.count;
        }
    }
}

/// What of a job its author should know, or why it is not taken.
fn check(name: &str, before: Option<&JobSpec>, spec: &JobSpec) -> Result<Vec<String>, Fault> {
    let definition = Definition::new(spec, name);
    let violations = [validate::violations(&definition), validate::changes(before, spec)].concat();
    if violations.is_empty() {
        return Ok(validate::warnings(&definition).iter().map(ToString::to_string).collect());
    }
    Err(Fault::all(&violations))
}

/// A spec as clients read it, whatever it writes out of what is usual.
fn as_read(job: &Job, spec: &JobSpec) -> Value {
    drover_jobspec::wire_job(&Job { spec: spec.clone(), status: None, metadata: job.metadata.clone() })
}

/// That a program will undo the change.
pub(super) fn kept_in_step(job: &Job) -> Vec<String> {
    let (labels, annotations) = (job.metadata.labels.iter().flatten(), job.metadata.annotations.iter().flatten());
    let mut keys = labels.chain(annotations).map(|(key, _)| key);
    let keeper = keys.find_map(|key| KEEPERS.iter().find(|(begin, _)| key.starts_with(begin)));
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let text = |(_, keeper): &(&str, &str)| {
        format!("{keeper} keeps djob/{name}: change it there too, or the next sync undoes this")
    };
    keeper.map(text).into_iter().collect()
}
