//! The decisions of drover.

pub mod lifecycle;
