//! Every field of every kind's schema has one line in `tests/fields.txt`, and the line is true as far as a program can
//! tell. So no field comes, stays or goes without somebody saying what it does.
//!
//! A line is `KIND PATH acted FILE TEST [WITNESS]`, `KIND PATH refused RULE` or `KIND PATH deprecated`. A path that
//! ends in `.*` is a block with everything in it. Of a field that is acted on it is checked that `FILE`, without its
//! tests and comments, names the field, and that `TEST` is a test whose text does too; of a block, that each of its
//! fields is named in `FILE`, and one of them in `TEST`. Where a test shows a field by another word than its name,
//! `WITNESS` is the file that has the word, and the word: `tests/golden/x.txt:word`. Of a refused field it is checked
//! that the rule is there and that the object that the API server refuses in the rule's golden has the field. Of a
//! deprecated one, that its description says so and, where people write it, that the policy that warns of it names it.
//!
//! Where no test shows a field yet, `TEST` is `-`; there are at most [`WITHOUT_TEST`] such lines.
//!
//! What it cannot see: code that names a field and does nothing with it. For that the tests stand that the lines name.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use drover_api::schema::rules::RULES;
use serde_json::Value;

/// Lines without a test: it only ever sinks.
const WITHOUT_TEST: usize = 13;

