//! Lines of tests to lines of code, for every crate and the folders in it.
//!
//! A line counts when it is neither blank nor comment. Tests are `#[cfg(test)]` items, files `tests.rs`, and folders
//! `tests` of the crate. The integration tests in `tests/` of the root start real processes and cover several crates at
//! once; they are shown by themselves and count for none, so that a component cannot live on tests that are minutes
//! away from its code. Benches and examples are neither.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use drover_testkit::progress::print_line;
use drover_testkit::workspace;
use serde::Serialize;

use crate::tidy::{CodeFile, Tree};

/// What a part must have at least: its crate, its component (none: the whole crate; `*`: each), lines of tests to one
/// line of code.
const MINIMA: &[(&str, Option<&str>, f64)] = &[
    ("drover-core", None, 1.5),
    ("drover-core", Some("scheduler"), 2.0),
    ("drover-controller", None, 0.8),
    ("drover-controller", Some("*"), 0.8),
    ("drover-agent", None, 0.8),
    ("drover-agent", Some("*"), 0.8),
];

/// The lines of the workspace.
#[derive(Debug, Serialize)]
pub(super) struct Figure {
    parts: Vec<CodePart>,
}

/// A crate, or a component of one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
struct CodePart {
    name: String,
    /// A folder of the crate's sources; none for the whole crate.
    component: Option<String>,
    code: u32,
    tests: u32,
    minimum: Option<f64>,
}

impl CodePart {
    /// Zero for a part without code: there is nothing to test.
    fn ratio(&self) -> f64 {
        if self.code == 0 { 0.0 } else { f64::from(self.tests) / f64::from(self.code) }
    }

    fn is_too_low(&self) -> bool {
        self.code > 0 && self.minimum.is_some_and(|minimum| self.ratio() < minimum)
    }
}

impl Figure {
    /// Counts the workspace's lines.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub(super) fn of_workspace() -> Result<Self> {
        Ok(Self::of(&Tree::read(&workspace::root())?.code))
    }

    fn of(files: &[CodeFile]) -> Self {
        let mut lines: BTreeMap<(String, Option<String>), (u32, u32)> = BTreeMap::new();
        for code in files {
            let Some((name, component)) = place(code.path()) else { continue };
            let (n_code, n_tests) = count(code);
            let crate_alone = (name.clone(), None);
            let component = component.map(|component| (name, Some(component)));
            for key in std::iter::once(crate_alone).chain(component) {
                let sum = lines.entry(key).or_default();
                *sum = (sum.0 + n_code, sum.1 + n_tests);
            }
        }
        let part = |((name, component), (code, tests)): ((String, Option<String>), (u32, u32))| {
            let minimum = minimum(&name, component.as_deref());
            CodePart { name, component, code, tests, minimum }
        };
        Self { parts: lines.into_iter().map(part).collect() }
    }

    /// Prints a table, or JSON.
    ///
    /// # Errors
    /// When it cannot be rendered.
    pub(super) fn print(&self, as_json: bool) -> Result<()> {
        if as_json {
            print_line(&serde_json::to_string(self).context("rendering the figure")?);
            return Ok(());
        }
        print_line(&format!("{:<34} {:>7} {:>7} {:>6} {:>8}", "CRATE, COMPONENT", "CODE", "TESTS", "RATIO", "MINIMUM"));
        for part in &self.parts {
            let name = part.component.as_ref().map_or(part.name.clone(), |component| format!("  {component}"));
            let minimum = part.minimum.map(|minimum| format!("{minimum:.1}")).unwrap_or_default();
            let mark = if part.is_too_low() { " too few" } else { "" };
            let CodePart { code, tests, .. } = part;
            print_line(&format!("{name:<34} {code:>7} {tests:>7} {:>6.2} {minimum:>8}{mark}", part.ratio()));
        }
        Ok(())
    }

    /// Fails when a part has too few lines of tests.
    ///
    /// # Errors
    /// Names these parts.
    pub(super) fn check(&self) -> Result<()> {
        let low = self.parts.iter().filter(|part| part.is_too_low()).map(|part| {
            let component = part.component.as_ref().map(|component| format!(" {component}")).unwrap_or_default();
            format!("{}{component} ({:.2})", part.name, part.ratio())
        });
        let low: Vec<String> = low.collect();
        if low.is_empty() { Ok(()) } else { bail!("too few lines of tests: {}", low.join(", ")) }
    }
}

