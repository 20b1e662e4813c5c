//! Whether each block of commands says where it runs, and begins with a command: a test runs them all.

use drover_testkit::documents::place;

use super::documents::{DocumentLine, Documents, lines};

/// Where a block may run: with a control plane, controller and agent; with `cargo xtask up`; on a real kubelet; nowhere
/// in particular.
const PLACES: [&str; 4] = ["cluster", "up", "e2e", "shell"];

/// Blocks of commands that nothing can run.
pub(super) fn unmarked(documents: &Documents) -> Vec<String> {
    let run_by_tests = |path: &str| path == "README.md" || path.starts_with("docs/");
    documents.iter().filter(|(path, _)| run_by_tests(path)).flat_map(|(path, text)| faults(path, text)).collect()
}

fn faults(path: &str, text: &str) -> Vec<String> {
    let mut findings = Vec::new();
    let (mut before, mut is_first) = ("", false);
    for (n, line) in lines(text) {
        match line {
            DocumentLine::Text(line) => before = line.trim(),
            DocumentLine::Opens("console") => {
                is_first = true;
                if place(before).is_none_or(|place| !PLACES.contains(&place)) {
                    let places = PLACES.join(", ");
                    findings.push(format!("{path}:{n}: the line before a block of commands says where it runs, as <!-- runs: cluster -->; there are {places}"));
                }
            }
            DocumentLine::Code("console", line) => {
                if std::mem::take(&mut is_first) && !line.starts_with("$ ") {
                    findings.push(format!("{path}:{n}: a block of commands begins with one: `$ command`"));
                }
            }
            DocumentLine::Closes => before = "",
            DocumentLine::Opens(_) | DocumentLine::Code(..) => {}
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> usize {
        unmarked(&[("README.md", text)].into_iter().collect()).len()
    }

    #[test]
    fn a_block_without_mark_or_with_an_unknown_one_is_named() {
        assert_eq!(found("text\n```console\n$ ls\n```"), 1);
        assert_eq!(found("<!-- runs: moon -->\n```console\n$ ls\n```"), 1);
        assert_eq!(found("<!-- runs: shell -->\n```console\n$ ls\n```\n```console\n$ ls\n```"), 1);
    }

    #[test]
    fn a_block_that_begins_with_output_is_named() {
        assert_eq!(found("<!-- runs: shell -->\n```console\noutput\n```"), 1);
    }

    #[test]
    fn marked_blocks_and_other_languages_are_right() {
        assert_eq!(found("<!-- runs: shell -->\n```console\n$ ls\n...\n```\n```yaml\na: 1\n```"), 0);
    }

    #[test]
    fn examples_have_tests_of_their_own() {
        let documents = [("examples/a/README.md", "```console\n$ ls\n```")].into_iter().collect();
        assert_eq!(unmarked(&documents), [""; 0]);
    }
}
