//! The files that the rules look at.

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::fault::Fault;

/// Where program text lies.
const CODE: &[&str] = &["src", "crates", "tests", "examples"];
/// Where documents lie, apart from the root.
const DOCUMENTS: &[&str] = &["docs", "examples", "charts"];

/// The files of the checkout.
#[derive(Default)]
pub(crate) struct Tree {
    /// Rust.
    pub(crate) code: Vec<CodeFile>,
    /// Markdown.
    pub(super) documents: Vec<TextFile>,
}

/// A file of text.
#[derive(Debug)]
pub(super) struct TextFile {
    /// From the root of the checkout.
    pub(super) path: PathBuf,
    /// Its content.
    pub(super) text: String,
}

/// A file of Rust.
pub(crate) struct CodeFile {
    /// As it is written.
    pub(super) file: TextFile,
    /// As the compiler understands it.
    pub(super) syntax: syn::File,
    /// Its words and marks.
    pub(super) tokens: TokenStream,
    /// The lines of items that only tests are compiled with.
    test_lines: Vec<RangeInclusive<usize>>,
}

impl Tree {
    /// Reads a checkout.
    ///
    /// # Errors
    /// Names a file that cannot be read or parsed.
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let mut code = Vec::new();
        for folder in CODE {
            find(&root.join(folder), "rs", Depth::All, &mut code)?;
        }
        let mut documents = Vec::new();
        find(root, "md", Depth::One, &mut documents)?;
        for folder in DOCUMENTS {
            find(&root.join(folder), "md", Depth::All, &mut documents)?;
        }
        Ok(Self {
            code: code.iter().map(|path| CodeFile::read(root, path)).collect::<Result<_>>()?,
            documents: documents.iter().map(|path| TextFile::read(root, path)).collect::<Result<_>>()?,
        })
    }
}

impl TextFile {
    fn read(root: &Path, path: &Path) -> Result<Self> {
        let shown = path.strip_prefix(root).unwrap_or(path).to_path_buf();
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", shown.display()))?;
        Ok(Self { path: shown, text })
    }

    /// Says that a line of this file breaks a rule.
    pub(super) fn fault(&self, line: usize, reason: impl Into<String>, remedy: impl Into<String>) -> Fault {
        Fault { file: self.path.clone(), line, reason: reason.into(), remedy: remedy.into() }
    }
}

impl CodeFile {
    fn read(root: &Path, path: &Path) -> Result<Self> {
        Self::parse(TextFile::read(root, path)?)
    }

    pub(super) fn parse(file: TextFile) -> Result<Self> {
        let context = || format!("parsing {}", file.path.display());
        let syntax = syn::parse_file(&file.text).with_context(context)?;
        let tokens: TokenStream = file.text.parse().map_err(|error| anyhow!("{error}")).with_context(context)?;
        let mut test_lines = Vec::new();
        find_test_items(tokens.clone(), &mut test_lines);
        Ok(Self { file, syntax, tokens, test_lines })
    }

    /// Where it lies, from the root of the checkout.
    pub(crate) fn path(&self) -> &Path {
        &self.file.path
    }

    /// Its content.
    pub(crate) fn text(&self) -> &str {
        &self.file.text
    }

    /// The folder of the package that it belongs to.
    pub(super) fn package(&self) -> PathBuf {
        self.file.path.iter().take_while(|part| *part != "src").collect()
    }

    /// Says whether all of it is there for tests: `tests.rs`, or below a folder `tests` or `benches`.
    pub(super) fn is_for_tests(&self) -> bool {
        let path = &self.file.path;
        path.file_name().is_some_and(|name| name == "tests.rs")
            || path.iter().any(|part| part == "tests" || part == "benches")
    }

    /// Says whether a line is there for tests.
    pub(crate) fn is_test_line(&self, line: usize) -> bool {
        self.is_for_tests() || self.test_lines.iter().any(|lines| lines.contains(&line))
    }
}

/// Finds what follows each `#[cfg(test)]`, up to the end of its braces or its semicolon.
fn find_test_items(tokens: TokenStream, found: &mut Vec<RangeInclusive<usize>>) {
    let mut tokens = tokens.into_iter().peekable();
    let mut first_line = None;
    while let Some(token) = tokens.next() {
        let is_end = match &token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => {
                if tokens.peek().is_some_and(|next| next.to_string().replace(' ', "") == "[cfg(test)]") {
                    first_line = first_line.or(Some(mark.span().start().line));
                }
                false
            }
            TokenTree::Punct(mark) => mark.as_char() == ';',
            TokenTree::Group(group) => {
                if first_line.is_none() {
                    find_test_items(group.stream(), found);
                }
                group.delimiter() == Delimiter::Brace
            }
            TokenTree::Ident(_) | TokenTree::Literal(_) => false,
        };
        if is_end && let Some(first) = first_line.take() {
            found.push(first..=token.span().end().line);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    One,
    All,
}

fn find(folder: &Path, extension: &str, depth: Depth, files: &mut Vec<PathBuf>) -> Result<()> {
    if !folder.is_dir() {
        return Ok(());
    }
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>())
        .with_context(|| format!("reading {}", folder.display()))?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            if depth == Depth::All && !path.ends_with("target") {
                find(&path, extension, depth, files)?;
            }
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A tree of these files of Rust.
    pub(crate) fn tree_of(files: &[(&str, &str)]) -> Tree {
        let file = |(path, text): &(&str, &str)| TextFile { path: path.into(), text: (*text).to_owned() };
        Tree { code: files.iter().map(|entry| CodeFile::parse(file(entry)).unwrap()).collect(), documents: Vec::new() }
    }

    /// Where and why a rule is broken, without the remedies.
    pub(in crate::tidy) fn reasons(faults: &[Fault]) -> Vec<String> {
        faults.iter().map(|fault| format!("{}:{}: {}", fault.file.display(), fault.line, fault.reason)).collect()
    }

    #[test]
    fn the_lines_of_items_for_tests_are_known() {
        let text = "fn f() {}\n#[cfg(test)]\n#[allow(dead_code)]\nuse a::{b,\nc};\nfn g() {\n  #[cfg(test)]\n  fn h() {\n  }\n}\n\n#[cfg(test)]\nmod tests {\n}\nfn i() {}\n";
        let tree = tree_of(&[("src/a.rs", text), ("src/tests.rs", "fn f() {}\n"), ("tests/a.rs", "fn f() {}\n")]);
        let lines = |index: usize| {
            (1..=tree.code[index].file.text.lines().count())
                .filter(|&line| tree.code[index].is_test_line(line))
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(0), [2, 3, 4, 5, 7, 8, 9, 12, 13, 14]);
        assert_eq!((lines(1), lines(2)), (vec![1], vec![1]));
    }

    #[test]
    fn code_and_documents_are_found_and_what_is_built_is_not() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("README.md", "#"),
            ("target/x.md", "#"),
            ("docs/a/b.md", "#"),
            ("crates/a/src/lib.rs", "//! A."),
            ("examples/e/target/x.rs", "}"),
        ] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let tree = Tree::read(root.path()).unwrap();
        let code = tree.code.iter().map(|code| &code.file);
        let paths: Vec<_> = code.chain(&tree.documents).map(|file| file.path.display().to_string()).collect();
        assert_eq!(paths, ["crates/a/src/lib.rs", "README.md", "docs/a/b.md"]);
    }
}
