//! Tests with real processes and a real API server.

mod supervisor;
