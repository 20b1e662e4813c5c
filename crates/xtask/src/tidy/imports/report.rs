//! Puts the arrows of all crates together into one figure, and into a verdict.

use std::path::Path;

use anyhow::{Result, bail, ensure};
use drover_testkit::workspace;
use serde::Serialize;

use super::arrows::{self, Arrows};
use super::circles::{self, Circle};
use super::order;
use super::sources::{self, FileId, Sources};

/// What is known about the imports of the workspace.
#[derive(Debug, Clone, Serialize)]
pub struct ImportsFigure {
    /// Every library and program.
    pub crates: Vec<CrateFigure>,
    /// Dependencies between crates that must not be.
    pub against_order: Vec<String>,
}

/// One library or program.
#[derive(Debug, Clone, Serialize)]
pub struct CrateFigure {
    /// Its name.
    pub name: String,
    /// How many files it has.
    pub n_files: usize,
    /// How many arrows lead from one of them to another.
    pub n_arrows: usize,
    /// Files that use one another in a circle.
    pub circles: Vec<CircleFigure>,
}

/// Files that all reach one another.
#[derive(Debug, Clone, Serialize)]
pub struct CircleFigure {
    /// All of them.
    pub files: Vec<String>,
    /// One shortest way around.
    pub shortest: Vec<ArrowFigure>,
}

/// From a file to another.
#[derive(Debug, Clone, Serialize)]
pub struct ArrowFigure {
    /// Who uses.
    pub from: String,
    /// Who is used.
    pub to: String,
    /// The names that are used.
    pub names: Vec<String>,
}

/// Fails when files use one another in a circle, or crates against their order.
///
/// # Errors
/// Names each circle by one shortest way around, and each dependency.
pub fn check() -> Result<()> {
    let figure = ImportsFigure::of_workspace()?;
    let faults = figure.faults();
    ensure!(
        faults.is_empty(),
        "{}\nto break a circle, move what both files need into a file of its own, or hand it over as an argument",
        faults.join("\n")
    );
    Ok(())
}

impl ImportsFigure {
    /// Reads the workspace.
    ///
    /// # Errors
    /// When cargo does not answer, or a file cannot be parsed.
    pub fn of_workspace() -> Result<Self> {
        let root = workspace::root();
        let packages = order::packages()?;
        let mut against_order = order::against_order(&packages);
        let (crates, companions) = std::thread::scope(|scope| {
            let companions = scope.spawn(|| order::unwanted_companions(&packages));
            let targets = packages.iter().flat_map(|package| &package.targets);
            let built = targets.filter(|target| target.kind.iter().any(|kind| kind == "lib" || kind == "bin"));
            let crates: Result<Vec<CrateFigure>> =
                built.map(|target| crate_figure(&root, &target.name, &target.src_path)).collect();
            (crates, companions.join())
        });
        let Ok(companions) = companions else { bail!("the reader of cargo's trees has ended") };
        against_order.extend(companions?);
        Ok(Self { crates: crates?, against_order })
    }

    /// One text for each circle and each dependency that must not be.
    pub fn faults(&self) -> Vec<String> {
        let circles = self.crates.iter().flat_map(|part| part.circles.iter().map(move |circle| (&part.name, circle)));
        let circles = circles.map(|(name, circle)| {
            let arrows = circle
                .shortest
                .iter()
                .map(|arrow| format!("    {} uses {} of {}", arrow.from, arrow.names.join(", "), arrow.to));
            let others = circle.files.iter().filter(|file| circle.shortest.iter().all(|arrow| arrow.from != **file));
            let others: Vec<&str> = others.map(String::as_str).collect();
            let others = if others.is_empty() { String::new() } else { format!("\n    with {}", others.join(", ")) };
            let arrows: Vec<String> = arrows.collect();
            format!("a circle of {} files in {name}:\n{}{others}", circle.files.len(), arrows.join("\n"))
        });
        circles.chain(self.against_order.iter().cloned()).collect()
    }
}

fn crate_figure(root: &Path, name: &str, root_file: &Path) -> Result<CrateFigure> {
    let sources = sources::read(root, root_file)?;
    let arrows = arrows::all(&sources);
    let circles = circles::all(&arrows);
    Ok(CrateFigure {
        name: name.to_owned(),
        n_files: sources.files.len(),
        n_arrows: arrows.len(),
        circles: circles.iter().map(|circle| circle_figure(&sources, &arrows, circle)).collect(),
    })
}