static ROOT: LazyLock<PathBuf> = LazyLock::new(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."));

/// A field of a schema.
#[derive(Clone, Debug)]
struct Field {
    path: String,
    description: String,
    is_leaf: bool,
}

#[derive(Debug)]
enum Claim {
    Acted { file: String, test: String, witness: Option<(String, String)> },
    Refused(String),
    Deprecated,
}

#[derive(Debug)]
struct Line {
    kind: String,
    path: String,
    claim: Claim,
}

impl Line {
    fn read(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (kind, path, claim) = match words.as_slice() {
            [kind, path, "acted", file, test, rest @ ..] => {
                let witness = match rest {
                    [] => None,
                    [witness] => witness.rsplit_once(':').map(|(shows, by)| (shows.to_owned(), by.to_owned())),
                    _ => return None,
                };
                (kind, path, Claim::Acted { file: (*file).to_owned(), test: (*test).to_owned(), witness })
            }
            [kind, path, "refused", rule] => (kind, path, Claim::Refused((*rule).to_owned())),
            [kind, path, "deprecated"] => (kind, path, Claim::Deprecated),
            _ => return None,
        };
        Some(Self { kind: (*kind).to_owned(), path: (*path).to_owned(), claim })
    }

    fn covers(&self, path: &str) -> bool {
        match self.path.strip_suffix(".*") {
            None => self.path == path,
            Some(block) => {
                path.strip_prefix(block).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{']))
            }
        }
    }

    fn block(&self) -> &str {
        self.path.strip_suffix(".*").unwrap_or(&self.path)
    }
}

fn walk(schema: &Value, path: &str, found: &mut Vec<Field>) {
    let below = |key: &str| schema[key]["properties"].as_object();
    let children =
        [(schema["properties"].as_object(), "."), (below("items"), "[]."), (below("additionalProperties"), "{}.")];
    if path.contains('.') {
        found.push(Field {
            path: path.to_owned(),
            description: schema["description"].as_str().unwrap_or_default().to_owned(),
            is_leaf: children.iter().all(|(fields, _)| fields.is_none()),
        });
    }
    for (fields, joint) in children {
        for (name, field) in fields.into_iter().flatten() {
            if path.is_empty() && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
                continue;
            }
            let path = if path.is_empty() { name.clone() } else { format!("{path}{joint}{name}") };
            walk(field, &path, found);
        }
    }
}

fn fields() -> BTreeMap<String, Vec<Field>> {
    drover_api::crds()
        .into_iter()
        .map(|crd| {
            let mut found = Vec::new();
            let definition = serde_json::to_value(&crd).unwrap();
            walk(&definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"], "", &mut found);
            (crd.spec.names.kind, found)
        })
        .collect()
}

/// The last part of a path.
fn name(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

/// `memoryMaxMB` as `memory_max_mb`.
fn snake(name: &str) -> String {
    let chars: Vec<char> = name.chars().collect();
    let mut snake = String::new();
    for (n, char) in chars.iter().enumerate() {
        let after_small = n > 0 && !chars[n - 1].is_uppercase();
        let before_small = n > 0 && chars.get(n + 1).is_some_and(char::is_ascii_lowercase);
        if char.is_uppercase() && (after_small || before_small) {
            snake.push('_');
        }
        snake.extend(char.to_lowercase());
    }
    snake
}

/// Whether a text has this word.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |char: char| char.is_ascii_alphanumeric() || char == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(is_part) && !text[at + word.len()..].starts_with(is_part))
}

/// Whether code reads or writes a field: by its name in Rust, or by its name in JSON.
fn is_named_in_code(code: &str, field: &str) -> bool {
    has_word(code, &snake(field)) || code.contains(&format!("\"{field}\""))
}

/// A file's code without its tests and comments.
fn production(text: &str) -> String {
    let text = text.split_once("#[cfg(test)]\nmod tests {").map_or(text, |(before, _)| before);
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    lines.map(|line| line.split_once(" // ").map_or(line, |(code, _)| code)).collect::<Vec<_>>().join("\n")
}

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok) {
        let path = entry.path();
        if path.is_dir() && !path.ends_with("target") {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
}

/// The text of every test of the tree but of this one, by its name.
fn tests() -> BTreeMap<String, String> {
    let mut files = Vec::new();
    for folder in ["crates", "src", "tests"] {
        rust_files(&ROOT.join(folder), &mut files);
    }
    let mut found: BTreeMap<String, String> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.ends_with("validate/tests/walk.rs")) {
        let text = std::fs::read_to_string(file).unwrap();
        let (mut current, mut is_next) = (None, false);
        for line in text.lines() {
            let code = line.trim_start();
            if code.starts_with("#[test]") || code.starts_with("#[tokio::test") {
                (current, is_next) = (None, true);
            } else if code.starts_with("#[") && !is_next {
                current = None;
            }
            let function = code.trim_start_matches("pub ").trim_start_matches("async ").strip_prefix("fn ");
            if let Some((name, _)) = function.and_then(|rest| rest.split_once('('))
                && is_next
            {
                (current, is_next) = (Some(name.to_owned()), false);
            }
            if let Some(name) = &current {
                let text = found.entry(name.clone()).or_default();
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    found
}

/// Whether a value has something at a path such as `spec.groups[].tasks[].env`.
fn has_value(value: &Value, path: &str) -> bool {
    let Some((part, rest)) = path.split_once('.').map(|(part, rest)| (part, Some(rest))).or(Some((path, None))) else {
        return false;
    };
    let (name, is_list) = part.strip_suffix("[]").map_or((part, false), |name| (name, true));
    let here = &value[name];
    let Some(rest) = rest else { return !here.is_null() };
    if is_list {
        here.as_array().into_iter().flatten().any(|item| has_value(item, rest))
    } else {
        has_value(here, rest)
    }
}

/// What the checks look things up in.
struct Tree {
    tests: BTreeMap<String, String>,
    policies: String,
}

impl Tree {
    fn faults(&self, line: &Line, covered: &[&Field]) -> Vec<String> {
        match &line.claim {
            Claim::Acted { file, test, witness } => self.acted(line, covered, (file, test, witness.as_ref())),
            Claim::Refused(rule) => Self::refused(line, rule).err().into_iter().collect(),
            Claim::Deprecated => self.deprecated(line, covered).err().into_iter().collect(),
        }
    }

    fn acted(
        &self,
        line: &Line,
        covered: &[&Field],
        (file, test, witness): (&str, &str, Option<&(String, String)>),
    ) -> Vec<String> {
        let Ok(source) = std::fs::read_to_string(ROOT.join(file)) else { return vec![format!("there is no {file}")] };
        let code = production(&source);
        let is_block = line.path.ends_with(".*");
        let wanted = covered.iter().filter(|field| !is_block || field.is_leaf).map(|field| name(&field.path));
        let mut faults: Vec<String> = wanted
            .filter(|field| !is_named_in_code(&code, field))
            .map(|field| format!("{file} does not name {field}"))
            .collect();
        if test == "-" {
            return faults;
        }
        let Some(body) = self.tests.get(test) else {
            faults.push(format!("there is no test {test}"));
            return faults;
        };
        let is_shown = match witness {
            Some((file, word)) => std::fs::read_to_string(ROOT.join(file))
                .is_ok_and(|text| text.contains(&word.replace('_', " ")) || has_word(&text, word)),
            None => covered
                .iter()
                .map(|field| name(&field.path))
                .any(|field| has_word(body, &snake(field)) || has_word(body, field)),
        };
        if !is_shown {
            faults.push(format!("test {test} does not name it"));
        }
        faults
    }

    fn refused(line: &Line, rule: &str) -> Result<(), String> {
        RULES.iter().find(|known| known.id == rule).ok_or_else(|| format!("there is no rule {rule}"))?;
        let golden = std::fs::read_to_string(ROOT.join(format!("tests/golden/schema/{rule}.json")));
        let golden = golden.map_err(|error| format!("the golden of {rule}: {error}"))?;
        let golden: Value = serde_json::from_str(&golden).map_err(|error| error.to_string())?;
        let has_it = golden["refused"]["kind"] == line.kind.as_str() && has_value(&golden["refused"], line.block());
        if has_it { Ok(()) } else { Err(format!("what {rule} refuses in its golden does not have it")) }
    }

    fn deprecated(&self, line: &Line, covered: &[&Field]) -> Result<(), String> {
        let top = covered.iter().find(|field| field.path == line.block()).ok_or("it is no field")?;
        if !top.description.starts_with("Deprecated") {
            return Err(format!("its description does not begin with Deprecated: {}", top.description));
        }
        let is_peoples = line.kind == "Job" && line.path.starts_with("spec.");
        if is_peoples && !has_word(&self.policies, name(line.block())) {
            return Err("the policy drover-old-fields does not warn of it".to_owned());
        }
        Ok(())
    }
}

#[test]
fn every_field_of_the_schema_is_acted_on_or_refused_by_name() {
    let read = |path: &str| std::fs::read_to_string(ROOT.join(path)).unwrap();
    let table = read("tests/fields.txt");
    let mut faults = Vec::new();
    let mut lines = Vec::new();
    for text in table.lines().filter(|text| !text.is_empty() && !text.starts_with('#')) {
        match Line::read(text) {
            Some(line) => lines.push(line),
            None => faults.push(format!("`{text}` is no line of the table")),
        }
    }
    let order: Vec<(&str, &str)> = lines.iter().map(|line| (line.kind.as_str(), line.path.as_str())).collect();
    if let Some(pair) = order.windows(2).find(|pair| pair[0] >= pair[1]) {
        faults.push(format!("{} {} is not after {} {}", pair[1].0, pair[1].1, pair[0].0, pair[0].1));
    }
    let all = fields();
    let tree = Tree { tests: tests(), policies: read("charts/drover/files/policies/jobs.yaml") };
    let mut used: BTreeSet<usize> = BTreeSet::new();
    for (kind, fields) in &all {
        for field in fields {
            let of: Vec<usize> =
                (0..lines.len()).filter(|n| lines[*n].kind == *kind && lines[*n].covers(&field.path)).collect();
            used.extend(&of);
            match of.as_slice() {
                [_] => {}
                [] => faults.push(format!("{kind} {} has no line: say what acts on it, or refuse it", field.path)),
                several => faults.push(format!("{kind} {} has {} lines; keep one", field.path, several.len())),
            }
        }
    }
    for (n, line) in lines.iter().enumerate() {
        if !used.contains(&n) {
            faults.push(format!("{} {} is no field of the schema; remove the line", line.kind, line.path));
            continue;
        }
        let covered: Vec<&Field> = all[&line.kind].iter().filter(|field| line.covers(&field.path)).collect();
        faults.extend(
            tree.faults(line, &covered).into_iter().map(|fault| format!("{} {}: {fault}", line.kind, line.path)),
        );
    }
    let is_untested = |line: &&Line| matches!(&line.claim, Claim::Acted { test, .. } if test == "-");
    let untested = lines.iter().filter(is_untested).count();
    if untested != WITHOUT_TEST {
        faults.push(format!(
            "{untested} lines have no test and {WITHOUT_TEST} are known; name tests, or lower the number"
        ));
    }
    assert!(faults.is_empty(), "{} faults in tests/fields.txt\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn a_line_that_is_not_true_is_found() {
    let tree = Tree { tests: tests(), policies: "maxClientDisconnect".to_owned() };
    let all = fields();
    let faults = |text: &str| {
        let line = Line::read(text).unwrap();
        let covered: Vec<&Field> = all[&line.kind].iter().filter(|field| line.covers(&field.path)).collect();
        tree.faults(&line, &covered)
    };
    let (file, test) = ("crates/drover-core/src/scheduler/apply.rs", "s_151_all_at_once_is_all_or_nothing");
    assert_eq!(faults(&format!("Job spec.allAtOnce acted {file} {test}")), [""; 0]);
    for (text, wanted) in [
        (format!("Job spec.allAtOnce acted crates/none.rs {test}"), "there is no crates/none.rs"),
        (format!("Job spec.allAtOnce acted crates/drover-core/src/gc.rs {test}"), "does not name allAtOnce"),
        (format!("Job spec.allAtOnce acted {file} no_such_test"), "there is no test no_such_test"),
        (
            format!("Job spec.allAtOnce acted {file} every_field_of_the_schema_is_acted_on_or_refused_by_name"),
            "there is no test",
        ),
        (format!("Job spec.allAtOnce acted {file} globs_match_any_text"), "does not name it"),
        (format!("Job spec.periodic.* acted crates/drover-core/src/periodic.rs {test}"), "does not name"),
        ("Job spec.groups[].services.* refused no-such-rule".to_owned(), "there is no rule"),
        ("Job spec.groups[].services[].meta refused task-service-unserved".to_owned(), "does not have it"),
        ("Job spec.priority deprecated".to_owned(), "does not begin with Deprecated"),
        ("Job spec.periodic.cron deprecated".to_owned(), "does not warn of it"),
    ] {
        let found = faults(&text);
        assert!(found.iter().any(|fault| fault.contains(wanted)), "{text}: {found:?}");
    }
    assert_eq!(snake("memoryMaxMB"), "memory_max_mb");
    assert_eq!(production("a // b\n// c\n#[cfg(test)]\nmod tests {\n d }"), "a");
}
