//! Where Nomad's JSON has another shape than HCL: what is read is brought into the tables' shape before it is carried
//! over, and what is written into Nomad's afterwards.

use serde_json::{Map, Value as Json, json};

use super::report::Report;
use super::table::WireForm;
use crate::tree::{Member, Node, Tree};
use crate::value::{Number, Value};

type Wire = Map<String, Json>;

/// What of a block is not read as Nomad's JSON has it.
const fn form(read: fn(&mut Vec<Member>, &mut Report<'_>), write: fn(&mut Wire)) -> WireForm {
    WireForm { read, write }
}

pub(super) const JOB: WireForm = form(read_job, keep);
pub(super) const GROUP: WireForm = form(read_group, write_group);
pub(super) const TASK: WireForm = form(read_task, write_task);
pub(super) const NETWORK: WireForm = form(read_network, write_network);
pub(super) const SERVICE: WireForm = form(read_service, keep);
pub(super) const PERIODIC: WireForm = form(read_periodic, write_periodic);
pub(super) const SCALING: WireForm = form(|_, _| (), write_scaling);

fn keep(_: &mut Wire) {}

fn find<'a>(members: &'a [Member], name: &str) -> Option<&'a Tree> {
    members.iter().find(|member| member.name == name).map(|member| &member.tree)
}

fn take(members: &mut Vec<Member>, name: &str) -> Option<Tree> {
    let at = members.iter().position(|member| member.name == name)?;
    Some(members.remove(at).tree)
}

fn text<'a>(members: &'a [Member], name: &str) -> Option<&'a str> {
    find(members, name).and_then(Tree::text)
}

/// The id stands for a missing name, and a job's `Update` with a deadline of 0 is one that Nomad has filled with zeros:
/// each group has its own.
fn read_job(members: &mut Vec<Member>, _: &mut Report<'_>) {
    const STAGGER: Number = Number::Whole(30_000_000_000);
    if text(members, "Name").is_some() && text(members, "Name") == text(members, "ID") {
        members.retain(|member| member.name != "Name");
    }
    let update = members.iter_mut().find(|member| member.name == "Update");
    let Some(Node::Map(fields)) = update.map(|member| &mut member.tree.node) else { return };
    let is_filled = |deadline: &Tree| matches!(deadline.node, Node::Number(_)) && deadline.is_zero();
    if find(fields, "HealthyDeadline").is_some_and(is_filled) {
        fields.retain(|field| !field.tree.is_zero());
    }
    let is_usual = |field: &Member| field.name == "Stagger" && field.tree.value() == Value::Number(STAGGER);
    if fields.iter().all(|field| is_usual(field) || matches!(field.tree.node, Node::Null)) {
        members.retain(|member| member.name != "Update");
    }
}

/// A `Consul` that names nothing but the usual cluster stands in every group and task.
fn without_usual_consul(members: &mut Vec<Member>) {
    let is_usual = |consul: &Tree| {
        let Node::Map(fields) = &consul.node else { return false };
        fields.iter().all(|field| field.tree.is_nothing() || is_usual_cluster(field))
    };
    members.retain(|member| member.name != "Consul" || !is_usual(&member.tree));
}

fn is_usual_cluster(member: &Member) -> bool {
    member.name == "Cluster" && member.tree.text() == Some("default")
}

/// Volumes are a map there, by the name that their block has as a label.
fn read_group(members: &mut Vec<Member>, report: &mut Report<'_>) {
    without_usual_consul(members);
    let volumes = members.iter_mut().find(|member| member.name == "Volumes");
    let Some(Member { tree, .. }) = volumes else { return };
    if matches!(tree.node, Node::Null) {
        return;
    }
    let Node::Map(volumes) = &mut tree.node else {
        report.add(tree.offset, format!("must be an object of volumes by name, and is {}", tree.kind()));
        tree.node = Node::Null;
        return;
    };
    let list = std::mem::take(volumes).into_iter().map(|Member { name, mut tree }| {
        if let Node::Map(fields) = &mut tree.node {
            fields.retain(|field| field.name != "Name");
            let named = Tree { offset: tree.offset, node: Node::Text(name) };
            fields.push(Member { name: "Name".to_owned(), tree: named });
        }
        tree
    });
    tree.node = Node::List(list.collect());
}

fn write_group(wire: &mut Wire) {
    let Some(volumes) = wire.get_mut("Volumes") else { return };
    let Json::Array(list) = volumes.take() else { return };
    let named = list.into_iter().map(|volume| (volume["Name"].as_str().unwrap_or_default().to_owned(), volume));
    *volumes = Json::Object(named.collect());
}

