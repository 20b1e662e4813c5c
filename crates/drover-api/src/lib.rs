//! The custom resource types of drover.
