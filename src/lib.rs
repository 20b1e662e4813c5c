//! The shells of drover.
