//! Functions on points in time. None reads the clock: the same job file gives the same job.

use drover_api::GoDuration;
use jiff::{SignedDuration, Timestamp, Zoned};

use super::arguments::Arguments;
use super::context::Outcome;
use crate::value::Value;

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>) -> Option<Outcome> {
    Some(match name {
        "timeadd" => arguments.count(2).and_then(|()| {
            let duration: GoDuration = arguments.text(1)?.parse().map_err(|error| format!("argument 2: {error}"))?;
            let time = time(&arguments.text(0)?)?;
            let later = time
                .checked_add(SignedDuration::from_nanos(duration.as_nanos()))
                .map_err(|error| format!("argument 1: {error}"))?;
            Ok(Value::Text(rfc3339(&later)))
        }),
        "formatdate" => {
            arguments.count(2).and_then(|()| format(&arguments.text(0)?, &time(&arguments.text(1)?)?).map(Value::Text))
        }
        _ => return None,
    })
}

/// A time of RFC 3339, in the offset that it was written with.
fn time(text: &str) -> Result<Zoned, String> {
    let wrong = |error: jiff::Error| format!("`{text}` is no time of RFC 3339, as 2026-01-02T03:04:05Z: {error}");
    let instant: Timestamp = text.parse().map_err(wrong)?;
    let offset = jiff::fmt::strtime::parse("%Y-%m-%dT%H:%M:%S%.f%:z", text).ok().and_then(|parsed| parsed.offset());
    Ok(instant.to_zoned(offset.unwrap_or(jiff::tz::Offset::UTC).to_time_zone()))
}

fn rfc3339(time: &Zoned) -> String {
    let zone = if time.offset().is_zero() { "Z".to_owned() } else { time.strftime("%:z").to_string() };
    format!("{}{zone}", time.strftime("%Y-%m-%dT%H:%M:%S"))
}

/// Runs of letters are parts of the time; text between `'` stays, and so do all other characters (cty's `formatdate`).
fn format(form: &str, time: &Zoned) -> Result<String, String> {
    let mut text = String::new();
    let mut rest = form;
    while let Some(first) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix('\'') {
            let (literal, after) = quoted(after)?;
            text.push_str(&literal);
            rest = after;
            continue;
        }
        let run = &rest[..rest.find(|letter| letter != first).unwrap_or(rest.len())];
        rest = &rest[run.len()..];
        let directive = match run {
            "YYYY" => "%Y",
            "YY" => "%y",
            "MMMM" => "%B",
            "MMM" => "%b",
            "MM" => "%m",
            "M" => "%-m",
            "DD" => "%d",
            "D" => "%-d",
            "EEEE" => "%A",
            "EEE" => "%a",
            "hh" => "%H",
            "h" => "%-H",
            "HH" => "%I",
            "H" => "%-I",
            "AA" => "%p",
            "aa" => "%P",
            "mm" => "%M",
            "m" => "%-M",
            "ss" => "%S",
            "s" => "%-S",
            "Z" | "ZZZ" if time.offset().is_zero() => {
                text.push_str(if run == "Z" { "Z" } else { "UTC" });
                continue;
            }
            "Z" | "ZZZZZ" => "%:z",
            "ZZZ" | "ZZZZ" => "%z",
            other if first.is_ascii_alphabetic() => return Err(format!("`{other}` is no part of a time")),
            other => {
                text.push_str(other);
                continue;
            }
        };
        text.push_str(&time.strftime(directive).to_string());
    }
    Ok(text)
}

/// What stands before the next single quote, and what follows that. Two quotes in it are one, and so are two that stand
/// alone.
fn quoted(mut rest: &str) -> Result<(String, &str), String> {
    let mut text = String::new();
    loop {
        let (part, after) = rest.split_once('\'').ok_or("a text after `'` does not end")?;
        text.push_str(part);
        match after.strip_prefix('\'') {
            Some(more) => {
                text.push('\'');
                rest = more;
            }
            None => return Ok((if text.is_empty() { "'".to_owned() } else { text }, after)),
        }
    }
}
