//! What a command prints of objects: a table, JSON, YAML, names, or what a template makes of them.

use std::ffi::OsStr;
use std::str::FromStr;

use anyhow::Context;
use clap::builder::{PossibleValue, StringValueParser, TypedValueParser, ValueParserFactory};
use clap::{Arg, Command};
use drover_api::csi_volume::REDACTED;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};

use crate::ui::jsonpath::Template;
use crate::ui::stdio::answer;
use crate::ui::table::Table;

/// The annotation in which kubectl keeps the manifest that it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How objects are printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Columns for people.
    Table,
    /// More columns for people.
    Wide,
    /// One JSON document.
    Json,
    /// YAML.
    Yaml,
    /// `kind/name`, one per line.
    Name,
    /// What a template makes of it.
    JsonPath(Template),
}

impl Output {
    /// Whether it is for people, so that a command may add what is not of the object.
    pub(crate) const fn is_for_people(&self) -> bool {
        matches!(self, Self::Table | Self::Wide)
    }
}

/// The values of `-o`, and what they print.
const OUTPUTS: [(&str, &str); 6] = [
    ("table", "Columns for people"),
    ("wide", "More columns for people"),
    ("json", "One JSON document"),
    ("yaml", "YAML"),
    ("name", "`kind/name`, one per line"),
    ("jsonpath=", "What a template of kubectl's makes of it, as jsonpath='{.status.phase}'"),
];

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Ok(match text {
            "table" => Self::Table,
            "wide" => Self::Wide,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "name" => Self::Name,
            _ => match text.strip_prefix("jsonpath=") {
                Some(template) => Self::JsonPath(Template::read(template)?),
                None => return Err(format!("it is none of {}", OUTPUTS.map(|(name, _)| name).join(", "))),
            },
        })
    }
}

/// Reads `-o`, and shows in help and to shells what can be given.
#[derive(Clone)]
pub(crate) struct OutputParser;

impl TypedValueParser for OutputParser {
    type Value = Output;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Output, clap::Error> {
        StringValueParser::new().try_map(|text| text.parse::<Output>()).parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(OUTPUTS.iter().map(|(name, help)| PossibleValue::new(*name).help(*help))))
    }
}

impl ValueParserFactory for Output {
    type Parser = OutputParser;

    fn value_parser() -> OutputParser {
        OutputParser
    }
}

/// How something is printed that is no object of the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ReportOutput {
    /// For people.
    #[default]
    Table,
    /// For programs.
    Json,
    /// For programs and people.
    Yaml,
}

/// Prints a report: whole for programs, as `text` for people.
pub(crate) fn report(
    report: &impl Serialize,
    output: ReportOutput,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let text = match output {
        ReportOutput::Json => format!("{}\n", serde_json::to_string_pretty(report).context("writing it as JSON")?),
        ReportOutput::Yaml => serde_saphyr::to_string(report).context("writing it as YAML")?,
        ReportOutput::Table => text(),
    };
    answer(text.as_bytes())
}

/// Prints a value that is no object of the cluster: whole for programs, by its parts' names, or as rows for people.
pub(crate) fn value(
    value: &impl Serialize,
    output: &Output,
    names: impl FnOnce() -> Vec<String>,
    rows: impl FnOnce() -> Table,
) -> anyhow::Result<()> {
    let text = match output {
        Output::Json => format!("{:#}\n", json!(value)),
        Output::Yaml => yaml(&json!(value))?,
        Output::JsonPath(template) => template.fill(&json!(value)),
        Output::Name => names().into_iter().map(|name| name + "\n").collect(),
        Output::Table | Output::Wide => {
            let mut text = String::new();
            rows().write(&mut text);
            text
        }
    };
    answer(text.as_bytes())
}

/// Prints one object for programs; people see something else.
pub(crate) fn object<K: Resource<DynamicType = ()> + Serialize>(object: &K, output: &Output) -> anyhow::Result<()> {
    match output {
        Output::Name => answer(format!("{}\n", name_of(object)).as_bytes()),
        Output::Yaml => answer(yaml(&whole(object))?.as_bytes()),
        Output::Json | Output::Table | Output::Wide => answer(format!("{:#}\n", whole(object)).as_bytes()),
        Output::JsonPath(template) => answer(template.fill(&whole(object)).as_bytes()),
    }
}

/// Prints an object that was changed, where that is asked for.
pub(crate) fn changed<K: Resource<DynamicType = ()> + Serialize>(
    changed: &K,
    output: Option<&Output>,
) -> anyhow::Result<()> {
    output.map_or(Ok(()), |output| object(changed, output))
}

