//! Launches, against a clock on the wall that is read each minute.

use fastrand::Rng;
use jiff::civil::Weekday;

use super::*;

/// A field of an expression: its text, and the numbers that it means.
type CronField = (String, Vec<i8>);

/// A random field of numbers between two.
fn field(rng: &mut Rng, first: i8, last: i8) -> CronField {
    let all: Vec<i8> = (first..=last).collect();
    match rng.u8(..5) {
        0 => ("*".to_owned(), all),
        1 => {
            let step = rng.i8(2..20);
            let every = all.iter().copied().filter(|it| (it - first) % step == 0).collect();
            (format!("*/{step}"), every)
        }
        2 => {
            let (from, to) = (rng.i8(first..=last), rng.i8(first..=last));
            let (from, to) = (from.min(to), from.max(to));
            (format!("{from}-{to}"), (from..=to).collect())
        }
        3 => {
            let (one, other) = (rng.i8(first..=last), rng.i8(first..=last));
            (format!("{one},{other}"), vec![one, other])
        }
        _ => {
            let one = rng.i8(first..=last);
            (one.to_string(), vec![one])
        }
    }
}

/// The launches of a time, found minute after minute. Only one of the fields of days is restricted.
fn slow_launches([minutes, hours, weekdays]: [&[i8]; 3], zone: &str, from: &str, until: &str) -> Vec<String> {
    let zone = super::zone(zone).expect("a zone");
    let (mut now, until) = (at(from), at(until));
    let mut found = Vec::new();
    loop {
        now += SignedDuration::from_mins(1);
        if now > until {
            return found;
        }
        let reading = now.to_zoned(zone.clone()).datetime();
        let weekday = reading.weekday().since(Weekday::Sunday);
        if minutes.contains(&reading.minute()) && hours.contains(&reading.hour()) && weekdays.contains(&weekday) {
            found.push(now.to_string());
        }
    }
}

#[test]
fn each_time_at_which_the_clock_on_the_wall_shows_a_reading_is_a_launch() {
    let mut rng = Rng::with_seed(191);
    // Around changes of the clocks: an hour there and back, half an hour, none, and in the other half of the year.
    let spans = [
        ("Europe/Berlin", "2026-03-28T20:00:00Z", "2026-03-29T12:00:00Z"),
        ("Europe/Berlin", "2026-10-24T20:00:00Z", "2026-10-25T12:00:00Z"),
        ("America/New_York", "2026-11-01T00:00:00Z", "2026-11-01T18:00:00Z"),
        ("Australia/Lord_Howe", "2026-04-04T06:00:00Z", "2026-04-05T00:00:00Z"),
        ("Australia/Lord_Howe", "2026-10-03T06:00:00Z", "2026-10-04T00:00:00Z"),
        ("Asia/Kathmandu", "2026-12-31T12:00:00Z", "2027-01-01T06:00:00Z"),
        ("", "2028-02-28T18:00:00Z", "2028-02-29T12:00:00Z"),
    ];
    for round in 0..70 {
        let (zone, from, until) = spans[round % spans.len()];
        let (minute, hour, weekday) = (field(&mut rng, 0, 59), field(&mut rng, 0, 23), field(&mut rng, 0, 6));
        let text = format!("{} {} * * {}", minute.0, hour.0, weekday.0);
        let wanted = slow_launches([&minute.1, &hour.1, &weekday.1], zone, from, until);
        assert_eq!(launches(&schedule(&[&text], zone), from, until), wanted, "{text} in {zone:?}");
    }
}

#[test]
fn only_what_is_armed_is_launched() {
    for (enabled, is_parameterized, is_stopped, expected) in [
        (None, false, false, true),
        (Some(true), false, false, true),
        (Some(false), false, false, false),
        (None, false, true, false),
        (None, true, false, false),
    ] {
        let periodic = Periodic { cron: "@daily".to_owned(), enabled, ..Periodic::default() };
        let parameterized = is_parameterized.then(Default::default);
        let spec = JobSpec { periodic: Some(periodic), parameterized, ..JobSpec::default() };
        assert_eq!(is_armed(&spec, is_stopped), expected, "{enabled:?} {is_parameterized} {is_stopped}");
        assert!(is_template(&spec));
    }
    assert!(!is_armed(&JobSpec::default(), false) && !is_template(&JobSpec::default()));
}

#[test]
fn an_expression_has_at_most_256_bytes_and_is_shown_shortened() {
    let minutes = |letters: usize| format!("{} * * * *", "0,".repeat(200)[..letters].trim_end_matches(','));
    let fits = format!("{}{}", minutes(200), " ".repeat(256 - minutes(200).len()));
    assert_eq!(fits.len(), 256);
    assert!(cron(fits.trim_end()).is_ok());
    let error = cron(&"é".repeat(129)).expect_err("too long").to_string();
    let shown = "é".repeat(64);
    assert_eq!(error, format!("{shown}… is no schedule: it has 258 bytes, above 256; write it as in 0 3 * * *"));
    let error = cron(&"x".repeat(65)).expect_err("no schedule").to_string();
    assert!(error.starts_with(&format!("{}… is no schedule: ", "x".repeat(64))), "{error}");
    let error = cron(&"x".repeat(64)).expect_err("no schedule").to_string();
    assert!(error.starts_with(&format!("{} is no schedule: ", "x".repeat(64))), "{error}");
    for wrong in ["", "* * * *", "0 * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "@often"] {
        assert!(cron(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_zone_is_one_of_iana_and_utc_where_none_is_named() {
    assert_eq!(zone("").map(|zone| zone == TimeZone::UTC), Ok(true));
    for wrong in ["Mars/Olympus", "CEST", " ", "Europe/"] {
        assert_eq!(zone(wrong).err(), Some(ScheduleError::Zone { zone: wrong.to_owned() }), "{wrong}");
    }
    let long = zone(&"z".repeat(100)).expect_err("no zone");
    assert_eq!(long, ScheduleError::Zone { zone: "z".repeat(64) });
}

#[test]
fn a_schedule_that_never_comes_has_no_launch() {
    let never = schedule(&["0 0 30 2 *"], "");
    let now = at("2026-01-01T00:00:00Z");
    assert_eq!((never.next_after(now), never.last_until(now)), (None, None));
    assert_eq!(step(&never, now, false, false, now), ScheduleStep { due: ScheduleDue::Nothing, next: None });
    let leap = schedule(&["0 0 29 2 *"], "");
    assert_eq!(leap.next_after(now), Some(at("2028-02-29T00:00:00Z")));
    assert_eq!(leap.last_until(now), Some(at("2024-02-29T00:00:00Z")));
    let none = schedule(&[], "");
    assert_eq!((none.next_after(now), none.last_until(now)), (None, None));
}
