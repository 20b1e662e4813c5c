//! Whom to evict on a node so that an allocation of a higher priority fits (`spec/scheduler.md` 6). Pure: a node's
//! allocations and an ask go in, the victims come out.

use std::collections::BTreeSet;
use std::sync::Arc;

use drover_api::client_node::DeviceGroup;
use drover_api::group::Group;

use crate::arithmetic::{ratio, total};
use crate::model::{Alloc, Amounts, Node};
use crate::scheduler::feasible::device;
use crate::usage::Usage;

/// How much lower a victim's priority must be.
pub const LEAST_GAP: i64 = 10;
/// What an eviction beyond maxParallel adds to the distance, for each.
const PENALTY: f64 = 50.0;

/// An allocation that could be evicted.
#[derive(Clone, Debug)]
pub struct Evictable {
    /// It.
    pub alloc: Arc<Alloc>,
    /// Its job's priority.
    pub priority: i64,
    /// What it holds.
    pub held: Usage,
    /// How many of its group may move at once; 0 for any number.
    pub max_parallel: i64,
    /// How many of its group the plan evicts already.
    pub already: i64,
}

/// What is to fit on a node.
#[derive(Clone, Copy, Debug)]
pub struct PreemptionAsk<'a> {
    /// Its priority.
    pub priority: i64,
    /// The sums that it needs.
    pub amounts: Amounts,
    /// Its ports and devices.
    pub group: &'a Group,
}

/// Whether a job may evict an allocation.
pub fn may_evict(priority: i64, victim: i64) -> bool {
    victim <= priority.saturating_sub(LEAST_GAP)
}

/// How far what an allocation holds is from what is asked for. An ask of nothing counts nothing.
pub fn distance(ask: Amounts, held: Amounts) -> f64 {
    let part = |ask: i64, held: i64| if ask <= 0 { 0.0 } else { (ratio(ask, 1) - ratio(held, 1)) / ratio(ask, 1) };
    let (memory, cpu, disk) =
        (part(ask.memory_mb, held.memory_mb), part(ask.cpu, held.cpu), part(ask.disk_mb, held.disk_mb));
    (memory * memory + cpu * cpu + disk * disk).sqrt()
}

/// What evicting one more of a group adds to its distance.
pub fn penalty(already: i64, max_parallel: i64) -> f64 {
    if max_parallel > 0 && already >= max_parallel { PENALTY * ratio(already + 1 - max_parallel, 1) } else { 0.0 }
}

/// How good it is to evict allocations of these priorities: near 1 for few of low ones.
pub fn score(priorities: &[i64]) -> f64 {
    let highest = priorities.iter().copied().max().unwrap_or(0);
    let sum = total(priorities.iter().copied());
    let p = if highest > 0 { ratio(highest, 1) + ratio(sum, highest) } else { 0.0 };
    1.0 / (1.0 + (0.0048 * (p - 2048.0)).exp())
}

/// The victims on a node, in the order in which they were chosen; none if evicting all that may be evicted does not
/// make room. `used` is all that is in use there, the candidates included. `fits` says whether the group fits beside
/// what is left.
pub fn victims(
    ask: PreemptionAsk<'_>,
    node: &Node,
    used: &Usage,
    candidates: &[Evictable],
    fits: impl Fn(&Usage) -> bool,
) -> Option<Vec<Evictable>> {
    let mut allowed: Vec<&Evictable> =
        candidates.iter().filter(|candidate| may_evict(ask.priority, candidate.priority)).collect();
    allowed.sort_by(|a, b| a.priority.cmp(&b.priority).then_with(|| a.alloc.key.cmp(&b.alloc.key)));
    let mut chosen: Vec<&Evictable> = Vec::new();
    port_holders(ask.group, node, used, &allowed, &mut chosen)?;
    device_holders(ask.group, node, used, &allowed, &mut chosen)?;
    let mut left = used.clone();
    for victim in &chosen {
        left.remove(&victim.held);
    }
    let free = node.allocatable.minus(left.amounts);
    let rest: Vec<&Evictable> =
        allowed.into_iter().filter(|one| !chosen.iter().any(|known| known.alloc.key == one.alloc.key)).collect();
    let more = for_amounts(ask.amounts, free, rest)?;
    for victim in &more {
        left.remove(&victim.held);
    }
    chosen.extend(more);
    (!chosen.is_empty() && fits(&left)).then(|| chosen.into_iter().cloned().collect())
}

fn covers(free: Amounts, ask: Amounts) -> bool {
    free.cpu >= ask.cpu && free.memory_mb >= ask.memory_mb && free.disk_mb >= ask.disk_mb
}

