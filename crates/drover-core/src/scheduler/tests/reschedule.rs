//! When failed allocations are placed again (`spec/scheduler.md` 3.3), beside the rows of its tables in plain numbers
//! of seconds.

use drover_api::GoDuration;
use drover_api::allocation::{RescheduleEvent, RescheduleTracker};
use drover_api::policy::{DelayFunction, Reschedule};
use fastrand::Rng;

use super::*;
use crate::scheduler::reschedule::{after, may_reschedule, next_delay, next_time, successor_tracker};

/// A reschedule that happened: how many seconds before the failure, and the pause before it.
type EarlierTry = (i64, i64);

/// A policy in seconds.
#[derive(Clone, Copy, Debug)]
struct Terms {
    function: DelayFunction,
    delay: i64,
    longest: i64,
    attempts: i64,
    interval: i64,
    unlimited: bool,
}

impl Terms {
    fn policy(self) -> Reschedule {
        Reschedule {
            attempts: Some(self.attempts),
            interval: Some(GoDuration::from_secs(self.interval)),
            delay: Some(GoDuration::from_secs(self.delay)),
            delay_function: Some(self.function),
            max_delay: Some(GoDuration::from_secs(self.longest)),
            unlimited: Some(self.unlimited),
        }
    }
}

/// Without a limit: 5 s first, 60 s at most.
const ENDLESS: Terms =
    Terms { function: DelayFunction::Exponential, delay: 5, longest: 60, attempts: 0, interval: 0, unlimited: true };
/// Two attempts in ten minutes, 5 s after a failure.
const TWICE: Terms =
    Terms { function: DelayFunction::Constant, delay: 5, longest: 0, attempts: 2, interval: 600, unlimited: false };

fn event(at: Timestamp, delay: i64) -> RescheduleEvent {
    RescheduleEvent {
        time: at,
        prev_alloc_id: String::new(),
        prev_node_name: String::new(),
        delay: GoDuration::from_secs(delay),
    }
}

fn events(past: &[EarlierTry]) -> Vec<RescheduleEvent> {
    past.iter().map(|(ago, delay)| event(now() - SignedDuration::from_secs(*ago), *delay)).collect()
}

/// An allocation that failed now, after these reschedules.
fn failed(past: &[EarlierTry]) -> Alloc {
    let mut world = World::new(&spec(1));
    world.allocs([3], |alloc| {
        alloc.tracker = Some(RescheduleTracker { events: events(past), last_reschedule: None });
    });
    let alloc = world.view.allocs().next().expect("one allocation");
    (**alloc).clone()
}

/// The table of delays, row by row.
fn delay_of(terms: Terms, past: &[EarlierTry]) -> i64 {
    let [.., (last_ago, last)] = past else { return terms.delay };
    let grown = match terms.function {
        DelayFunction::Constant => return terms.delay,
        DelayFunction::Exponential => 2 * last,
        DelayFunction::Fibonacci => match past {
            [.., (_, before), _] if *before == terms.longest && *last == terms.delay => terms.delay,
            [.., (_, before), _] => last + before,
            _ => terms.delay,
        },
    };
    if terms.longest > 0 && grown > terms.longest {
        if *last_ago > terms.longest { terms.delay } else { terms.longest }
    } else {
        grown
    }
}

/// The paragraph on eligibility.
fn is_eligible(terms: Terms, past: &[EarlierTry]) -> bool {
    if terms.unlimited || terms.attempts <= 0 {
        return terms.unlimited;
    }
    let attempted = past.iter().filter(|(ago, _)| *ago < terms.interval).count();
    past.is_empty() || (i64::try_from(attempted).unwrap() < terms.attempts && delay_of(terms, past) < terms.interval)
}

/// Policies and pasts that lie on the tables' edges more often than not.
fn random(rng: &mut Rng) -> (Terms, Vec<EarlierTry>) {
    let delay = [5, 7, 30][rng.usize(..3)];
    let longest = [0, delay, 60, 90][rng.usize(..4)];
    let interval = [0, delay, delay + 1, 60, 600][rng.usize(..5)];
    let function = [DelayFunction::Constant, DelayFunction::Exponential, DelayFunction::Fibonacci][rng.usize(..3)];
    let terms = Terms { function, delay, longest, attempts: rng.i64(-1..5), interval, unlimited: rng.u8(..3) == 0 };
    let edges = [0, 1, longest - 1, longest, longest + 1, interval - 1, interval, interval + 1, 10_000];
    let mut ago: Vec<i64> = (0..rng.usize(..8)).map(|_| edges[rng.usize(..edges.len())].max(0)).collect();
    ago.sort_unstable_by_key(|ago| std::cmp::Reverse(*ago));
    let delays = [delay, 2 * delay, longest, longest / 2, longest / 2 + 1, 45];
    (terms, ago.into_iter().map(|ago| (ago, delays[rng.usize(..delays.len())])).collect())
}

