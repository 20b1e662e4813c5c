//! `cargo xtask tidy`: applies the rules.

use anyhow::{Result, bail};
use clap::Args;

use super::fault::Fault;
use super::rules::{headers, large_structs, module_files, orphans};
use super::tree::Tree;
use crate::progress::print_line;
use crate::workspace;

/// What `tidy` is told.
#[derive(Debug, Clone, Default, Args)]
pub struct TidyArgs {
    /// Apply this rule alone, repeatable
    #[arg(long = "rule", value_name = "NAME", value_parser = RULES.iter().map(|(name, _)| *name).collect::<Vec<_>>())]
    pub rules: Vec<String>,
}

type Rule = fn(&Tree) -> Vec<Fault>;

const RULES: &[(&str, Rule)] = &[
    ("headers", headers::check),
    ("orphans", orphans::check),
    ("module-files", module_files::check),
    ("large-structs", large_structs::check),
];

/// `cargo xtask tidy`.
///
/// # Errors
/// When a place breaks a rule, after naming each.
pub fn run(args: &TidyArgs) -> Result<()> {
    let faults = faults(args)?;
    for fault in &faults {
        print_line(&fault.to_string());
    }
    if faults.is_empty() { Ok(()) } else { bail!("{} places break a rule", faults.len()) }
}

/// Applies all rules.
///
/// # Errors
/// Names each place that breaks one.
pub fn check() -> Result<()> {
    let faults = faults(&TidyArgs::default())?;
    if faults.is_empty() {
        return Ok(());
    }
    bail!(
        "{} places break a rule\n{}",
        faults.len(),
        faults.iter().map(Fault::to_string).collect::<Vec<_>>().join("\n")
    )
}

fn faults(args: &TidyArgs) -> Result<Vec<Fault>> {
    let tree = Tree::read(&workspace::root())?;
    let is_wanted = |name: &str| args.rules.is_empty() || args.rules.iter().any(|wanted| wanted == name);
    let rules = RULES.iter().filter(|(name, _)| is_wanted(name));
    let mut faults: Vec<Fault> = rules.flat_map(|(_, rule)| rule(&tree)).collect();
    faults.sort();
    Ok(faults)
}
