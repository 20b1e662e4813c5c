//! Tests with real processes and a real API server.

mod agent;
mod agent_exec;
mod agent_local;
mod agent_rights;
mod agent_survive;
mod canary;
mod chart;
mod cli;
mod cluster;
mod cluster_dynamics;
mod cluster_templates;
mod contract;
mod faults;
mod gitops;
mod helm;
mod jobs;
mod kubeconform;
mod metrics;
mod release;
mod rollouts;
mod schema;
mod supervisor;
mod uninstall;
mod unplaceable;
mod upgrade;
mod volumes;
