//! `drover job validate`: all that is wrong with job manifests, and what is probably not meant.

use std::path::PathBuf;

use anyhow::Context;
use drover_api::Job;
use drover_core::definition::Definition;
use drover_core::validate::{self, Violation};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::state::documents::{self, Document};
use crate::state::job_files::{self, VariableArgs};
use crate::ui::output::{self, ReportOutput};
use crate::ui::stdio::complain;

/// Which manifests.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files with Jobs in YAML or JSON, job files in HCL (`*.hcl`, `*.nomad`), or jobs in the JSON of `nomad job
    /// inspect`; `-` is standard input.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    #[command(flatten)]
    variables: VariableArgs,
    /// How the result is printed.
    #[arg(short, long, value_enum, default_value_t)]
    output: ReportOutput,
}

/// Checks every Job of every file; 1 when something is wrong with one.
pub(crate) fn run(args: &Args) -> anyhow::Result<u8> {
    let mut verdicts = Vec::new();
    for path in &args.files {
        let source = path.display().to_string();
        let bytes = job_files::read(path, &args.variables)?;
        let found = documents::read(&bytes).with_context(|| source.clone())?;
        for document in found.iter().filter(|document| is_of_ours(document)) {
            let verdict = judge(document.value().with_context(|| source.clone())?);
            verdict.tell(&source);
            verdicts.push(Judged { file: source.clone(), verdict });
        }
    }
    let (jobs, broken) = (verdicts.len(), verdicts.iter().filter(|it| !it.verdict.violations.is_empty()).count());
    anyhow::ensure!(jobs > 0, "no Job (drover.dev/v1alpha1) in the files; give a manifest with one");
    if broken > 0 {
        complain(&format!("{broken} of {jobs} jobs are invalid"));
    }
    let summary = || match (broken, jobs) {
        (0, 1) => "1 job is valid\n".to_owned(),
        (0, _) => format!("{jobs} jobs are valid\n"),
        _ => String::new(),
    };
    output::report(&json!({ "jobs": verdicts }), args.output, summary)?;
    Ok(u8::from(broken > 0))
}

/// A job of a file, and what was found about it.
#[derive(Serialize)]
struct Judged {
    file: String,
    #[serde(flatten)]
    verdict: Verdict,
}

/// A manifest file may hold other objects beside the jobs: those are the API server's to judge.
fn is_of_ours(document: &Document<'_>) -> bool {
    document.head().is_ok_and(|head| head.kind == "Job" && !head.api_version.starts_with("batch/"))
        || document.head().is_err()
}

/// What was found about one job.
#[derive(Serialize)]
struct Verdict {
    name: String,
    violations: Vec<Violation>,
    warnings: Vec<Violation>,
}

impl Verdict {
    fn tell(&self, source: &str) {
        for violation in &self.violations {
            complain(&format!("{source}: djob/{}: {violation}", self.name));
        }
        for warning in &self.warnings {
            complain(&format!("{source}: djob/{}: warning: {warning}", self.name));
        }
    }
}

/// All that is wrong with a job's manifest.
pub(crate) fn violations(manifest: &Value) -> Vec<Violation> {
    judge(manifest.clone()).violations
}

fn judge(value: Value) -> Verdict {
    let name = value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let mut violations = head_violations(&value, &name);
    let mut warnings = Vec::new();
    let of_shape = validate::shape("Job", &value);
    match readable(value, &of_shape) {
        Ok(job) => {
            let definition = Definition::new(&job.spec, &name);
            violations.extend(validate::violations(&definition));
            violations.extend(validate::changes(None, &job.spec));
            warnings = validate::warnings(&definition);
        }
        Err(error) if of_shape.is_empty() => {
            let message = format!("cannot be read: {error}; correct it");
            violations.push(Violation { code: "Unreadable", field: "job".to_owned(), message });
        }
        // What stands in the way is named among the violations of the shape.
        Err(_) => {}
    }
    let is_new = |violation: &Violation| violations.iter().all(|known| known.field != violation.field);
    let of_shape: Vec<Violation> = of_shape.into_iter().filter(is_new).collect();
    violations.extend(of_shape);
    Verdict { name: if name.is_empty() { "(no name)".to_owned() } else { name }, violations, warnings }
}

/// The job, if need be without the fields that cannot be read, so that the rest of it is judged too.
fn readable(mut value: Value, of_shape: &[Violation]) -> Result<Job, serde_json::Error> {
    for violation in of_shape {
        if let Ok(job) = Job::deserialize(&value) {
            return Ok(job);
        }
        let pointer = format!("/{}", violation.field.replace(['.', '['], "/").replace(']', ""));
        let Some((parent, field)) = pointer.rsplit_once('/') else { continue };
        match value.pointer_mut(parent) {
            Some(Value::Object(fields)) if fields.contains_key(field) => {
                fields.remove(field);
            }
            Some(Value::Object(fields)) => {
                fields.insert(field.to_owned(), Value::String(String::new()));
            }
            _ => {}
        }
    }
    Job::deserialize(&value)
}

/// What is wrong with the object around the spec.
fn head_violations(value: &Value, name: &str) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut add = |code, field: &str, message: String| {
        violations.push(Violation { code, field: field.to_owned(), message });
    };
    let version = value["apiVersion"].as_str().unwrap_or_default();
    if version != drover_api::API_VERSION {
        add("ApiVersion", "apiVersion", format!("`{version}` is not served; write {}", drover_api::API_VERSION));
    }
    if name.is_empty() {
        add("NameMissing", "metadata.name", "is missing; name the job".to_owned());
    } else if name.len() > 63 || !is_dns_name(name) {
        let message = "must be a DNS name of at most 63 characters (lower case letters, digits, - and .); put another id into spec.id";
        add("NameInvalid", "metadata.name", message.to_owned());
    }
    violations
}

fn is_dns_name(name: &str) -> bool {
    name.split('.').all(|label| {
        let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty() && !label.starts_with('-') && !label.ends_with('-') && label.bytes().all(is_inner)
    })
}
