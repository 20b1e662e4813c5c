//! Reads what users run: manifests, and jobs in Nomad's HCL and JSON, which are turned into manifests first.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use drover_jobspec::{Fault, Files, Inputs};
use serde_json::Value;

use crate::ui::stdio::read_input;

/// Bytes of one file that a job file reads.
const FILE_LIMIT: u64 = 1 << 20;
/// Files and folders below a folder that a job file looks through.
const WALK_LIMIT: usize = 10_000;
/// The variables of the environment that are values for a job file's.
const ENVIRONMENT: &str = "NOMAD_VAR_";

/// Values for the variables of a job file in HCL.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct VariableArgs {
    /// A value for a variable of a job file in HCL, repeatable; `NOMAD_VAR_name` in the environment is another way.
    #[arg(long = "var", value_name = "NAME=VALUE")]
    vars: Vec<String>,
    /// A file with values for variables of a job file in HCL, repeatable; a later one wins, and `--var` over all.
    #[arg(long = "var-file", value_name = "FILE")]
    var_files: Vec<PathBuf>,
}

impl VariableArgs {
    /// Values for a file that has no variables are a mistake.
    fn refuse(&self, path: &Path) -> anyhow::Result<()> {
        match self.vars.first() {
            None => Ok(()),
            Some(value) => {
                bail!("--var {value}: {} is no job file in HCL (*.hcl, *.nomad), and has no variables", path.display())
            }
        }
    }
}

/// Whether a file's name says that it is a job file in HCL.
pub(crate) fn is_hcl(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "hcl" || extension == "nomad")
}

/// The bytes of a file of manifests; a job in Nomad's HCL or JSON is turned into them.
pub(crate) fn read(path: &Path, variables: &VariableArgs) -> anyhow::Result<Vec<u8>> {
    if is_hcl(path) {
        let lines: Result<Vec<String>, _> = manifests(path, variables)?.iter().map(serde_json::to_string).collect();
        return Ok(lines.context("writing the manifests")?.join("\n").into_bytes());
    }
    variables.refuse(path)?;
    let bytes = read_input(path)?;
    match std::str::from_utf8(&bytes) {
        Ok(text) if drover_jobspec::is_wire(text) => {
            serde_json::to_vec(&of_wire(path, text)?).context("writing the manifest")
        }
        // What is no text is named by who reads the manifests.
        Ok(_) | Err(_) => Ok(bytes),
    }
}

/// The manifests of a job or a volume in HCL, or of a job in Nomad's JSON.
pub(crate) fn manifests(path: &Path, variables: &VariableArgs) -> anyhow::Result<Vec<Value>> {
    let name = path.display().to_string();
    let bytes = read_input(path)?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow::anyhow!("{name}: is no text in UTF-8"))?;
    // No file in HCL begins so.
    if !is_hcl(path) && text.trim_start_matches('\u{feff}').trim_start().starts_with('{') {
        variables.refuse(path)?;
        return Ok(vec![of_wire(path, &text)?]);
    }
    let folder = Folder(path.parent().unwrap_or(Path::new("")).to_owned());
    let mut inputs = Inputs { readable: Some(&folder), ..Inputs::default() };
    for value in &variables.vars {
        let (variable, value) =
            value.split_once('=').with_context(|| format!("--var {value}: write it as --var NAME=VALUE"))?;
        inputs.values.insert(variable.to_owned(), value.to_owned());
    }
    for file in &variables.var_files {
        let text = std::fs::read_to_string(file).with_context(|| format!("reading {}", file.display()))?;
        inputs.files.push((file.display().to_string(), text));
    }
    inputs.environment = environment(
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?))),
    );
    drover_jobspec::manifests(&name, &text, &inputs).map_err(|faults| told(&faults))
}

/// The manifest of a job in Nomad's JSON.
fn of_wire(path: &Path, text: &str) -> anyhow::Result<Value> {
    drover_jobspec::wire_manifest(&path.display().to_string(), text).map_err(|faults| told(&faults))
}

/// All that is wrong with a file, a line for each.
fn told(faults: &[Fault]) -> anyhow::Error {
    let lines: Vec<String> = faults.iter().map(ToString::to_string).collect();
    anyhow::anyhow!("{}", lines.join("\n"))
}

fn environment(variables: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    variables.filter_map(|(name, value)| Some((name.strip_prefix(ENVIRONMENT)?.to_owned(), value))).collect()
}

/// The files of the user who runs the command; paths begin at the job file's folder.
#[derive(Debug)]
struct Folder(PathBuf);