/// Prints objects: as a `List` for programs, by `rows` for people.
pub(crate) fn list<K: Resource<DynamicType = ()> + Serialize>(
    objects: &[K],
    output: &Output,
    rows: impl FnOnce() -> Table,
) -> anyhow::Result<()> {
    let listed = || {
        let items: Vec<Value> = objects.iter().map(whole).collect();
        json!({ "apiVersion": "v1", "kind": "List", "metadata": {}, "items": items })
    };
    match output {
        Output::Json => answer(format!("{:#}\n", listed()).as_bytes()),
        Output::Yaml => answer(yaml(&listed())?.as_bytes()),
        Output::JsonPath(template) => answer(template.fill(&listed()).as_bytes()),
        Output::Name => {
            let names: Vec<String> = objects.iter().map(|object| format!("{}\n", name_of(object))).collect();
            answer(names.concat().as_bytes())
        }
        Output::Table | Output::Wide => {
            let mut text = String::new();
            rows().write(&mut text);
            answer(text.as_bytes())
        }
    }
}

/// An object with its kind: typed objects do not carry it.
fn whole<K: Resource<DynamicType = ()> + Serialize>(object: &K) -> Value {
    let mut value = json!({ "apiVersion": K::api_version(&()), "kind": K::kind(&()) });
    if let (Value::Object(whole), Value::Object(fields)) = (&mut value, json!(object)) {
        whole.extend(fields);
    }
    redact(&mut value);
    value
}

/// Takes out what may be secret: mount flags, also where the manifest of an earlier `kubectl apply` repeats them.
fn redact(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::Array(flags)) = fields.get_mut("mountFlags") {
                flags.fill(json!(REDACTED));
            }
            if fields.get(LAST_APPLIED).and_then(Value::as_str).is_some_and(|text| text.contains("mountFlags")) {
                fields.remove(LAST_APPLIED);
            }
            fields.values_mut().for_each(redact);
        }
        Value::Array(items) => items.iter_mut().for_each(redact),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn yaml(value: &Value) -> anyhow::Result<String> {
    Ok(serde_saphyr::to_string(value)?)
}

/// `djob/web`, as kubectl takes it. Jobs and deployments are named by their short names: kubectl means others by the
/// long ones.
pub(crate) fn name_of<K: Resource<DynamicType = ()>>(object: &K) -> String {
    let name = object.meta().name.as_deref().unwrap_or_default();
    format!("{}/{name}", short_kind(&K::kind(&())))
}

/// The short name of a kind.
pub(crate) fn short_kind(kind: &str) -> String {
    match kind {
        "Job" => "djob".to_owned(),
        "Deployment" => "ddep".to_owned(),
        "Allocation" => "alloc".to_owned(),
        "JobVersion" => "djv".to_owned(),
        "ClientNode" => "cnode".to_owned(),
        "CSIVolume" => "csivol".to_owned(),
        "HostVolume" => "hvol".to_owned(),
        other => other.to_lowercase(),
    }
}

/// How long ago, or how long until, as kubectl says it: `45s`, `9m12s`, `3h`, `5d`.
pub(crate) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=599 if seconds % 60 != 0 => format!("{}m{}s", seconds / 60, seconds % 60),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// The age of an object.
pub(crate) fn age<K: Resource<DynamicType = ()>>(object: &K, now: jiff::Timestamp) -> String {
    let created = object.meta().creation_timestamp.as_ref();
    created.map_or_else(|| "-".to_owned(), |at| span(now.duration_since(at.0).as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_short() {
        let spans: Vec<String> = [5, 119, 125, 180, 3000, 7200, 200_000].into_iter().map(span).collect();
        assert_eq!(spans, ["5s", "119s", "2m5s", "3m", "50m", "2h", "2d"]);
    }

    /// V-062
    #[test]
    fn mount_flags_are_never_shown() {
        let volume: drover_api::CSIVolume = serde_json::from_value(json!({
            "apiVersion": "drover.dev/v1alpha1", "kind": "CSIVolume",
            "metadata": { "name": "v1", "annotations": { LAST_APPLIED: r#"{"mountFlags":["password=hush"]}"#, "team": "db" } },
            "spec": { "pluginID": "p", "capabilities": [], "secretsRef": { "name": "login" },
                      "mountOptions": { "fsType": "cifs", "mountFlags": ["password=hush", "ro"] } },
        }))
        .expect("a volume");
        let shown = whole(&volume);
        assert_eq!(shown["spec"]["mountOptions"], json!({ "fsType": "cifs", "mountFlags": [REDACTED, REDACTED] }));
        assert_eq!(shown["metadata"]["annotations"], json!({ "team": "db" }));
        assert_eq!(shown["spec"]["secretsRef"], json!({ "name": "login" }));
        assert!(!shown.to_string().contains("hush"), "{shown}");
    }
}