#[test]
fn delays_and_attempts_are_those_of_the_tables() {
    let mut rng = Rng::with_seed(33);
    let (mut due, mut ceilings) = (0, 0);
    for _ in 0..20_000 {
        let (terms, past) = random(&mut rng);
        let (policy, events) = (terms.policy(), events(&past));
        let (delay, may) = (delay_of(terms, &past), is_eligible(terms, &past));
        assert_eq!(next_delay(&policy, &events, now()), GoDuration::from_secs(delay), "{terms:?} after {past:?}");
        let wanted = GoDuration::from_secs(delay);
        assert_eq!(may_reschedule(&policy, &events, now(), wanted), may, "{terms:?} after {past:?}");
        let at = may.then(|| now() + SignedDuration::from_secs(delay));
        assert_eq!(next_time(&failed(&past), &policy, now()), at, "{terms:?} after {past:?}");
        due += usize::from(may);
        ceilings += usize::from(delay == terms.longest && delay != terms.delay);
    }
    assert!((5_000..15_000).contains(&due) && ceilings > 500, "{due} due, {ceilings} at the ceiling");
}

/// The pauses of one slot whose allocations fail again and again, each so many seconds after it was placed.
fn pauses(terms: Terms, lasted: &[i64]) -> Vec<i64> {
    let policy = terms.policy();
    let mut alloc = failed(&[]);
    let mut at = now();
    let mut pauses = Vec::new();
    for lasts in lasted {
        at += SignedDuration::from_secs(*lasts);
        alloc.last_event_at = at;
        let due = next_time(&alloc, &policy, at).expect("no limit");
        pauses.push(due.duration_since(at).as_secs());
        alloc.tracker = Some(successor_tracker(&alloc, &policy, due));
        at = due;
    }
    pauses
}

#[test]
fn pauses_grow_from_failure_to_failure_and_begin_again_after_a_calm_time() {
    let of = |function, lasted: &[i64]| pauses(Terms { function, ..ENDLESS }, lasted);
    assert_eq!(of(DelayFunction::Constant, &[1; 5]), [5, 5, 5, 5, 5]);
    assert_eq!(of(DelayFunction::Exponential, &[1; 7]), [5, 10, 20, 40, 60, 60, 60]);
    assert_eq!(of(DelayFunction::Fibonacci, &[1; 9]), [5, 5, 10, 15, 25, 40, 60, 60, 60]);
    // What lasts as long as the longest pause has not been calm yet; a second more is.
    assert_eq!(of(DelayFunction::Exponential, &[1, 1, 1, 1, 60, 60]), [5, 10, 20, 40, 60, 60]);
    assert_eq!(of(DelayFunction::Exponential, &[1, 1, 1, 1, 61, 1, 1]), [5, 10, 20, 40, 5, 10, 20]);
    assert_eq!(of(DelayFunction::Fibonacci, &[1, 1, 1, 1, 1, 1, 1, 61, 1, 1]), [5, 5, 10, 15, 25, 40, 60, 5, 5, 10]);
    // Below the ceiling a calm time changes nothing.
    assert_eq!(of(DelayFunction::Exponential, &[1, 1, 9_999, 1]), [5, 10, 20, 40]);
}

#[test]
fn without_a_longest_pause_delays_grow_without_a_ceiling_and_stay_within_what_time_can_hold() {
    let policy = Terms { longest: 0, ..ENDLESS }.policy();
    let delay = |last: i64| next_delay(&policy, &[event(now(), 0), event(now(), last)], now());
    assert_eq!(delay(1_000_000), GoDuration::from_secs(2_000_000));
    let most = GoDuration::from_nanos(i64::MAX);
    let huge = RescheduleEvent { delay: most, ..event(now(), 0) };
    for function in [DelayFunction::Exponential, DelayFunction::Fibonacci] {
        let policy = Reschedule { delay_function: Some(function), ..policy.clone() };
        assert_eq!(next_delay(&policy, &[huge.clone(), huge.clone()], now()), most, "{function:?}");
    }
    assert_eq!(after(now(), GoDuration::from_secs(90)), now() + SignedDuration::from_secs(90));
    assert_eq!(after(Timestamp::MAX, GoDuration::from_nanos(1)), Timestamp::MAX);
    assert_eq!(after(Timestamp::MAX - SignedDuration::from_nanos(1), GoDuration::from_nanos(1)), Timestamp::MAX);
}

