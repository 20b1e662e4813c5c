//! `mutants`: plants defects one at a time and says which of them the simulator finds.
//!
//! Input: `tests/sim/mutants.yaml`, a list of edits, each made by text. Output: a table in Markdown. The edits go into
//! a copy of the tracked files, where each is behind a switch, so that one build is enough for all; the tree itself has
//! no switch. Must never know what a defect means: whether it is found is what `drover simulate` says.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use drover_testkit::cargo;
use drover_testkit::progress::{Progress, print_line};
use drover_testkit::workspace;
use serde::Deserialize;

/// The list of defects.
const LIST: &str = "tests/sim/mutants.yaml";
/// The variable that says which defect is switched on in the copy.
const SWITCH: &str = "DROVER_PLANTED";
/// How much of a failure the table shows.
const SHOWN: usize = 90;

/// What to search, and where.
#[derive(clap::Args, Debug)]
pub struct MutantsArgs {
    /// Only defects whose name contains this
    filter: Option<String>,
    /// The scenario that searches, where a defect names no other
    #[arg(long, default_value = "examples/scenarios/chaos.yaml")]
    scenario: PathBuf,
    /// How many seeds are tried for each defect
    #[arg(long, default_value_t = 2000)]
    seeds: u64,
    /// How many defects may stay unfound
    #[arg(long, default_value_t = 1)]
    missed: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Defect {
    name: String,
    what: String,
    /// The scenario that searches it; none: that of all.
    #[serde(default)]
    scenario: Option<PathBuf>,
    edits: Vec<Edit>,
}

/// A text that stands once in a file, and what takes its place. `PLANTED` in it is the switch.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: PathBuf,
    find: String,
    replace: String,
}

/// What became of a search.
struct Search {
    found: Option<Finding>,
    seconds: f64,
}

/// The seed that fails with a defect and passes without it, and what fails.
struct Finding {
    seed: u64,
    what: String,
}

/// Searches every defect and prints the table; fails when too many are not found.
///
/// # Errors
/// When an edit does not fit the tree any more, or the copy does not build.
pub fn run(args: &MutantsArgs) -> Result<ExitCode> {
    let defects = read()?;
    let is_wanted = |defect: &&Defect| args.filter.as_ref().is_none_or(|part| defect.name.contains(part.as_str()));
    let wanted: Vec<&Defect> = defects.iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "{LIST} has no defect whose name contains {:?}", args.filter.as_deref().unwrap_or(""));
    let program = build(&workspace::root().join("target/mutants"), &defects)?;
    print_line("| defect | found by seed | with | seconds | what was planted |\n|---|---|---|---|---|");
    let mut n_found = 0;
    for defect in &wanted {
        let Search { found, seconds } = search(&program, args, defect)?;
        n_found += usize::from(found.is_some());
        let (seed, what) = found.map_or_else(
            || ("-".to_owned(), format!("nothing in {} seeds", args.seeds)),
            |Finding { seed, what }| (seed.to_string(), what),
        );
        print_line(&format!("| {} | {seed} | {what} | {seconds:.0} | {} |", defect.name, defect.what));
    }
    print_line(&format!("\n{n_found} of {} defects found within {} seeds each", wanted.len(), args.seeds));
    Ok(ExitCode::from(u8::from(wanted.len() - n_found > args.missed)))
}

fn read() -> Result<Vec<Defect>> {
    let text = fs::read_to_string(workspace::root().join(LIST)).with_context(|| format!("reading {LIST}"))?;
    let defects: Vec<Defect> = serde_saphyr::from_str(&text).with_context(|| format!("reading {LIST}"))?;
    let names: BTreeSet<&str> = defects.iter().map(|defect| defect.name.as_str()).collect();
    ensure!(names.len() == defects.len(), "{LIST}: two defects have one name");
    Ok(defects)
}

/// Makes a copy with all defects behind their switches, and builds `drover` of it.
fn build(folder: &Path, defects: &[Defect]) -> Result<PathBuf> {
    let step = Progress::for_people().step("building drover with all defects");
    let tree = folder.join("tree");
    for (file, bytes) in planted(defects)? {
        let to = tree.join(&file);
        // What did not change keeps its time, so that cargo builds only what did.
        if fs::read(&to).is_ok_and(|known| known == bytes) {
            continue;
        }
        if let Some(parent) = to.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))?;
    }
    let mut cargo = cargo::command();
    cargo.current_dir(&tree).args(["build", "--release", "--bin", "drover"]);
    // What does not change with the defects is not built again: the dependencies.
    let built = workspace::root().join("target");
    let output = cargo.env("CARGO_TARGET_DIR", &built).stdin(Stdio::null()).output();
    let output = output.context("starting cargo")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "the copy with the defects does not build:\n{errors}");
    let program = folder.join("drover");
    fs::rename(built.join("release/drover"), &program).with_context(|| format!("moving {}", program.display()))?;
    step.done("");
    Ok(program)
}

/// The tracked files, with the defects and their switch in them.
fn planted(defects: &[Defect]) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut files = tracked()?;
    let missing = |file: &Path| format!("{} is not tracked by git", file.display());
    let sources = defects.iter().flat_map(|defect| &defect.edits).filter_map(|edit| source_folder(&edit.file));
    for root in sources.collect::<BTreeSet<_>>() {
        files.insert(root.join("planted.rs"), switch_module().into_bytes());
        let lib = root.join("lib.rs");
        let text = files.get_mut(&lib).with_context(|| missing(&lib))?;
        text.extend_from_slice(b"\n#[allow(missing_docs)]\npub mod planted;\n");
    }
    for defect in defects {
        for edit in &defect.edits {
            let bytes = files.get_mut(&edit.file).with_context(|| missing(&edit.file))?;
            let text = String::from_utf8(std::mem::take(bytes)).with_context(|| edit.file.display().to_string())?;
            *bytes = edit.applied(&defect.name, &text)?.into_bytes();
        }
    }
    Ok(files)
}

