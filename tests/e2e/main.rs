//! drover on real nodes, installed by Helm: what `cargo xtask cluster test` runs, one case after the other on one
//! cluster.
//!
//! Each case prints what it measured. `cargo xtask cluster test NAME` runs those whose name contains NAME.

mod container_kills;
mod container_network;
mod containers;
mod documents;
mod drain;
mod drivers;
mod gateway;
mod gateway_streams;
mod ground;
mod idle;
mod install;
mod pods;
mod releases;
mod removals;
mod secrets;
mod security;
mod services;

use std::process::ExitCode;
use std::time::Instant;

use drover_testkit::progress::print_line;
use ground::Ground;

type Case = (&'static str, fn(&Ground) -> anyhow::Result<String>);

/// On one node.
const CASES: &[Case] = &[
    ("row_1_three_commands_to_a_healthy_job", install::three_commands_to_a_healthy_job),
    ("row_2_deleting_the_agents_pod_touches_no_task", pods::deleting_the_agents_pod),
    ("row_2_rolling_the_agents_image_touches_no_task", pods::rolling_the_agents_image),
    ("row_2_an_agent_out_of_memory_touches_no_task", pods::an_agent_out_of_memory),
    ("row_3_a_dying_leader_in_a_roll_out_duplicates_nothing", pods::a_dying_leader_in_a_roll_out),
    ("row_5_an_upgrade_from_the_previous_chart_and_back_restarts_no_task", releases::from_the_previous_chart_and_back),
    ("b_013_containers_outlive_the_agents_pod_and_upgrades", containers::outlive_the_agents_pod_and_upgrades),
    ("an_agent_without_privileges_runs_sandboxes", install::an_agent_without_privileges),
    ("row_6_readiness_turns_false_without_the_policy", install::readiness_without_the_policy),
    ("row_7_an_uninstalled_drover_is_taken_over_by_the_next", removals::uninstall_and_install),
    ("row_7_jobs_and_namespaces_go_while_the_controller_lives", removals::with_the_controller_alive),
    ("row_7_what_is_deleted_after_the_uninstall_waits_until_it_is_freed", removals::deleted_after_the_uninstall),
    ("row_7_an_uninstall_that_drains_leaves_no_task", removals::drained_by_the_uninstall),
    ("row_7_drovers_own_namespace_goes_first", removals::own_namespace_deleted_first),
    ("row_7_the_kinds_go_after_the_uninstall", removals::kinds_deleted_after_the_uninstall),
    ("row_8_every_render_is_valid_to_the_api_server", install::every_render_is_valid),
    ("the_commands_of_the_documents_do_what_they_show", documents::what_is_shown_is_what_comes),
    ("g_001_the_gateway_is_available_and_each_replica_has_every_node", gateway::available_and_connected),
    ("the_gateway_carries_the_same_bytes_for_every_proof", gateway::logs_for_every_proof),
    (
        "g_013_and_g_017_streams_of_the_gateway_outlive_its_replicas_and_the_agents",
        gateway_streams::streams_outlive_replicas_and_agents,
    ),
    ("secrets_reach_every_task_through_a_hundred_changes_and_kills", secrets::a_hundred_changes_under_kills),
    ("security_an_editor_tries_sixty_things", security::an_editor_tries),
    ("containers_row_5_an_editor_tries_sixty_things_with_containers", security::an_editor_tries_with_containers),
    ("row_11_metrics_are_there_with_bounded_labels", install::metrics),
];

/// On one node: a driver that the cluster runs, with the attacher of the CSI project.
const WITH_DRIVER: &[Case] = &[("volumes_row_4_a_pod_and_a_job_use_one_driver_of_the_cluster", drivers::side_by_side)];

/// On two.
const TWO_NODES: &[Case] = &[
    ("row_4_a_drain_moves_pods_and_tasks", drain::pods_and_tasks_move),
    ("g_014_the_gateway_operates_a_node_that_nothing_can_dial", gateway_streams::a_node_that_nothing_can_dial),
];

/// On three, where kube-proxy and a DNS serve Services.
const SERVICES: &[Case] = &[
    ("services_answer_through_roll_outs_a_drain_a_killed_agent_and_a_lost_node", services::answer_through_everything),
    ("containers_row_6_pods_tasks_nodes_and_services_reach_each_other", container_network::everyone_reaches_everyone),
];

/// On one node, and only when named: each takes more than ten minutes.
const LONG: &[Case] = &[
    ("row_12_a_controller_without_work_costs_little", idle::a_controller_without_work),
    ("containers_outlive_two_hundred_kills_of_what_holds_them", container_kills::two_hundred_kills),
];

/// Cases that stand on one cluster.
struct Stand {
    nodes: u8,
    /// Whether addresses and names of Services lead somewhere.
    has_service_network: bool,
    cases: &'static [Case],
    /// Whether its cases run only when they are named.
    is_long: bool,
}

impl Stand {
    const fn of(nodes: u8, cases: &'static [Case]) -> Self {
        Self { nodes, has_service_network: false, cases, is_long: false }
    }
}

const STANDS: [Stand; 5] = [
    Stand::of(1, CASES),
    Stand::of(1, WITH_DRIVER),
    Stand::of(2, TWO_NODES),
    Stand { has_service_network: true, ..Stand::of(3, SERVICES) },
    Stand { is_long: true, ..Stand::of(1, LONG) },
];

fn main() -> ExitCode {
    let args = std::env::args().skip(1);
    let filters: Vec<String> = args.filter(|arg| !arg.starts_with('-') && arg.parse::<u8>().is_err()).collect();
    let named = |name: &str| filters.iter().any(|filter| name.contains(filter));
    let mut n_failed = 0;
    for stand in STANDS {
        let is_wanted = |(name, _): &Case| named(name) || (filters.is_empty() && !stand.is_long);
        let cases: Vec<Case> = stand.cases.iter().copied().filter(is_wanted).collect();
        if cases.is_empty() {
            continue;
        }
        match run(&stand, &cases) {
            Ok(failed) => n_failed += failed,
            Err(error) => {
                print_line(&format!("ERR the cluster with {} nodes: {error:#}", stand.nodes));
                n_failed += 1;
            }
        }
    }
    if n_failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs cases on a cluster of their own and says how many failed.
fn run(stand: &Stand, cases: &[Case]) -> anyhow::Result<usize> {
    let ground = Ground::start(stand.nodes, stand.has_service_network)?;
    let mut n_failed = 0;
    for (name, case) in cases {
        let started = Instant::now();
        let (mark, text) = match case(&ground) {
            Ok(text) => ("ok ", text),
            Err(error) => {
                n_failed += 1;
                ("ERR", format!("{error:#}"))
            }
        };
        print_line(&format!("{mark} {name} ({:.1} s): {text}", started.elapsed().as_secs_f64()));
    }
    ground.stop()?;
    Ok(n_failed)
}
