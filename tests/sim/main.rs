//! Every scenario of `examples/scenarios`, as a user runs it.

mod gitops;
mod scenarios;