impl Files for Folder {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        let path = self.0.join(path);
        let shown = path.display();
        let fault = |error: std::io::Error| format!("`{shown}` cannot be read: {error}");
        if !std::fs::metadata(&path).map_err(fault)?.is_file() {
            return Err(format!("`{shown}` is no file"));
        }
        let mut bytes = Vec::new();
        let file = std::fs::File::open(&path).map_err(fault)?;
        file.take(FILE_LIMIT + 1).read_to_end(&mut bytes).map_err(fault)?;
        if bytes.len() as u64 > FILE_LIMIT {
            return Err(format!("`{shown}` has more than {FILE_LIMIT} bytes"));
        }
        Ok(bytes)
    }

    fn matching(&self, folder: &str, pattern: &str) -> Result<Vec<String>, String> {
        let top = self.0.join(folder);
        let mut found = Vec::new();
        let mut left = vec![top.clone()];
        let mut n_seen = 0;
        while let Some(next) = left.pop() {
            let entries =
                std::fs::read_dir(&next).map_err(|error| format!("`{}` cannot be read: {error}", next.display()))?;
            for entry in entries.flatten() {
                n_seen += 1;
                if n_seen > WALK_LIMIT {
                    return Err(format!("`{}` holds more than {WALK_LIMIT} files", top.display()));
                }
                // A link is not followed: it may lead around in a circle.
                let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
                let path = entry.path();
                match path.strip_prefix(&top).ok().and_then(Path::to_str) {
                    Some(_) if is_folder => left.push(path),
                    Some(name) if glob(pattern.as_bytes(), name.as_bytes()) => found.push(name.to_owned()),
                    _ => {}
                }
            }
        }
        found.sort();
        Ok(found)
    }
}

/// `*` and `?` stop at `/`, `**` does not.
fn glob(pattern: &[u8], name: &[u8]) -> bool {
    match pattern {
        [] => name.is_empty(),
        [b'*', b'*', b'/', rest @ ..] => {
            glob(rest, name) || (0..name.len()).any(|at| name[at] == b'/' && glob(rest, &name[at + 1..]))
        }
        [b'*', b'*', rest @ ..] => (0..=name.len()).any(|at| glob(rest, &name[at..])),
        [b'*', rest @ ..] => {
            let end = name.iter().position(|byte| *byte == b'/').unwrap_or(name.len());
            (0..=end).any(|at| glob(rest, &name[at..]))
        }
        [b'?', rest @ ..] => name.first().is_some_and(|byte| *byte != b'/') && glob(rest, &name[1..]),
        [byte, rest @ ..] => name.first() == Some(byte) && glob(rest, &name[1..]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stop_at_folders() {
        for (pattern, name, expected) in [
            ("*.txt", "a.txt", true),
            ("*.txt", "b/a.txt", false),
            ("**/*.txt", "a.txt", true),
            ("**/*.txt", "b/c/a.txt", true),
            ("b/?.txt", "b/a.txt", true),
            ("b?a.txt", "b/a.txt", false),
            ("**", "b/c", true),
        ] {
            assert_eq!(glob(pattern.as_bytes(), name.as_bytes()), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn a_job_is_read_from_hcl_with_its_variables_and_files_and_from_nomads_json() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.nomad.hcl");
        let text = "variable \"tag\" {}\njob \"web\" {\n  meta {\n    tag = var.tag\n    motd = file(\"motd\")\n    n = length(fileset(\".\", \"*\"))\n  }\n}\n";
        std::fs::write(&path, text).unwrap();
        std::fs::write(folder.path().join("motd"), "hello").unwrap();
        let variables = VariableArgs { vars: vec!["tag=7".to_owned()], var_files: Vec::new() };
        let found: Value = serde_json::from_slice(&read(&path, &variables).unwrap()).unwrap();
        assert_eq!(found["spec"]["meta"], serde_json::json!({"tag": "7", "motd": "hello", "n": "2"}));
        let error = read(&path, &VariableArgs::default()).unwrap_err().to_string();
        assert!(error.contains("web.nomad.hcl:1:1: variable `tag`: has no value and no default"), "{error}");
        let json = folder.path().join("web.json");
        std::fs::write(&json, r#"{"Job": {"ID": "web", "Type": "batch", "Status": "dead"}}"#).unwrap();
        let none = VariableArgs::default();
        let found: Value = serde_json::from_slice(&read(&json, &none).unwrap()).unwrap();
        assert_eq!(
            (&found["kind"], &found["spec"]),
            (&"Job".into(), &serde_json::json!({"type": "batch", "groups": []}))
        );
        assert_eq!(manifests(&json, &none).unwrap(), [found]);
        assert!(manifests(&json, &variables).unwrap_err().to_string().starts_with("--var tag=7"));
        std::fs::write(&json, r#"{"Job": {"ID": "web", "Vault": {"Role": "a"}}}"#).unwrap();
        for error in [read(&json, &none).unwrap_err(), manifests(&json, &none).unwrap_err()] {
            assert!(
                error.to_string().contains("web.json:1:32: Job.Vault: is not carried over: drover has no"),
                "{error}"
            );
        }
        let manifest = r#"{"apiVersion": "drover.dev/v1alpha1", "kind": "Job", "metadata": {"name": "web"}}"#;
        std::fs::write(&json, manifest).unwrap();
        assert_eq!(read(&json, &none).unwrap(), manifest.as_bytes());
        assert!(manifests(&json, &none).unwrap_err().to_string().contains("is a manifest already"));
        let error = read(Path::new("web.yaml"), &variables).unwrap_err().to_string();
        assert!(error.starts_with("--var tag=7: web.yaml is no job file in HCL"), "{error}");
    }
}
