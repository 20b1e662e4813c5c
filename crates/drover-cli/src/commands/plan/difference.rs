//! A job's changes as people read them: a tree of what is new (+), gone (-) and another (+/-), with what it does.

use std::fmt::Write;

use drover_core::difference::{GroupDiff, GroupEffect, JobDiff, Members, ObjectDiff, PieceChange};

/// Writes the changes as text, with a blank line after them; nothing where nothing changes.
pub(crate) fn write(text: &mut String, diff: &JobDiff) {
    if diff.r#type == PieceChange::None {
        return;
    }
    line(text, 0, diff.r#type, &format!("Job {}", diff.id), &[]);
    members(text, 1, &diff.members);
    for group in diff.task_groups.iter().filter(|group| is_told(group)) {
        let updates: Vec<String> = group.updates.iter().map(|(what, n)| format!("{n} {what}")).collect();
        let updates = if updates.is_empty() { String::new() } else { format!(" ({})", updates.join(", ")) };
        line(text, 1, group.r#type, &format!("Group {}{updates}", group.name), &[]);
        members(text, 2, &group.members);
        for task in &group.tasks {
            object(text, 2, &format!("Task {}", task.name), task);
        }
    }
    text.push('\n');
}

/// A group that stays as it is matters where the plan does something to it.
fn is_told(group: &GroupDiff) -> bool {
    group.r#type != PieceChange::None || group.updates.keys().any(|what| *what != "ignore")
}

fn members(text: &mut String, depth: usize, members: &Members) {
    for field in &members.fields {
        let (old, new) = (quoted(&field.old), quoted(&field.new));
        let values = match field.r#type {
            PieceChange::Added => new,
            PieceChange::Deleted => old,
            PieceChange::Edited | PieceChange::None => format!("{old} => {new}"),
        };
        line(text, depth, field.r#type, &format!("{}: {values}", field.name), &field.annotations);
    }
    for inner in &members.objects {
        object(text, depth, &inner.name, inner);
    }
}

fn object(text: &mut String, depth: usize, title: &str, object: &ObjectDiff) {
    line(text, depth, object.r#type, title, &object.annotations);
    members(text, depth + 1, &object.members);
}

fn line(text: &mut String, depth: usize, change: PieceChange, what: &str, effects: &[GroupEffect]) {
    let mark = match change {
        PieceChange::None => "   ",
        PieceChange::Added => "+  ",
        PieceChange::Deleted => "-  ",
        PieceChange::Edited => "+/-",
    };
    let effects: Vec<&str> = effects.iter().map(|effect| effect.as_str()).collect();
    let effects = if effects.is_empty() { String::new() } else { format!("  ({})", effects.join(", ")) };
    // Writing to a String cannot fail.
    writeln!(text, "{:indent$}{mark} {what}{effects}", "", indent = depth * 2).ok();
}

/// Values of several lines stay on one.
fn quoted(value: &str) -> String {
    if value.contains('\n') || value.is_empty() { format!("{value:?}") } else { value.to_owned() }
}
