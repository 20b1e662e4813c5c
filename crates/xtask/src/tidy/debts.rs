//! Places that broke a rule when the rule came: as many are let through until they are mended, and no more.
//!
//! Input: `tools/debts.txt`, one rule a line with a number. A rule that is not in it allows none.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result, bail};
use drover_testkit::progress::print_line;
use drover_testkit::workspace;

/// The file of known places.
const FILE: &str = "tools/debts.txt";

/// How many places may break each rule.
#[derive(Debug, Default)]
pub(in crate::tidy) struct Debts(BTreeMap<String, usize>);

impl Debts {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, or a line is no rule with a number.
    pub(in crate::tidy) fn read() -> Result<Self> {
        let path = workspace::root().join(FILE);
        Self::parse(&fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?)
    }

    fn parse(text: &str) -> Result<Self> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let one = |line: &str| {
            let (rule, number) = line.split_once(' ').with_context(|| format!("{FILE}: {line:?} has no number"))?;
            let number = number.trim().parse().with_context(|| format!("{FILE}: {line:?} has no number"))?;
            Ok((rule.to_owned(), number))
        };
        lines.map(one).collect::<Result<_>>().map(Self)
    }

    /// Whether no more places break a rule than were known.
    ///
    /// # Errors
    /// Names every place when there are more, and asks for a lower number when there are fewer.
    pub(in crate::tidy) fn judge(&self, rule: &str, places: &[String]) -> Result<()> {
        let known = self.0.get(rule).copied().unwrap_or(0);
        if places.len() > known {
            bail!("{rule}: {} places break it, {known} are known in {FILE}\n{}", places.len(), places.join("\n"));
        }
        if places.len() < known {
            bail!(
                "{rule}: only {} places break it now: write that into {FILE}, so that they do not come back",
                places.len()
            );
        }
        if known > 0 {
            print_line(&format!(
                "{rule}: {known} places break it still (`cargo xtask tidy`, `cargo xtask figures imports`)"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(n: usize) -> Vec<String> {
        (0..n).map(|number| format!("a.rs:{number}")).collect()
    }

    #[test]
    fn as_many_places_as_are_known_pass_and_neither_more_nor_fewer() {
        let debts = Debts::parse("# known\nwords 2\n").unwrap();
        debts.judge("words", &places(2)).unwrap();
        debts.judge("headers", &places(0)).unwrap();
        let more = debts.judge("words", &places(3)).unwrap_err().to_string();
        assert!(more.contains("a.rs:2"), "{more}");
        assert!(debts.judge("words", &places(1)).unwrap_err().to_string().contains("only 1"));
        debts.judge("headers", &places(1)).unwrap_err();
        Debts::parse("words many").unwrap_err();
    }
}
