//! What a group needs at once, against sums of each stage written out, and what a node has in use after any changes.

use drover_api::allocation::{AllocatedDevice, TaskResources};
use fastrand::Rng;

use super::*;

/// One task: its lifecycle, MHz, MiB, and whether it has cores of its own.
type StageNeed = (&'static str, i64, i64, bool);

fn group(needs: &[StageNeed]) -> Group {
    let tasks = needs.iter().enumerate().map(|(n, (kind, ..))| {
        let lifecycle = match *kind {
            "main" => json!(null),
            "sidecar" => json!({ "hook": "prestart", "sidecar": true }),
            "poststart sidecar" => json!({ "hook": "poststart", "sidecar": true }),
            hook => json!({ "hook": hook }),
        };
        json!({ "name": n.to_string(), "driver": "mock", "lifecycle": lifecycle })
    });
    let tasks: Vec<_> = tasks.collect();
    serde_json::from_value(json!({ "name": "g", "tasks": tasks })).expect("a group")
}

/// The table of the specification, a stage at a time: who runs in it, and what they hold together.
fn slow_needs(needs: &[StageNeed]) -> (i64, i64) {
    let stages =
        [vec!["prestart", "sidecar"], vec!["sidecar", "main", "poststart", "poststart sidecar"], vec!["poststop"]];
    let own: i64 = needs.iter().filter(|need| need.3).map(|need| need.1).sum();
    let sum = |stage: &[&str], of: fn(&StageNeed) -> i64| -> i64 {
        needs.iter().filter(|need| stage.contains(&need.0)).map(of).sum()
    };
    let most = |of: fn(&StageNeed) -> i64| stages.iter().map(|stage| sum(stage, of)).max().expect("stages");
    (most(|need| if need.3 { 0 } else { need.1 }) + own, most(|need| need.2))
}

#[test]
fn a_group_needs_what_its_largest_stage_holds_and_all_own_cores() {
    let mut rng = Rng::with_seed(133);
    let kinds = ["main", "prestart", "sidecar", "poststart", "poststart sidecar", "poststop"];
    for _ in 0..3000 {
        let needs: Vec<StageNeed> = (0..rng.usize(..6))
            .map(|_| (kinds[rng.usize(..6)], rng.i64(0..1000), rng.i64(0..1000), rng.u8(..4) == 0))
            .collect();
        let group = group(&needs);
        let of = |task: &Task| {
            let (_, cpu, memory_mb, has_cores) = needs[task.name.parse::<usize>().expect("a number")];
            (cpu, memory_mb, has_cores)
        };
        let found = largest_stage(&group, of);
        assert_eq!((found.cpu, found.memory_mb), slow_needs(&needs), "{needs:?}");
        assert_eq!(found.disk_mb, 0);

        // What an allocation of the group holds is the same, with its disk.
        let held = needs.iter().enumerate().map(|(n, (_, cpu, memory_mb, has_cores))| {
            let cores = if *has_cores { vec![i64::try_from(n).expect("few")] } else { vec![] };
            (n.to_string(), TaskResources { cpu: *cpu, memory_mb: *memory_mb, cores, ..TaskResources::default() })
        });
        let resources = AllocatedResources { tasks: held.collect(), disk_mb: 7, ..AllocatedResources::default() };
        let usage = Usage::of(&resources, Some(&group)).amounts;
        assert_eq!(usage, Amounts { disk_mb: 7, ..found }, "{needs:?}");
        // Of an unknown group each task is taken to run at the same time.
        let all = Usage::of(&resources, None).amounts;
        let sum = |of: fn(&StageNeed) -> i64| needs.iter().map(of).sum::<i64>();
        assert_eq!(all, Amounts { cpu: sum(|it| it.1), memory_mb: sum(|it| it.2), disk_mb: 7 }, "{needs:?}");
    }
}

#[test]
fn needs_that_no_machine_has_stay_at_the_largest_number() {
    let needs = [("main", i64::MAX, i64::MAX, false), ("main", 1, 1, false), ("main", i64::MAX, 0, true)];
    let of = |task: &Task| {
        let (_, cpu, memory_mb, has_cores) = needs[task.name.parse::<usize>().expect("a number")];
        (cpu, memory_mb, has_cores)
    };
    let found = largest_stage(&group(&needs), of);
    assert_eq!((found.cpu, found.memory_mb), (i64::MAX, i64::MAX));
}

#[test]
fn a_task_that_holds_nothing_counts_for_nothing() {
    let resources = AllocatedResources {
        tasks: [("other".to_owned(), TaskResources { cpu: 9, memory_mb: 9, ..TaskResources::default() })].into(),
        ..AllocatedResources::default()
    };
    let usage = Usage::of(&resources, Some(&group(&[("main", 0, 0, false)])));
    assert_eq!(usage.amounts, Amounts::default());
    assert_eq!(usage.n_allocs, 1);
}

#[test]
fn ports_cores_and_devices_are_listed_as_often_as_they_are_held() {
    let device = |ids: &[&str]| AllocatedDevice {
        vendor: "nvidia".into(),
        r#type: "gpu".into(),
        name: "t4".into(),
        ids: ids.iter().map(|id| (*id).to_owned()).collect(),
    };
    let task = |cores: &[i64], ids: &[&str]| TaskResources {
        cores: cores.to_vec(),
        devices: vec![device(ids)],
        ..TaskResources::default()
    };
    let port = |label: &str, value: i64, host_ip: &str| AllocatedPort {
        label: label.into(),
        value,
        to: 0,
        host_ip: host_ip.into(),
    };
    let resources = AllocatedResources {
        tasks: [("a".to_owned(), task(&[1, 2], &["x"])), ("b".to_owned(), task(&[2], &["x", "y"]))].into(),
        ports: vec![
            port("a", 80, "10.0.0.1"),
            port("b", 65_535, ""),
            port("c", 65_536, "10.0.0.1"),
            port("d", -1, "10.0.0.1"),
            port("e", 80, "no address"),
        ],
        ..AllocatedResources::default()
    };
    let usage = Usage::of(&resources, None);
    let address = "10.0.0.1".parse().expect("an address");
    assert_eq!(usage.ports, [(address, 80), (EVERY_ADDRESS, 65_535), (EVERY_ADDRESS, 80)]);
    assert_eq!(usage.cores, [1, 2, 2]);
    let ids: Vec<&str> = usage.devices.iter().map(|(_, _, _, id)| id.as_str()).collect();
    assert_eq!(ids, ["x", "x", "y"]);

    let may_share: Group = serde_json::from_value(json!({ "name": "g", "tasks": [], "networks": [
        { "ports": [{ "label": "a", "ignoreCollision": true }] },
        { "ports": [{ "label": "b" }, { "label": "e", "ignoreCollision": true }] },
    ] }))
    .expect("a group");
    let alone = |group: Option<&Group>| ports_alone(&resources, group).map(|(_, port)| port).collect::<Vec<_>>();
    assert_eq!(alone(None), [80, 65_535, 80]);
    assert_eq!(alone(Some(&may_share)), [65_535]);
}

#[test]
fn a_port_is_in_the_way_on_its_address_and_on_every_address() {
    let [one, other, six] = ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|text| text.parse::<IpAddr>().expect("an address"));
    for (left, right, is_in_the_way) in [
        (one, one, true),
        (one, other, false),
        (one, EVERY_ADDRESS, true),
        (EVERY_ADDRESS, other, true),
        (EVERY_ADDRESS, EVERY_ADDRESS, true),
        (one, six, false),
        (six, EVERY_ADDRESS, true),
    ] {
        assert_eq!(overlaps(left, right), is_in_the_way, "{left} {right}");
        let usage = Usage { ports: vec![(left, 80)], ..Usage::default() };
        assert_eq!((usage.holds_port(right, 80), usage.holds_port(right, 81)), (is_in_the_way, false));
    }
}

