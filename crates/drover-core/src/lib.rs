//! The decisions of drover.