/// The crate of a file, and the folder of that crate's sources in which it lies, or whose `mod` file it is.
fn place(path: &Path) -> Option<(String, Option<String>)> {
    let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
    let (name, rest) = match *parts.as_slice() {
        ["crates", name, ref rest @ ..] => (name, rest),
        ["src", ..] => ("drover", parts.as_slice()),
        ["tests", binary, ..] => return Some(("tests/".to_owned() + binary.trim_end_matches(".rs"), None)),
        _ => return None,
    };
    let component = match *rest {
        ["benches", ..] => return None,
        ["src", folder, _, ..] => Some(folder.to_owned()),
        _ => None,
    };
    Some((name.to_owned(), component))
}

/// Lines of code, and lines of tests.
fn count(code: &CodeFile) -> (u32, u32) {
    let mut sums = (0, 0);
    for (index, line) in code.text().lines().enumerate() {
        let line = line.trim_start();
        if line.is_empty() || line.starts_with("//") {
            continue;
        }
        if code.is_test_line(index + 1) { sums.1 += 1 } else { sums.0 += 1 }
    }
    sums
}

fn minimum(name: &str, component: Option<&str>) -> Option<f64> {
    let applies = |wanted: Option<&str>| wanted == component || wanted == Some("*") && component.is_some();
    MINIMA.iter().find(|(of, wanted, _)| *of == name && applies(*wanted)).map(|(.., minimum)| *minimum)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree_of;

    fn figure(files: &[(&str, &str)]) -> Figure {
        Figure::of(&tree_of(files).code)
    }

    #[test]
    fn lines_of_tests_and_code_are_counted_per_crate_and_component() {
        let code = "//! A.\n\nfn f() {\n}\n#[cfg(test)]\nmod tests {\n  // comment\n  fn g() {}\n}\n";
        let figure = figure(&[
            ("crates/drover-agent/src/lib.rs", "mod drivers;\n"),
            ("crates/drover-agent/src/drivers/mod.rs", code),
            ("crates/drover-agent/src/drivers/tests.rs", "fn t() {}\n"),
            ("crates/drover-agent/tests/all.rs", "fn t() {}\n"),
            ("crates/drover-agent/benches/b.rs", "fn t() {}\n"),
            ("tests/it/main.rs", "fn t() {}\n"),
            ("tests/it/jobs.rs", "fn t() {}\n"),
            ("examples/e/src/main.rs", "fn t() {}\n"),
        ]);
        let counts: Vec<_> = figure
            .parts
            .iter()
            .map(|part| (part.name.as_str(), part.component.as_deref(), part.code, part.tests, part.minimum))
            .collect();
        assert_eq!(
            counts,
            [
                ("drover-agent", None, 3, 6, Some(0.8)),
                ("drover-agent", Some("drivers"), 2, 5, Some(0.8)),
                ("tests/it", None, 0, 2, None),
            ]
        );
        figure.check().unwrap();
    }

    #[test]
    fn too_few_tests_are_named() {
        let figure =
            figure(&[("crates/drover-core/src/scheduler/plan.rs", "fn f() {}\nfn g() {}\n#[cfg(test)]\nmod t {}\n")]);
        assert_eq!(
            figure.check().unwrap_err().to_string(),
            "too few lines of tests: drover-core (1.00), drover-core scheduler (1.00)"
        );
    }
}
