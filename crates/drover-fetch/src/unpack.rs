//! What becomes of a download: a file, or the files and directories of an archive. Links, devices and rights beyond
//! those of a file's user are refused by name.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use drover_core::artifact::ArchiveForm;
use gix_hash::ObjectId;
use tar::EntryType;

use crate::budget::{Budget, Metered};
use crate::order::FetchLimits;
use crate::pack::{Commit, Item, Pack};
use crate::packed::unpacked;
use crate::part::{Form, Part};

/// Most directories one in another.
const MAX_DEPTH: usize = 64;
/// Bits that give a program the rights of its owner, or of its group.
const SET_ID: u32 = 0o6000;

/// Makes `result` out of what was downloaded, a later part over an earlier one.
pub(crate) fn unpack(parts: &[Part], result: &Path, limits: FetchLimits) -> Result<(), String> {
    let mut tree = Tree { root: result, budget: Budget::new(limits) };
    DirBuilder::new()
        .mode(0o755)
        .create(result)
        .map_err(|error| format!("{} cannot be made: {error}", result.display()))?;
    parts.iter().try_for_each(|part| tree.part(part, limits))
}

/// The files that are made, and what may still be.
struct Tree<'a> {
    root: &'a Path,
    budget: Budget,
}

impl Tree<'_> {
    fn part(&mut self, part: &Part, limits: FetchLimits) -> Result<(), String> {
        let form = match &part.form {
            Form::Archive(form) => *form,
            Form::Pack(commit) => return self.commit(&mut Pack::open(&part.file)?, commit, &part.name),
        };
        let file = File::open(&part.file).map_err(|error| format!("the download cannot be read: {error}"))?;
        match form {
            ArchiveForm::File(packed) => {
                let path = inner_path(&part.name)?;
                self.entry(&part.name, &path, 0o644, &mut unpacked(file, packed))
            }
            ArchiveForm::Tar(packed) => {
                // A header of an archive costs something, and so does each of its entries.
                let overhead = limits.files.saturating_mul(2048);
                self.tar(Metered::new(unpacked(file, packed), limits.bytes.saturating_add(overhead)))
            }
            ArchiveForm::Zip => self.zip(file),
        }
    }

    fn tar(&mut self, bytes: impl Read) -> Result<(), String> {
        let wrong = |error: io::Error| format!("it is no whole tar archive: {error}");
        let mut archive = tar::Archive::new(bytes);
        let mut n_entries = 0_u64;
        for entry in archive.entries().map_err(wrong)? {
            let mut entry = entry.map_err(wrong)?;
            n_entries += 1;
            let kind = entry.header().entry_type();
            if kind == EntryType::XGlobalHeader {
                self.budget.take_file()?;
                continue;
            }
            let raw = entry.path_bytes().into_owned();
            let name = String::from_utf8(raw).map_err(|_| "an entry's name is no UTF-8".to_owned())?;
            let mode = entry.header().mode().map_err(wrong)?;
            let path = inner_path(&name)?;
            match kind {
                EntryType::Directory => self.directory(&path, mode)?,
                EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => {
                    self.entry(&name, &path, mode, &mut entry)?;
                }
                EntryType::Link | EntryType::Symlink => return Err(is_link(&name)),
                _ => {
                    return Err(format!(
                        "{} is neither a file nor a directory; pack the archive without it",
                        shown(&name)
                    ));
                }
            }
        }
        if n_entries == 0 { Err("it is no tar archive, or an empty one".to_owned()) } else { Ok(()) }
    }

    fn zip(&mut self, file: File) -> Result<(), String> {
        let wrong = |error: zip::result::ZipError| format!("it is no whole zip archive: {error}");
        let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(wrong)?;
        self.budget.check_files(archive.len() as u64)?;
        for n in 0..archive.len() {
            let mut entry = archive.by_index(n).map_err(wrong)?;
            let name =
                String::from_utf8(entry.name_raw().to_vec()).map_err(|_| "an entry's name is no UTF-8".to_owned())?;
            let path = inner_path(&name)?;
            let mode = entry.unix_mode();
            match mode.unwrap_or(0) & 0o170_000 {
                0 | 0o100_000 | 0o040_000 => {}
                0o120_000 => return Err(is_link(&name)),
                _ => {
                    return Err(format!(
                        "{} is neither a file nor a directory; pack the archive without it",
                        shown(&name)
                    ));
                }
            }
            if name.ends_with('/') {
                self.directory(&path, mode.unwrap_or(0o755))?;
            } else {
                self.entry(&name, &path, mode.unwrap_or(0o644), &mut entry)?;
            }
        }
        Ok(())
    }

    /// The folder of a commit, or a file, under this name where there is one.
    fn commit(&mut self, pack: &mut Pack, commit: &Commit, name: &str) -> Result<(), String> {
        let name = if name.is_empty() { commit.name() } else { name };
        let (mut left, is_folder) = match pack.find(commit)? {
            Item::Folder(tree) => (vec![(String::new(), tree)], true),
            found => (vec![], self.item(pack, (name, found)).map(|_| false)?),
        };
        if commit.is_file && is_folder {
            return Err(format!(
                "{} is a folder of the repository; getterMode file takes a file",
                shown(&commit.folder)
            ));
        }
        while let Some((above, tree)) = left.pop() {
            for (name, item) in pack.folder(tree)? {
                let name = if above.is_empty() { name } else { format!("{above}/{name}") };
                left.extend(self.item(pack, (&name, item))?.map(|tree| (name, tree)));
            }
        }
        Ok(())
    }

    /// Makes a file of one that git has, or a directory, which is returned.
    fn item(&mut self, pack: &mut Pack, (name, item): (&str, Item)) -> Result<Option<ObjectId>, String> {
        let path = inner_path(name)?;
        match item {
            Item::File { blob, is_program } => {
                let mode = if is_program { 0o755 } else { 0o644 };
                self.entry(name, &path, mode, &mut pack.file(blob)?).map(|()| None)
            }
            Item::Folder(tree) => self.directory(&path, 0o755).map(|()| Some(tree)),
            Item::Link => Err(format!(
                "{} is a link; fetch a folder of the repository without one (git::….git//folder)",
                shown(name)
            )),
            Item::Submodule => Err(format!(
                "{} is a submodule; give it an artifact of its own, and fetch a folder of the repository without one (git::….git//folder)",
                shown(name)
            )),
        }
    }

    fn entry(&mut self, name: &str, path: &Path, mode: u32, bytes: &mut dyn Read) -> Result<(), String> {
        if mode & SET_ID != 0 {
            return Err(format!(
                "{} runs with the rights of its owner (setuid, setgid); pack the archive without that",
                shown(name)
            ));
        }
        if path.as_os_str().is_empty() {
            return Err("an entry has no name".to_owned());
        }
        if let Some(parent) = path.parent() {
            self.directory(parent, 0o755)?;
        }
        // Of two with one name the later one holds, as tar has it.
        match fs::remove_file(self.root.join(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(format!("{} is there as something else: {error}", shown(name)));
            }
            Ok(()) | Err(_) => {}
        }
        self.file(path, mode & 0o777 | 0o600, bytes)
    }

    fn file(&mut self, path: &Path, mode: u32, bytes: &mut dyn Read) -> Result<(), String> {
        self.budget.take_file()?;
        let cannot = |error: io::Error| format!("{} cannot be made: {error}", shown(&path.to_string_lossy()));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.root.join(path)).map_err(cannot)?;
        self.budget.copy(bytes, &mut file)?;
        file.set_permissions(Permissions::from_mode(mode)).map_err(cannot)
    }

    /// Makes a directory and those above it. One that is there keeps its mode.
    fn directory(&mut self, path: &Path, mode: u32) -> Result<(), String> {
        let mut here = self.root.to_owned();
        let n_parts = path.components().count();
        for (n, part) in path.components().enumerate() {
            here.push(part);
            match DirBuilder::new().mode(0o700).create(&here) {
                Ok(()) => self.budget.take_file()?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && here.is_dir() => continue,
                Err(error) => return Err(format!("{} cannot be made: {error}", shown(&path.to_string_lossy()))),
            }
            let mode = if n + 1 == n_parts { mode & 0o777 | 0o700 } else { 0o755 };
            let set = fs::set_permissions(&here, Permissions::from_mode(mode));
            set.map_err(|error| format!("{} cannot be made: {error}", shown(&path.to_string_lossy())))?;
        }
        Ok(())
    }
}

fn is_link(name: &str) -> String {
    format!("{} is a link; pack the archive with the file that it leads to (tar --dereference)", shown(name))
}

/// The path of an entry: relative, and without `..`.
fn inner_path(name: &str) -> Result<PathBuf, String> {
    let leads_out = || format!("{} leads out of the archive; pack it with relative paths without ..", shown(name));
    if name.starts_with('/') || name.contains('\0') {
        return Err(leads_out());
    }
    let mut path = PathBuf::new();
    let mut depth = 0;
    for part in name.split('/').filter(|part| !part.is_empty() && *part != ".") {
        if part == ".." {
            return Err(leads_out());
        }
        depth += 1;
        if depth > MAX_DEPTH {
            return Err(format!("{} is more than {MAX_DEPTH} directories deep", shown(name)));
        }
        path.push(part);
    }
    Ok(path)
}

/// A name of others, for people.
fn shown(name: &str) -> String {
    format!("{:?}", name.chars().take(120).collect::<String>())
}
