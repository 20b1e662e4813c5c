//! `cargo xtask tidy`: applies the rules, and repairs what can be repaired without thinking.

use std::fs;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use drover_testkit::progress::print_line;
use drover_testkit::workspace;

use super::fault::Fault;
use super::rules::{comment_width, headers, large_structs, module_files, orphans, twin_types, words};
use super::tree::Tree;

/// What `tidy` is told.
#[derive(Debug, Clone, Default, Args)]
pub struct TidyArgs {
    /// Apply this rule alone, repeatable
    #[arg(long = "rule", value_name = "NAME", value_parser = RULES.iter().map(|(name, _)| *name).collect::<Vec<_>>())]
    pub rules: Vec<String>,
    /// Wrap comments that are too wide
    #[arg(long)]
    pub fix: bool,
}

type Rule = fn(&Tree) -> Vec<Fault>;

const RULES: &[(&str, Rule)] = &[
    ("headers", headers::check),
    ("orphans", orphans::check),
    ("module-files", module_files::check),
    ("large-structs", large_structs::check),
    ("twin-types", twin_types::check),
    ("comment-width", comment_width::check),
    ("words", words::check),
];

/// `cargo xtask tidy`.
///
/// # Errors
/// When a place breaks a rule, after naming each.
pub fn run(args: &TidyArgs) -> Result<()> {
    if args.fix {
        fill_comments()?;
    }
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
    let places: Vec<String> = faults.iter().map(Fault::to_string).collect();
    if places.is_empty() { Ok(()) } else { bail!("{}", places.join("\n")) }
}

fn faults(args: &TidyArgs) -> Result<Vec<Fault>> {
    let tree = Tree::read(&workspace::root())?;
    let is_wanted = |name: &str| args.rules.is_empty() || args.rules.iter().any(|wanted| wanted == name);
    let rules = RULES.iter().filter(|(name, _)| is_wanted(name));
    let mut faults: Vec<Fault> = rules.flat_map(|(_, rule)| rule(&tree)).collect();
    faults.sort();
    Ok(faults)
}

fn fill_comments() -> Result<()> {
    let root = workspace::root();
    for code in Tree::read(&root)?.code {
        let filled = comment_width::fill(&code.file.text);
        if filled != code.file.text {
            let path = root.join(&code.file.path);
            fs::write(&path, filled).with_context(|| format!("writing {}", path.display()))?;
            print_line(&format!("filled comments of {}", code.file.path.display()));
        }
    }
    Ok(())
}