#[test]
fn what_is_in_use_is_what_those_hold_that_are_there_whatever_came_and_went() {
    let mut rng = Rng::with_seed(134);
    for _ in 0..200 {
        let (mut all, mut there): (Usage, Vec<Usage>) = (Usage::default(), vec![]);
        for _ in 0..30 {
            if rng.bool() || there.is_empty() {
                let one = Usage {
                    amounts: Amounts { cpu: rng.i64(0..9), memory_mb: rng.i64(0..9), disk_mb: rng.i64(0..9) },
                    n_allocs: 1,
                    ports: (0..rng.usize(..3)).map(|_| (EVERY_ADDRESS, rng.u16(1..4))).collect(),
                    cores: (0..rng.usize(..3)).map(|_| rng.i64(0..3)).collect(),
                    devices: vec![],
                };
                all.add(&one);
                there.push(one);
            } else {
                let gone = there.swap_remove(rng.usize(..there.len()));
                all.remove(&gone);
            }
            let sum = |of: fn(&Usage) -> i64| there.iter().map(of).sum::<i64>();
            let sums = [sum(|it| it.amounts.cpu), sum(|it| it.amounts.memory_mb), sum(|it| it.amounts.disk_mb)];
            assert_eq!([all.amounts.cpu, all.amounts.memory_mb, all.amounts.disk_mb], sums);
            assert_eq!(all.n_allocs, sum(|it| it.n_allocs));
            let sorted = |mut ports: Vec<(IpAddr, u16)>| {
                ports.sort_unstable();
                ports
            };
            assert_eq!(sorted(all.ports.clone()), sorted(there.iter().flat_map(|it| it.ports.clone()).collect()));
            let mut cores = (all.cores.clone(), there.iter().flat_map(|it| it.cores.clone()).collect::<Vec<_>>());
            cores.0.sort_unstable();
            cores.1.sort_unstable();
            assert_eq!(cores.0, cores.1);
        }
    }
}