fn circle_figure(sources: &Sources, arrows: &Arrows, circle: &Circle) -> CircleFigure {
    let shown = |file: FileId| sources.files[file].display().to_string();
    let nexts = circle.shortest.iter().cycle().skip(1);
    let shortest = circle.shortest.iter().zip(nexts).map(|(&from, &to)| ArrowFigure {
        from: shown(from),
        to: shown(to),
        names: arrows.get(&(from, to)).into_iter().flatten().cloned().collect(),
    });
    CircleFigure { files: circle.files.iter().copied().map(shown).collect(), shortest: shortest.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// The faults of a crate of these files.
    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let figure = crate_figure(root.path(), "x", &root.path().join("lib.rs")).unwrap();
        ImportsFigure { crates: vec![figure], against_order: Vec::new() }.faults()
    }

    fn n_circles(files: &[(&str, &str)]) -> usize {
        faults(files).len()
    }

    #[test]
    fn a_circle_is_shown_with_the_names_that_make_it() {
        let found = faults(&[
            ("lib.rs", "mod a; mod b; mod c;"),
            ("a.rs", "use super::b::{One, two}; pub struct A(One); fn f() { two() }"),
            ("b.rs", "pub struct One; pub fn two() { crate::c::three() }"),
            ("c.rs", "pub fn three() -> crate::a::A { loop {} }"),
        ]);
        assert_eq!(
            found,
            [
                "a circle of 3 files in x:\n    a.rs uses One, two of b.rs\n    b.rs uses three of c.rs\n    c.rs uses A of a.rs"
            ]
        );
    }

    #[test]
    fn a_folder_of_re_exports_is_looked_through() {
        let files = [
            ("lib.rs", "pub mod place;"),
            ("place/mod.rs", "//! Places.\nmod fit;\nmod field;\npub use fit::fit;\npub use field::*;"),
            ("place/fit.rs", "use super::Field; pub fn fit(_: Field) {}"),
            ("place/field.rs", "pub struct Field;"),
        ];
        assert_eq!(n_circles(&files), 0);
        let mut files = files;
        files[3].1 = "pub struct Field; fn f() { super::fit(Field) }";
        assert_eq!(
            faults(&files),
            [
                "a circle of 2 files in x:\n    place/fit.rs uses Field of place/field.rs\n    place/field.rs uses fit of place/fit.rs"
            ]
        );
    }

    #[test]
    fn code_in_a_folders_own_file_is_a_file_as_any_other() {
        assert_eq!(
            n_circles(&[
                ("lib.rs", "mod place;"),
                ("place/mod.rs", "mod fit; pub struct Node; fn f() { fit::fit() }"),
                ("place/fit.rs", "use super::Node; pub fn fit() {}"),
            ]),
            1
        );
    }

    #[test]
    fn tests_may_use_whatever_they_like() {
        assert_eq!(
            n_circles(&[
                ("lib.rs", "mod a; mod b; #[cfg(test)] mod tests;"),
                (
                    "a.rs",
                    "pub struct A; #[cfg(test)] mod tests { use crate::b::B; } #[cfg(test)] fn f() { crate::b::B; }"
                ),
                ("b.rs", "pub struct B(crate::a::A);"),
            ]),
            0
        );
    }

    #[test]
    fn names_in_macros_attributes_and_functions_count() {
        for use_of_b in [
            "fn f() { println!(\"{}\", crate::b::X); }",
            "fn f() { vec![super::b::f(1)]; }",
            "#[serde(with = \"crate::b::f\")] struct S;",
            "fn f() { use crate::b::X; }",
            "fn f() { counted!(1) }",
            "impl crate::b::T for A {}",
            "fn f(x: &dyn crate::b::T) {}",
            "fn f() { E::One }\nuse crate::b::*;",
        ] {
            let text = format!("{use_of_b}\npub struct A;");
            let b = "macro_rules! counted { () => {} }\nuse crate::a::A; pub enum E { One } pub trait T {}\npub const X: u8 = 1; pub fn f() {}";
            assert_eq!(n_circles(&[("lib.rs", "mod b; mod a;"), ("a.rs", &text), ("b.rs", b)]), 1, "{use_of_b}");
        }
    }

    #[test]
    fn names_of_other_crates_and_local_ones_do_not() {
        let a =
            "use std::fmt; pub struct A; fn f(b: u8) { let x = b; fmt::write(x.b); println!(\"{}\", self.b::<u8>()); }";
        assert_eq!(
            n_circles(&[("lib.rs", "mod a; mod b;"), ("a.rs", a), ("b.rs", "use crate::a::A; pub fn b() {}")]),
            0
        );
    }
}