#[test]
fn a_policy_that_says_nothing_replaces_nothing() {
    let nothing = Reschedule::default();
    assert_eq!(next_time(&failed(&[]), &nothing, now()), None);
    let attempts = |attempts| Reschedule { attempts: Some(attempts), ..Reschedule::default() };
    for (attempts_of, wanted) in [(-1, None), (0, None), (1, Some(now()))] {
        assert_eq!(next_time(&failed(&[]), &attempts(attempts_of), now()), wanted, "{attempts_of} attempts");
    }
    assert_eq!(next_time(&failed(&[(9_999, 0)]), &attempts(9), now()), None, "no interval holds an attempt");
    let never_tried = Alloc { tracker: None, ..failed(&[]) };
    assert_eq!(next_time(&never_tried, &attempts(1), now()), Some(now()));
}

#[test]
fn attempts_are_those_within_the_interval_and_the_pause_must_be_shorter_than_it() {
    for (what, terms, past, wanted) in [
        ("the second of two", TWICE, &[(60, 5)][..], true),
        ("a third of two", TWICE, &[(120, 5), (60, 5)], false),
        ("one as old as the interval", TWICE, &[(600, 5), (60, 5)], true),
        ("one a second younger", TWICE, &[(599, 5), (60, 5)], false),
        ("a pause as long as the interval", Terms { delay: 600, ..TWICE }, &[(601, 5)], false),
        ("a pause a second shorter", Terms { delay: 599, ..TWICE }, &[(601, 5)], true),
        ("the first, whatever the pause", Terms { delay: 601, ..TWICE }, &[], true),
        ("without a limit", Terms { unlimited: true, ..TWICE }, &[(3, 5), (2, 5), (1, 5)], true),
    ] {
        let (policy, events) = (terms.policy(), events(past));
        let delay = next_delay(&policy, &events, now());
        assert_eq!(may_reschedule(&policy, &events, now(), delay), wanted, "{what}");
    }
}

/// How long ago each event of a replacement's tracker was, with its pause.
fn remembered(terms: Terms, past: &[EarlierTry]) -> Vec<EarlierTry> {
    let tracker = successor_tracker(&failed(past), &terms.policy(), now());
    assert_eq!(tracker.last_reschedule, None, "the note on a failed placement stays with the one that failed");
    let last = tracker.events.last().expect("the reschedule itself");
    assert_eq!((last.prev_alloc_id.as_str(), last.prev_node_name.as_str()), ("uid-3", "n-3"));
    let seconds =
        |event: &RescheduleEvent| (now().duration_since(event.time).as_secs(), event.delay.as_nanos() / 1_000_000_000);
    tracker.events.iter().map(seconds).collect()
}

#[test]
fn a_replacement_remembers_five_reschedules_or_those_of_the_interval_and_its_own() {
    let six = [(60, 5), (50, 10), (40, 20), (30, 40), (20, 60), (10, 60)];
    let own = (0, 60);
    assert_eq!(remembered(ENDLESS, &six), [&six[1..], &[own]].concat());
    assert_eq!(remembered(ENDLESS, &six[1..]), [&six[1..], &[own]].concat(), "five are no more than five");
    assert_eq!(remembered(ENDLESS, &[]), [(0, 5)]);
    let bounded = |past: &[EarlierTry]| remembered(TWICE, past);
    assert_eq!(bounded(&[(601, 5), (600, 5), (599, 5)]), [(600, 5), (599, 5), (0, 5)]);
    assert_eq!(bounded(&[(9_000, 5)]), [(0, 5)]);
    let many: Vec<EarlierTry> = (1..=9).rev().map(|ago| (ago, 5)).collect();
    assert_eq!(bounded(&many), [&many[..], &[(0, 5)]].concat(), "a bounded policy forgets by time alone");
}
