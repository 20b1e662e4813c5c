//! Whole job files.

mod expressions;
mod files;
mod hostile;
