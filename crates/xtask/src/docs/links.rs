//! Whether each relative link of the documents leads to a file, and each anchor to a heading.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use super::documents::{DocumentLine, Documents, lines};

/// Links that lead nowhere.
pub(super) fn dead(root: &Path, documents: &Documents) -> Vec<String> {
    let mut findings = Vec::new();
    for (path, text) in documents.iter() {
        for (n, target) in targets(text) {
            if let Some(why) = fault(root, documents, path, target) {
                findings.push(format!("{path}:{n}: {target}: {why}"));
            }
        }
    }
    findings
}

/// Documents of `docs/` that no other document links to: a reader would not find them.
pub(super) fn orphans(documents: &Documents) -> Vec<String> {
    let links = |(from, text)| targets(text).into_iter().map(move |(_, target)| (from, target));
    let linked: BTreeSet<String> = documents
        .iter()
        .flat_map(links)
        .map(|(from, target)| (from, resolved(from, target.split('#').next().unwrap_or_default())))
        .filter(|(from, to)| from != to)
        .map(|(_, to)| to)
        .collect();
    let lost = documents.iter().filter(|(path, _)| path.starts_with("docs/") && !linked.contains(*path));
    lost.map(|(path, _)| format!("{path}: no document links to it")).collect()
}

fn fault(root: &Path, documents: &Documents, from: &str, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let path = if file.is_empty() { from.to_owned() } else { resolved(from, file) };
    if !file.is_empty() && !root.join(&path).exists() {
        return Some("there is no such file".to_owned());
    }
    let anchor = anchor?;
    let Some(text) = documents.text(&path) else {
        return Some("an anchor needs one of the documents".to_owned());
    };
    let is_there = anchors(text).iter().any(|known| known == anchor);
    (!is_there).then(|| format!("{path} has no such heading"))
}

/// The path from the root that a relative path means in a document.
fn resolved(from: &str, target: &str) -> String {
    let mut path = PathBuf::from(from);
    path.pop();
    for part in Path::new(target).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}

/// The targets of `[text](target)`, with their lines; code is no text.
fn targets(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (n, line) in lines(text) {
        let DocumentLine::Text(line) = line else { continue };
        let mut rest = line;
        while let Some(start) = rest.find("](") {
            let is_code = rest[..start].matches('`').count() % 2 == 1;
            let after = &rest[start + 2..];
            let Some(end) = after.find(')') else { break };
            if !is_code {
                found.push((n, after[..end].trim()));
            }
            rest = &after[end + 1..];
        }
    }
    found
}

/// The anchors of a document's headings, as hosts of Git make them.
fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let headings = lines(text).filter_map(|(_, line)| match line {
        DocumentLine::Text(line) if line.starts_with('#') => Some(line.trim_start_matches('#').trim()),
        DocumentLine::Text(_) | DocumentLine::Opens(_) | DocumentLine::Code(..) | DocumentLine::Closes => None,
    });
    let mut found = Vec::new();
    for heading in headings {
        let slug = slug(heading);
        let n = seen.entry(slug.clone()).or_default();
        found.push(if *n == 0 { slug } else { format!("{slug}-{n}") });
        *n += 1;
    }
    found
}

/// Lower case; spaces become dashes; of other characters letters, digits, `-` and `_` stay.
pub(super) fn slug(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => c.to_lowercase().next(),
        _ => None,
    };
    heading.chars().filter_map(kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(readme: &str) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("LICENSE"), "").unwrap();
        std::fs::write(root.path().join("docs/a.md"), "").unwrap();
        let documents: Documents =
            [("docs/b.md", readme), ("docs/a.md", "# One & two\n## Same\n## Same\n")].into_iter().collect();
        dead(root.path(), &documents)
    }

    #[test]
    fn a_dead_link_is_named_with_its_line() {
        assert_eq!(found("\n[x](c.md)"), ["docs/b.md:2: c.md: there is no such file"]);
    }

    #[test]
    fn an_anchor_without_heading_is_named() {
        assert_eq!(found("[x](a.md#three)"), ["docs/b.md:1: a.md#three: docs/a.md has no such heading"]);
        assert_eq!(found("[x](#three)"), ["docs/b.md:1: #three: docs/b.md has no such heading"]);
        assert_eq!(found("[x](../LICENSE#a)"), ["docs/b.md:1: ../LICENSE#a: an anchor needs one of the documents"]);
    }

    #[test]
    fn what_leads_somewhere_is_right() {
        let text = "# Here\n[a](a.md#one--two) [b](a.md#same-1) [c](../LICENSE) [d](#here) [e](https://example.org/x) [f](../docs)";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn a_document_that_nothing_links_to_is_named() {
        let all = [("README.md", "[a](docs/a.md#x)"), ("docs/a.md", "[me](a.md) [b](sub/b.md)"), ("docs/sub/b.md", "")];
        let documents: Documents = all.into_iter().chain([("docs/c.md", "[me](#c) [me](c.md)")]).collect();
        assert_eq!(orphans(&documents), ["docs/c.md: no document links to it"]);
    }

    #[test]
    fn code_holds_no_links() {
        assert_eq!(found("```\n[x](c.md)\n```\nand `[x](c.md)`"), [""; 0]);
    }
}