/// The identity that Nomad's own API takes stands beside the others there. Nomad gives it to each task; it says
/// something where the task sees it.
fn read_task(members: &mut Vec<Member>, _: &mut Report<'_>) {
    const USUAL: [&str; 2] = ["default", "nomadproject.io"];
    without_usual_consul(members);
    read_logs(members);
    let Some(mut identity) = take(members, "Identity") else { return };
    let says_nothing = |tree: &Tree| tree.is_nothing() || tree.text().is_some_and(|text| USUAL.contains(&text));
    let is_usual = match &identity.node {
        Node::Map(fields) => fields.iter().all(|field| match &field.tree.node {
            Node::List(values) => values.iter().all(says_nothing),
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::Map(_) => says_nothing(&field.tree),
        }),
        Node::Null => true,
        Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::List(_) => false,
    };
    if is_usual {
        return;
    }
    if let Node::Map(fields) = &mut identity.node {
        fields.retain(|field| field.name != "Name" || !field.tree.is_zero());
    }
    let others = members.iter_mut().find(|member| member.name == "Identities");
    if let Some(Node::List(list)) = others.map(|member| &mut member.tree.node) {
        list.insert(0, identity);
        return;
    }
    members.retain(|member| member.name != "Identities" || !member.tree.is_zero());
    let tree = Tree { offset: identity.offset, node: Node::List(vec![identity]) };
    members.push(Member { name: "Identities".to_owned(), tree });
}

fn write_task(wire: &mut Wire) {
    wire.insert("Identity".to_owned(), Json::Null);
    let Some(Json::Array(list)) = wire.get_mut("Identities") else { return };
    if let Some(at) = list.iter().position(|identity| identity["Name"] == "default") {
        let own = list.remove(at);
        wire.insert("Identity".to_owned(), own);
    }
}

/// `Enabled` is the old form of `Disabled`; null, it says nothing. False, it says something.
fn read_logs(members: &mut [Member]) {
    let logs = members.iter_mut().find(|member| member.name == "LogConfig");
    let Some(Node::Map(fields)) = logs.map(|member| &mut member.tree.node) else { return };
    let Some(&Tree { offset, node: Node::Bool(is_enabled) }) = find(fields, "Enabled") else { return };
    fields.retain(|field| field.name != "Enabled");
    if find(fields, "Disabled").is_none_or(Tree::is_zero) {
        fields.retain(|field| field.name != "Disabled");
        let tree = Tree { offset, node: Node::Bool(!is_enabled) };
        fields.push(Member { name: "Disabled".to_owned(), tree });
    }
}

/// Ports with a number and ports without one are two lists there.
fn read_network(members: &mut Vec<Member>, report: &mut Report<'_>) {
    let (dynamic, reserved) = (take(members, "DynamicPorts"), take(members, "ReservedPorts"));
    let Some(offset) = dynamic.as_ref().or(reserved.as_ref()).map(|tree| tree.offset) else { return };
    let mut ports = Vec::new();
    for (tree, is_fixed) in [(dynamic, false), (reserved, true)] {
        let Some(tree) = tree else { continue };
        let Tree { node: Node::List(list), .. } = tree else {
            if !matches!(tree.node, Node::Null) {
                report.add(tree.offset, format!("must be a list of ports, and is {}", tree.kind()));
            }
            continue;
        };
        for mut port in list {
            let offset = port.offset;
            if let Node::Map(fields) = &mut port.node {
                if !is_fixed {
                    // The number that was given to some allocation.
                    fields.retain(|field| field.name != "Value");
                } else if find(fields, "Value").is_none_or(Tree::is_zero) {
                    report.add(offset, "needs `Value`, the number of the port; or move it to `DynamicPorts`");
                }
            }
            ports.push(port);
        }
    }
    members.push(Member { name: "Ports".to_owned(), tree: Tree { offset, node: Node::List(ports) } });
}

fn write_network(wire: &mut Wire) {
    let ports = wire.shift_remove("Ports");
    let ports = ports.as_ref().and_then(Json::as_array).cloned().unwrap_or_default();
    let (dynamic, reserved): (Vec<Json>, Vec<Json>) = ports.into_iter().partition(|port| port["Value"] == 0);
    for (name, list) in [("DynamicPorts", dynamic), ("ReservedPorts", reserved)] {
        wire.insert(name.to_owned(), if list.is_empty() { Json::Null } else { list.into() });
    }
}

fn read_service(members: &mut Vec<Member>, _: &mut Report<'_>) {
    members.retain(|member| !is_usual_cluster(member));
}

/// One expression and several have a name each there.
fn read_periodic(members: &mut Vec<Member>, report: &mut Report<'_>) {
    if let Some(kind) = take(members, "SpecType")
        && !kind.is_zero()
        && kind.text() != Some("cron")
    {
        report.add(kind.offset, "must be \"cron\", the only kind of schedule");
    }
    members.retain(|member| member.name != "Spec" || !member.tree.is_zero());
}

fn write_periodic(wire: &mut Wire) {
    let only = wire.get("Specs").and_then(Json::as_array).filter(|list| list.len() == 1).and_then(|list| list.first());
    let spec = only.cloned();
    if spec.is_some() {
        wire.insert("Specs".to_owned(), Json::Null);
    }
    wire.insert("Spec".to_owned(), spec.unwrap_or_else(|| json!("")));
    wire.insert("SpecType".to_owned(), json!("cron"));
}

fn write_scaling(wire: &mut Wire) {
    wire.insert("Type".to_owned(), json!("horizontal"));
}