/// The `src` folder of the crate that a file is of.
fn source_folder(file: &Path) -> Option<&Path> {
    file.ancestors().find(|folder| folder.file_name().is_some_and(|name| name == "src"))
}

fn tracked() -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let root = workspace::root();
    let listed = Command::new("git").current_dir(&root).args(["ls-files", "-z"]).output().context("starting git")?;
    ensure!(listed.status.success(), "git ls-files: {}", String::from_utf8_lossy(&listed.stderr));
    let names = String::from_utf8(listed.stdout).context("a file name is no text")?;
    let names = names.split('\0').filter(|name| !name.is_empty());
    // A file that is deleted and not yet committed is none.
    Ok(names.filter_map(|name| Some((PathBuf::from(name), fs::read(root.join(name)).ok()?))).collect())
}

fn switch_module() -> String {
    format!(
        "//! Which defect is switched on.\n\
         use std::sync::OnceLock;\n\
         pub fn is(name: &str) -> bool {{\n    \
             static NAME: OnceLock<Option<String>> = OnceLock::new();\n    \
             NAME.get_or_init(|| std::env::var(\"{SWITCH}\").ok()).as_deref() == Some(name)\n\
         }}\n"
    )
}

impl Edit {
    /// The file's text with the defect in it.
    fn applied(&self, defect: &str, text: &str) -> Result<String> {
        let found = text.matches(self.find.trim_end()).count();
        let file = self.file.display();
        ensure!(
            found == 1,
            "{LIST}: {defect}: the text to find stands {found} times in {file}; it must stand there once"
        );
        let switch = format!("crate::planted::is({defect:?})");
        Ok(text.replacen(self.find.trim_end(), &self.replace.trim_end().replace("PLANTED", &switch), 1))
    }
}

/// Looks for the first seed that fails with the defect and passes without it.
fn search(program: &Path, args: &MutantsArgs, defect: &Defect) -> Result<Search> {
    let began = Instant::now();
    let (name, scenario) = (&defect.name, defect.scenario.as_ref().unwrap_or(&args.scenario));
    let mut first = 1;
    let found = loop {
        let seeds = format!("{first}..{}", args.seeds);
        let (passes, text) = simulate(program, scenario, Some(name), &["--seeds", &seeds, "--until-failure"])?;
        if passes {
            break None;
        }
        let finding = Finding::read(&text).with_context(|| format!("drover simulate with {name}: {text}"))?;
        let (is_right_without, _) = simulate(program, scenario, None, &["--seed", &finding.seed.to_string()])?;
        if is_right_without {
            break Some(finding);
        }
        if finding.seed >= args.seeds {
            break None;
        }
        first = finding.seed + 1;
    };
    Ok(Search { found, seconds: began.elapsed().as_secs_f64() })
}

/// Runs the copy; whether all passes, and what it says.
fn simulate(program: &Path, scenario: &Path, defect: Option<&str>, seeds: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new(program);
    command.current_dir(workspace::root()).arg("simulate").arg(scenario).args(seeds).stdin(Stdio::null());
    match defect {
        Some(name) => command.env(SWITCH, name),
        None => command.env_remove(SWITCH),
    };
    let output = command.output().context("starting drover simulate")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code().is_some_and(|code| code < 2), "drover simulate: {text}");
    Ok((output.status.success(), text))
}

impl Finding {
    /// From the line of a failed seed: `seed 7 failed at 12s: what; replay: command`.
    fn read(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("seed "))?;
        let (seed, rest) = line.split_once(" failed at ")?;
        let what = rest.split("; replay:").next()?.split_once(": ")?.1;
        let short: String = what.chars().take(SHOWN).collect();
        let what = if short.len() < what.len() { format!("{short}…") } else { short };
        Some(Self { seed: seed.parse().ok()?, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_seed_is_read_with_its_reason() {
        let text = "seed 7 failed at 12.5s: I9: a job is stuck: yes; replay: drover simulate x --seed 7\nx: 6 of 7 seeds pass\n";
        let finding = Finding::read(text).expect("a seed");
        assert_eq!((finding.seed, finding.what.as_str()), (7, "I9: a job is stuck: yes"));
        assert!(Finding::read("x: 7 of 7 seeds pass\n").is_none());
    }

    #[test]
    fn every_defect_can_still_be_planted() {
        let defects = read().expect("the list");
        assert_eq!(defects.len(), 12);
        for defect in &defects {
            assert!(!defect.edits.is_empty(), "{}", defect.name);
            for edit in &defect.edits {
                assert!(source_folder(&edit.file).is_some(), "{}: {} is of no crate", defect.name, edit.file.display());
                let text = fs::read_to_string(workspace::root().join(&edit.file)).expect("a file of the tree");
                let planted = edit.applied(&defect.name, &text).unwrap_or_else(|error| panic!("{error:#}"));
                assert!(planted.contains(&format!("planted::is({:?})", defect.name)), "{}: no switch", defect.name);
            }
        }
    }
}
