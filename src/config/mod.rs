//! The configuration of each role: read once at the start, checked, and handed on in parts.

pub mod agent;
pub mod controller;
