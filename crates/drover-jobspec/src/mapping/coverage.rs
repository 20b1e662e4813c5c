//! Every name of the tables, and every function, stands in a job file of `tests/job-files`: what a real API server and
//! a real node are given there leaves nothing out.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::table::{Shape, Table};
use super::tables::JOB;
use crate::document::{self, Block};
use crate::inputs::{Files, Inputs};
use crate::source::Source;

/// All functions of job files, also those that are refused.
const FUNCTIONS: &str = "abs abspath base64decode base64encode basename bcrypt can ceil chomp chunklist cidrhost \
    cidrnetmask cidrsubnet cidrsubnets coalesce coalescelist compact concat contains convert csvdecode dirname \
    distinct element endswith file filebase64 fileexists fileset flatten floor format formatdate formatlist indent \
    index int join jsondecode jsonencode keys length log lookup lower max md5 merge min parseint pathexpand pow range \
    regex regex_replace regexall replace reverse reverselist rsadecrypt sethaselement setintersection setproduct \
    setsubtract setunion sha1 sha256 sha512 signum slice sort split startswith strcontains strlen strrev substr sum \
    timeadd title trim trimprefix trimspace trimsuffix try upper urlencode uuidv4 uuidv5 values yamldecode yamlencode \
    zipmap";

/// A block's kind and a name in it. `template` is one thing, wherever a task stands.
type Place = (String, &'static str);

/// Files whose content does not matter here.
#[derive(Debug)]
struct Anything;

impl Files for Anything {
    fn read(&self, _path: &str) -> Result<Vec<u8>, String> {
        Ok(b"text".to_vec())
    }

    fn matching(&self, _folder: &str, _pattern: &str) -> Result<Vec<String>, String> {
        Ok(vec!["a".to_owned()])
    }
}

fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/job-files");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let all = all.filter(|path| path.extension().is_some_and(|kind| kind == "hcl"));
    all.map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// All that a table may hold.
fn known(kind: &str, table: &Table, all: &mut BTreeSet<Place>) {
    // What the label says is no attribute.
    for row in table.rows.iter().filter(|row| row.is_in_hcl() && table.label != Some(row.field)) {
        let is_new = all.insert((kind.to_owned(), row.hcl));
        if let (true, Shape::Block(inner) | Shape::Blocks(inner)) = (is_new, row.shape) {
            known(row.hcl, inner, all);
        }
    }
}

/// What of it a block holds.
fn used(block: &Block, table: &Table, all: &mut BTreeSet<Place>) {
    let names = block.attributes.iter().map(|attribute| &attribute.name);
    for name in names.chain(block.blocks.iter().map(|inner| &inner.kind)) {
        all.extend(table.rows.iter().filter(|row| row.hcl == name).map(|row| (block.kind.clone(), row.hcl)));
    }
    for inner in &block.blocks {
        let row = table.rows.iter().find(|row| row.hcl == inner.kind);
        if let Some(Shape::Block(table) | Shape::Blocks(table)) = row.map(|row| row.shape) {
            used(inner, table, all);
        }
    }
}

#[test]
fn every_name_of_a_job_file_stands_in_one() {
    let (mut wanted, mut found) = (BTreeSet::new(), BTreeSet::new());
    known("job", &JOB, &mut wanted);
    for (path, text) in files() {
        // What cannot be read at all is refused for its functions, and holds no name that others lack.
        let name = path.display().to_string();
        let inputs = Inputs { readable: Some(&Anything), ..Inputs::default() };
        let Ok(file) = document::read(Source::new(&name, &text), &inputs) else { continue };
        for job in file.blocks.iter().filter(|block| block.kind == "job") {
            used(job, &JOB, &mut found);
        }
    }
    let missing: Vec<String> = wanted.difference(&found).map(|(kind, name)| format!("{kind}.{name}")).collect();
    assert!(missing.is_empty(), "no job file has {}", missing.join(", "));
}

#[test]
fn every_function_is_called_in_a_job_file() {
    let texts: String = files().into_iter().map(|(_, text)| text).collect();
    let is_called = |name: &&str| {
        let call = format!("{name}(");
        let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        texts.match_indices(&call).any(|(at, _)| !texts[..at].ends_with(is_word))
    };
    let missing: Vec<&str> = FUNCTIONS.split_whitespace().filter(|name| !is_called(name)).collect();
    assert!(missing.is_empty(), "no job file calls {}", missing.join(", "));
}
