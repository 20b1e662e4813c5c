//! The rules, one per file: each takes the tree and returns the places that break it.

pub(super) mod comment_width;
pub(super) mod headers;
pub(super) mod large_structs;
pub(super) mod module_files;
pub(super) mod orphans;
pub(super) mod twin_types;
pub(super) mod words;
