//! Tests with real processes and a real API server.

mod agent;
mod supervisor;
