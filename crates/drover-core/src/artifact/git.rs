//! Sources of git: a repository that is asked over http or https, and what of it is fetched.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::source_error::SourceError;
use super::web_address::{WebAddress, decoded, take_query};

/// Why git is not fetched by ssh, and what to do.
pub(super) const SSH_INSTEAD: &str =
    "a fetch starts no program and has no key; take git::https:// with the header Authorization in getterHeaders";
/// Hosts whose bare names mean git.
const FORGES: &[&str] = &["github.com/", "gitlab.com/", "bitbucket.org/"];
/// Longest name of a reference.
const MOST_REFERENCE: usize = 255;

/// What is fetched of a repository: a folder, or a file, of one commit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GitTree {
    /// A branch, a tag, the full name of a reference, or the 40 digits of a commit; none: where `HEAD` is.
    pub reference: Option<String>,
    /// Its path in the repository, without a slash at either end; empty: all of it.
    pub folder: String,
}

/// Whether it begins with a host whose bare name means git.
pub(super) fn is_forge(source: &str) -> bool {
    FORGES.iter().any(|host| source.starts_with(host))
}

impl GitTree {
    /// Reads what stands behind `git::`, or the bare name of a repository of a forge; takes the options that are for
    /// it. Returns the repository's address too. `is_file`: one file is wanted.
    ///
    /// # Errors
    /// What is wrong, with the remedy.
    pub(super) fn read(
        source: &str,
        options: &mut BTreeMap<String, String>,
        is_file: bool,
    ) -> Result<(String, Self), SourceError> {
        let shown = || source.split('?').next().unwrap_or_default().chars().take(128).collect::<String>();
        let wrong = || SourceError::Repository(shown());
        let whole = source.split('#').next().unwrap_or_default();
        let (place, query) = whole.split_once('?').unwrap_or((whole, ""));
        take_query(query, options, |_| true);
        if options.contains_key("sshkey") {
            return Err(SourceError::Option("sshkey".to_owned(), SSH_INSTEAD));
        }
        let (scheme, rest) = match place.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            None if is_forge(place) => ("https".to_owned(), place),
            // As in git@example.com:org/app.git.
            None if place.split('/').next().is_some_and(|host| host.contains(['@', ':'])) => ("ssh".to_owned(), place),
            None => return Err(wrong()),
        };
        match scheme.as_str() {
            "http" | "https" => {}
            "ssh" => return Err(SourceError::Ssh(shown(), SSH_INSTEAD)),
            _ => return Err(wrong()),
        }
        let (repository, folder) = rest.split_once("//").unwrap_or((rest, ""));
        let mut repository = repository.trim_end_matches('/').to_owned();
        if !place.contains("://") {
            if repository.split('/').filter(|part| !part.is_empty()).count() != 3 {
                return Err(wrong());
            }
            repository = format!("{}.git", repository.strip_suffix(".git").unwrap_or(&repository));
        }
        let url = format!("{scheme}://{repository}");
        if WebAddress::parse(&url)?.path == "/" {
            return Err(wrong());
        }
        let folder = decoded(folder.trim_matches('/'));
        if folder.split('/').any(|part| part == ".." || part == ".") || folder.contains('\0') {
            return Err(wrong());
        }
        if is_file && folder.is_empty() {
            return Err(SourceError::NoFile);
        }
        let reference = options.remove("ref").filter(|name| !name.is_empty());
        if let Some(name) = reference.as_ref().filter(|name| !is_reference(name)) {
            return Err(SourceError::GitReference(name.chars().take(128).collect()));
        }
        if let Some(depth) = options.remove("depth").filter(|depth| !depth.parse::<u32>().is_ok_and(|depth| depth > 0))
        {
            return Err(SourceError::Depth(depth.chars().take(32).collect()));
        }
        Ok((url, Self { reference, folder }))
    }

    /// The commit that is asked for by its digits; none: by a name.
    pub fn commit(&self) -> Option<&str> {
        self.reference.as_deref().filter(|name| name.len() == 40 && name.bytes().all(|byte| byte.is_ascii_hexdigit()))
    }
}

/// Whether it may be a name, by git-check-ref-format(1).
fn is_reference(name: &str) -> bool {
    let is_allowed = |char: char| char > ' ' && char != '\x7f' && !"~^:?*[\\".contains(char);
    name.len() <= MOST_REFERENCE
        && name.chars().all(is_allowed)
        && !name.starts_with(['-', '/'])
        && !name.ends_with(['/', '.'])
        && name != "@"
        && !name.split('/').any(|part| part.starts_with('.') || part.strip_suffix(".lock").is_some())
        && !["..", "//", "@{"].iter().any(|wrong| name.contains(wrong))
}

#[cfg(test)]
mod tests {
    mod names;

    use super::*;

    fn read(source: &str) -> Result<(String, GitTree), String> {
        GitTree::read(source, &mut BTreeMap::new(), false).map_err(|error| error.to_string())
    }

    #[test]
    fn a_source_names_a_repository_a_folder_and_a_reference() {
        for (source, url, folder, reference) in [
            ("https://a/b.git", "https://a/b.git", "", ""),
            ("http://a:8080/b/?ref=v1&depth=1", "http://a:8080/b", "", "v1"),
            ("https://a/b.git//x%20y/z/?ref=feature/x", "https://a/b.git", "x y/z", "feature/x"),
            ("github.com/org/app", "https://github.com/org/app.git", "", ""),
            ("github.com/org/app.git//sub?ref=main", "https://github.com/org/app.git", "sub", "main"),
        ] {
            let (found, tree) = read(source).expect(source);
            assert_eq!(
                (found.as_str(), tree.folder.as_str(), tree.reference.as_deref().unwrap_or_default()),
                (url, folder, reference),
                "{source}"
            );
        }
        let by_digits = read(&format!("https://a/b?ref={}", "0a".repeat(20))).expect("a commit").1;
        assert_eq!(by_digits.commit().map(str::len), Some(40));
        assert_eq!(read("https://a/b?ref=0a0a0a0").expect("a name").1.commit(), None);
    }

    #[test]
    fn what_cannot_be_fetched_is_refused_with_the_remedy() {
        for (source, says) in [
            ("git@a:b.git", "git::https://"),
            ("ssh://git@a/b.git", "Authorization"),
            ("https://a/b?sshkey=x", "getterOptions.sshkey"),
            ("https://u:p@a/b", "Authorization"),
            ("github.com/org", "github.com/org/app"),
            ("github.com/org/app/sub", "//folder"),
            ("https://a/", "no repository"),
            ("https://a/b//../c", "no repository"),
            ("file:///etc", "no repository"),
            ("a/b", "no repository"),
            ("https://a/b?ref=a..b", "getterOptions.ref"),
            ("https://a/b?ref=-x", "getterOptions.ref"),
            ("https://a/b?ref=a%20b", "getterOptions.ref"),
            ("https://a/b?depth=0", "getterOptions.depth"),
        ] {
            let error = read(source).expect_err(source);
            assert!(error.contains(says), "{source}: {error}");
        }
        let error = GitTree::read("https://a/b", &mut BTreeMap::new(), true).expect_err("no path");
        assert_eq!(error, SourceError::NoFile);
    }
}
