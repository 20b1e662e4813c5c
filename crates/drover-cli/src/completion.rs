//! What a shell completes: commands and flags from their definitions, names from the cluster. The shell asks this very
//! program at each key, through the script that `drover completion` prints; kubectl asks it under the name
//! `kubectl_complete-drover`.
//!
//! Must never print anything but candidates, and never keep a person waiting: a cluster that does not answer has no
//! names.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use clap::FromArgMatches as _;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate};
use clap_complete::env::{CompleteEnv, Shells};
use drover_api::GoDuration;
use kube::Resource;
use kube::api::{ListParams, ObjectList, PartialObjectMeta, Request};

use crate::cluster::connect::{ConnectArgs, block_on};
use crate::ui::stdio::answer;

/// The program's name when kubectl asks what follows `kubectl drover`.
const OF_KUBECTL: &str = "kubectl_complete-drover";
/// The variable by which a shell's script says that it asks.
const VARIABLE: &str = "COMPLETE";
/// How long names may take.
const PATIENCE: Duration = Duration::from_millis(300);
/// The variable that says otherwise, for clusters that are far away.
const PATIENCE_VARIABLE: &str = "DROVER_COMPLETION_TIMEOUT";
/// More names than that are not useful.
const MOST_NAMES: u32 = 500;

/// Answers a shell that asks what may follow; false when this is a person's command.
pub(crate) fn answer_shell(args: &[OsString], cli: fn() -> clap::Command) -> anyhow::Result<bool> {
    let program = args.first().map(Path::new).and_then(Path::file_name).unwrap_or_default();
    if program == OF_KUBECTL {
        answer_kubectl(args, cli())?;
        return Ok(true);
    }
    let folder = std::env::current_dir().ok();
    CompleteEnv::with_factory(cli).var(VARIABLE).try_complete(args, folder.as_deref()).context("completing")
}

/// Prints the script that makes a shell ask this program.
pub(crate) fn script(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let shells = Shells::builtins();
    let name = shell.to_string();
    let completer = shells.completer(&name).with_context(|| format!("{name} cannot be completed for"))?;
    let mut text = Vec::new();
    completer.write_registration(VARIABLE, "drover", "drover", "drover", &mut text).context("writing the script")?;
    answer(&text)?;
    Ok(0)
}

/// One candidate a line, then what kubectl is to do with them: 4 is to leave out files, 0 to offer them where nothing
/// else is. The form is that of cobra's `__complete` command, which kubectl takes from its plugins.
fn answer_kubectl(args: &[OsString], mut cli: clap::Command) -> anyhow::Result<()> {
    let folder = std::env::current_dir().ok();
    let last = args.len().saturating_sub(1);
    let found =
        clap_complete::engine::complete(&mut cli, args.to_vec(), last, folder.as_deref()).context("completing")?;
    let mut text = String::new();
    for candidate in &found {
        let value = candidate.get_value().to_string_lossy();
        let help =
            candidate.get_help().map(|help| format!("\t{}", help.to_string().lines().next().unwrap_or_default()));
        // Writing to a String cannot fail.
        writeln!(text, "{value}{}", help.unwrap_or_default()).ok();
    }
    writeln!(text, ":{}", if found.is_empty() { 0 } else { 4 }).ok();
    answer(text.as_bytes())
}

/// Completes the names of objects of the namespace.
pub(crate) fn names<K: Resource<DynamicType = ()> + Clone>() -> ArgValueCompleter {
    ArgValueCompleter::new(|start: &OsStr| candidates::<K>(start, true))
}

/// Completes the names of objects that have no namespace.
pub(crate) fn cluster_names<K: Resource<DynamicType = ()> + Clone>() -> ArgValueCompleter {
    ArgValueCompleter::new(|start: &OsStr| candidates::<K>(start, false))
}

fn candidates<K: Resource<DynamicType = ()> + Clone>(start: &OsStr, is_namespaced: bool) -> Vec<CompletionCandidate> {
    let Some(start) = start.to_str() else { return Vec::new() };
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let listed = block_on(async {
        let args = typed_connection(&words)?;
        tokio::time::timeout(patience(), list::<K>(&args, is_namespaced)).await.context("the cluster is too slow")?
    });
    // Whoever presses a key wants names, or silence.
    let names = listed.unwrap_or_default();
    names.into_iter().filter(|name| name.starts_with(start)).map(CompletionCandidate::new).collect()
}

fn patience() -> Duration {
    let wanted = std::env::var(PATIENCE_VARIABLE).ok().and_then(|text| text.parse::<GoDuration>().ok());
    wanted.map_or(PATIENCE, GoDuration::to_std)
}

async fn list<K: Resource<DynamicType = ()> + Clone>(
    args: &ConnectArgs,
    is_namespaced: bool,
) -> anyhow::Result<Vec<String>> {
    let connection = args.connect().await?;
    let path = K::url_path(&(), is_namespaced.then_some(connection.namespace.as_str()));
    let request = Request::new(path).list_metadata(&ListParams::default().limit(MOST_NAMES))?;
    let found: ObjectList<PartialObjectMeta<K>> = connection.client.request(request).await?;
    Ok(found.items.into_iter().filter_map(|item| item.metadata.name).collect())
}

/// The flags typed so far that say which cluster; the rest of the line may be of any command, and unfinished.
fn typed_connection(words: &[OsString]) -> anyhow::Result<ConnectArgs> {
    let command = <ConnectArgs as clap::Args>::augment_args(clap::Command::new("drover"));
    let mut flags = vec![OsString::from("drover")];
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let text = word.to_string_lossy();
        let (name, value) = text.split_once('=').map_or((&*text, None), |(name, value)| (name, Some(value)));
        let is_one = command.get_arguments().any(|flag| {
            name.strip_prefix("--").is_some_and(|long| flag.get_long() == Some(long))
                || name
                    .strip_prefix('-')
                    .is_some_and(|short| flag.get_short().is_some_and(|one| short == one.to_string()))
        });
        let value = match value {
            Some(value) if is_one => Some(OsString::from(value)),
            None if is_one => words.next().cloned(),
            _ => None,
        };
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            flags.extend([OsString::from(name), value]);
        }
    }
    let matches = command.ignore_errors(true).try_get_matches_from(flags)?;
    Ok(ConnectArgs::from_arg_matches(&matches)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_is_the_one_of_the_flags_typed_so_far() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let typed = typed_connection(&words("-- drover job status -w -n shop --context=east -o json we")).unwrap();
        assert_eq!((typed.namespace.as_deref(), typed.context.as_deref()), (Some("shop"), Some("east")));
        let typed = typed_connection(&words("job stop --namespace")).unwrap();
        assert_eq!(typed.namespace, None);
    }
}