/// Victims for cpu, memory and disk: by priority, the closest to what is still missing first; then those that are not
/// needed after all are let go, the closest first.
fn for_amounts(ask: Amounts, free: Amounts, allowed: Vec<&Evictable>) -> Option<Vec<&Evictable>> {
    if covers(free, ask) {
        return Some(Vec::new());
    }
    let all = allowed.iter().fold(free, |sum, one| sum.plus(one.held.amounts));
    if !covers(all, ask) {
        return None;
    }
    let (mut chosen, mut freed, mut missing) = (Vec::new(), free, ask);
    let mut pool = allowed;
    while !covers(freed, ask) {
        let lowest = pool.first()?.priority;
        let of_lowest = pool.iter().take_while(|one| one.priority == lowest).count();
        // The penalty counts the plan so far, not what is picked on this node.
        let far = |one: &Evictable| distance(missing, one.held.amounts) + penalty(one.already, one.max_parallel);
        let at = (0..of_lowest).min_by(|a, b| far(pool[*a]).total_cmp(&far(pool[*b])))?;
        let victim = pool.remove(at);
        freed = freed.plus(victim.held.amounts);
        missing = missing.minus(victim.held.amounts);
        chosen.push(victim);
    }
    chosen.sort_by(|a, b| distance(ask, b.held.amounts).total_cmp(&distance(ask, a.held.amounts)));
    let mut freed = free;
    let mut needed = Vec::new();
    for victim in chosen {
        if covers(freed, ask) {
            break;
        }
        freed = freed.plus(victim.held.amounts);
        needed.push(victim);
    }
    Some(needed)
}

/// Holders of the static ports that are asked for. A holder that may not be evicted rules the node out.
fn port_holders<'a>(
    group: &Group,
    node: &Node,
    used: &Usage,
    allowed: &[&'a Evictable],
    chosen: &mut Vec<&'a Evictable>,
) -> Option<()> {
    let asked = group.networks.iter().flat_map(|network| &network.ports).filter(|port| !port.ignore_collision);
    for port in asked.filter_map(|port| u16::try_from(port.r#static?).ok()) {
        if node.reserved_ports.contains(&port) {
            return None;
        }
        // One that holds it on several addresses gives all of them up.
        let n_of = |usage: &Usage| usage.ports.iter().filter(|(_, held)| *held == port).count();
        let holders: Vec<&&Evictable> = allowed.iter().filter(|one| n_of(&one.held) > 0).collect();
        if holders.iter().map(|one| n_of(&one.held)).sum::<usize>() < n_of(used) {
            return None;
        }
        for holder in holders {
            if !chosen.iter().any(|known| known.alloc.key == holder.alloc.key) {
                chosen.push(holder);
            }
        }
    }
    Some(())
}

/// Holders of enough devices for each request: of the groups of devices that would do, the one whose victims have the
/// smallest sum of distinct priorities.
fn device_holders<'a>(
    group: &Group,
    node: &Node,
    used: &Usage,
    allowed: &[&'a Evictable],
    chosen: &mut Vec<&'a Evictable>,
) -> Option<()> {
    for request in group.tasks.iter().flat_map(|task| &task.resources.devices) {
        let wanted = usize::try_from(request.count).unwrap_or(usize::MAX);
        let options = node.devices.iter().filter(|devices| device::is_asked_for(devices, request));
        let mut best: Option<(i64, Vec<&'a Evictable>)> = None;
        for devices in options {
            let Some(option) = device_option(devices, wanted, used, allowed, chosen) else { continue };
            let priorities: BTreeSet<i64> = option.iter().map(|one| one.priority).collect();
            let sum = total(priorities.into_iter());
            if best.as_ref().is_none_or(|(least, _)| sum < *least) {
                best = Some((sum, option));
            }
        }
        chosen.extend(best?.1);
    }
    Some(())
}

fn device_option<'a>(
    devices: &DeviceGroup,
    wanted: usize,
    used: &Usage,
    allowed: &[&'a Evictable],
    chosen: &[&'a Evictable],
) -> Option<Vec<&'a Evictable>> {
    let is_of =
        |key: &crate::usage::DeviceKey| key.0 == devices.vendor && key.1 == devices.r#type && key.2 == devices.name;
    let holds = |one: &Evictable| one.held.devices.iter().filter(|key| is_of(key)).count();
    let healthy = devices.instances.iter().filter(|instance| instance.healthy).count();
    let in_use = used.devices.iter().filter(|key| is_of(key)).count();
    let freed: usize = chosen.iter().map(|one| holds(one)).sum();
    let free = (healthy + freed).saturating_sub(in_use);
    let (mut option, mut gained) = (Vec::new(), 0);
    for candidate in allowed {
        if free + gained >= wanted {
            break;
        }
        let is_chosen = chosen.iter().any(|known| known.alloc.key == candidate.alloc.key);
        if !is_chosen && holds(candidate) > 0 {
            gained += holds(candidate);
            option.push(*candidate);
        }
    }
    if free + gained < wanted {
        return None;
    }
    option.sort_by_key(|one| std::cmp::Reverse(holds(one)));
    let mut gained = free;
    option.retain(|one| {
        let is_needed = gained < wanted;
        gained += if is_needed { holds(one) } else { 0 };
        is_needed
    });
    Some(option)
}
