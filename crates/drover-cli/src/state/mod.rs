//! A saved state: the objects of a cluster in a file, and what the scheduler sees in them.
//!
//! Input: manifests. Output: a view of the cluster and one job in it, as the leader would plan it. What contradicts
//! itself ends in an error with object, field, reason and remedy; what is merely missing (a node that is gone, a job
//! that was deleted) is part of the picture. Must never know how a plan is made.

pub(crate) mod documents;
pub(crate) mod job_files;
mod load;
mod object;

pub(crate) use load::{is_known, load};

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
