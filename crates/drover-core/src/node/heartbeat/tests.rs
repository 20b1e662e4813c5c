//! Who is silent for too long, second by second.

use super::*;

const fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn ledger(ttl: u64, grace: u64, proof_gap: u64) -> Ledger {
    Ledger::new(Allowed { ttl: s(ttl), grace: s(grace) }, s(proof_gap))
}

fn names(ledger: &mut Ledger) -> Vec<String> {
    ledger.expire(|_| Some("default")).nodes.iter().map(ToString::to_string).collect()
}

#[test]
fn a_silent_node_is_named_once_the_watch_is_proven_live_after_its_deadline() {
    let mut ledger = ledger(10, 10, 4);
    ledger.prove_live(s(0));
    ledger.beat("a".into(), s(0));
    for second in (2..=20).step_by(2) {
        ledger.prove_live(s(second));
    }
    assert_eq!(names(&mut ledger), Vec::<String>::new());
    ledger.prove_live(s(22));
    assert_eq!(names(&mut ledger), ["a"]);
}

#[test]
fn silence_of_the_leaders_own_gives_every_node_a_fresh_start() {
    let mut ledger = ledger(2, 2, 1);
    ledger.prove_live(s(0));
    ledger.beat("a".into(), s(0));
    ledger.prove_live(s(60));
    assert_eq!(names(&mut ledger), Vec::<String>::new());
    for second in 61..=359 {
        ledger.prove_live(s(second));
    }
    assert_eq!(names(&mut ledger), Vec::<String>::new());
    ledger.prove_live(s(360));
    ledger.prove_live(s(361));
    assert_eq!(names(&mut ledger), ["a"]);
}

#[test]
fn a_new_term_waits_for_nodes_it_has_not_heard_of() {
    let mut ledger = ledger(10, 10, 4);
    ledger.expect("a".into(), s(0));
    let mut second = 0;
    while second <= 300 {
        ledger.prove_live(s(second));
        assert_eq!(names(&mut ledger), Vec::<String>::new());
        second += 2;
    }
    ledger.prove_live(s(302));
    assert_eq!(names(&mut ledger), ["a"]);
}

#[test]
fn s_171_the_ttl_follows_the_number_of_nodes_and_a_node_expires_10_s_after_it() {
    // Where the reference adds a random part to each answer, here every agent spreads its own renewals.
    assert_eq!((ttl(s(10), 100, 50), ttl(s(10), 1000, 50)), (s(10), s(20)));
    let mut ledger = Ledger::new(Allowed { ttl: ttl(s(10), 1000, 50), grace: s(10) }, s(4));
    ledger.beat("a".into(), s(0));
    for second in (0..=30).step_by(2) {
        ledger.prove_live(s(second));
        assert_eq!(names(&mut ledger), Vec::<String>::new(), "after {second} s");
    }
    ledger.prove_live(s(32));
    assert_eq!(names(&mut ledger), ["a"]);
}

#[test]
fn who_is_late_when_another_node_is_marked_is_suspected_until_it_is_heard_of_or_marked_itself() {
    let mut ledger = ledger(10, 10, 4);
    let mut suspects_at = |second: u64, beats: &[&str]| {
        for node in beats {
            ledger.beat(NodeName::from(*node), s(second));
        }
        ledger.prove_live(s(second));
        let expired = ledger.expire(|_| Some("default"));
        let names = |nodes: Vec<NodeName>| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        (names(expired.nodes), names(expired.suspects.into_iter().collect()))
    };
    let seen = |marked: &str, suspects: &str| (marked.to_owned(), suspects.to_owned());
    assert_eq!(suspects_at(0, &["a"]), seen("", ""));
    assert_eq!(suspects_at(3, &["b", "c"]), seen("", ""));
    for second in (6..=18).step_by(3) {
        let beats: &[&str] = if second == 12 { &["d"] } else { &[] };
        assert_eq!(suspects_at(second, beats), seen("", ""), "late alone means nothing, after {second} s");
    }
    assert_eq!(suspects_at(21, &[]), seen("a", "b,c"), "d is not late");
    assert_eq!(suspects_at(22, &["c"]), seen("", "b"));
    assert_eq!(suspects_at(25, &[]), seen("b", "d"));
}

#[test]
fn the_ttl_grows_in_powers_of_two() {
    for (nodes, wanted) in [(1, 10), (2500, 10), (2501, 20), (5000, 20), (10_000, 40)] {
        assert_eq!(ttl(s(10), nodes, 250), s(wanted), "{nodes}");
    }
}

/// Nodes of pools, each of which beats once per TTL at a second of its own.
struct Pools {
    ledger: Ledger,
    sizes: BTreeMap<&'static str, u64>,
    ttl: u64,
    second: u64,
    marked: BTreeMap<u64, Vec<String>>,
    slowed: Vec<Slowed>,
}

impl Pools {
    fn new(ttl: u64, sizes: &[(&'static str, u64)]) -> Self {
        let sizes: BTreeMap<_, _> = sizes.iter().copied().collect();
        let mut pools =
            Self { ledger: ledger(ttl, 10, 4), sizes, ttl, second: 0, marked: BTreeMap::new(), slowed: Vec::new() };
        pools.run(ttl * 3, |_, _| true);
        pools
    }

    /// Lets time pass; only these nodes of a pool beat.
    fn run(&mut self, seconds: u64, beats: impl Fn(&str, u64) -> bool) {
        for _ in 0..seconds {
            self.second += 1;
            for (pool, size) in self.sizes.clone() {
                let its_turn = |number: &u64| (number * 7) % self.ttl == self.second % self.ttl;
                for number in (0..size).filter(its_turn).filter(|number| beats(pool, *number)) {
                    self.ledger.beat(NodeName::from(format!("{pool}-{number}")), s(self.second));
                }
            }
            self.ledger.prove_live(s(self.second));
            let sizes = &self.sizes;
            let pool_of = |node: &NodeName| {
                let (pool, _) = node.as_str().split_once('-')?;
                sizes.get_key_value(pool).map(|(pool, _)| *pool)
            };
            let expired = self.ledger.expire(pool_of);
            self.slowed = expired.slowed;
            let names: Vec<String> = expired.nodes.iter().map(ToString::to_string).collect();
            if !names.is_empty() {
                self.marked.insert(self.second, names);
            }
        }
    }

    fn n_marked(&self) -> usize {
        self.marked.values().map(Vec::len).sum()
    }
}

#[test]
fn nodes_of_a_pool_that_falls_silent_for_the_most_part_are_marked_one_after_the_other() {
    for ttl in [10, 20, 40] {
        let mut pools = Pools::new(ttl, &[("a", 100), ("b", 20)]);
        pools.run(10 + 65, |pool, number| pool == "b" || number >= 70);
        assert!((6..=8).contains(&pools.n_marked()), "TTL {ttl} s: {:?}", pools.marked);
        assert!(pools.marked.values().all(|at_once| at_once.len() == 1), "TTL {ttl} s: {:?}", pools.marked);
        let [slowed] = &pools.slowed[..] else { panic!("{:?}", pools.slowed) };
        assert_eq!((&*slowed.pool, slowed.n_silent, slowed.n_nodes), ("a", 70, 100), "TTL {ttl} s");
        assert_eq!(slowed.held.len() + pools.n_marked(), 70);
    }
}

#[test]
fn where_less_than_55_percent_fall_silent_all_are_marked_at_once() {
    for (n_silent, at_once) in [(1, true), (30, true), (45, true), (60, false), (100, false)] {
        let mut pools = Pools::new(20, &[("a", 100)]);
        pools.run(50, |_, number| number >= n_silent);
        assert_eq!(pools.n_marked() == usize::try_from(n_silent).unwrap(), at_once, "{n_silent}: {:?}", pools.marked);
    }
}

#[test]
fn a_small_pool_is_never_slowed_and_a_single_node_of_a_greater_one_does_not_wait() {
    let mut pools = Pools::new(10, &[("a", 4)]);
    pools.run(22, |_, _| false);
    assert_eq!(pools.n_marked(), 4);
    for ttl in [10, 40] {
        let mut pools = Pools::new(ttl, &[("a", 5)]);
        pools.run(ttl * 2 + 11, |_, number| number != 2);
        assert_eq!(pools.n_marked(), 1, "TTL {ttl} s");
        assert_eq!(pools.slowed, [], "TTL {ttl} s");
    }
}

#[test]
fn another_pool_is_not_slowed() {
    let mut pools = Pools::new(20, &[("a", 100), ("b", 20)]);
    pools.run(50, |pool, number| pool == "b" && number >= 3);
    let of_b = pools.marked.values().flatten().filter(|name| name.starts_with('b')).count();
    assert_eq!(of_b, 3, "{:?}", pools.marked);
}

#[test]
fn when_most_are_heard_of_again_the_rest_is_marked_at_once() {
    let mut pools = Pools::new(20, &[("a", 100)]);
    pools.run(60, |_, number| number >= 80);
    assert!(pools.n_marked() < 6, "{:?}", pools.marked);
    pools.run(50, |_, number| number >= 20);
    assert_eq!(pools.slowed, []);
    let marked: BTreeSet<&String> = pools.marked.values().flatten().collect();
    let times: Vec<u64> = pools.marked.keys().copied().collect();
    let (slow, _) = times.split_at(times.len() - 1);
    assert!(
        slow.windows(2).all(|pair| pair[1] - pair[0] >= 10),
        "those that come back hurry nothing: {:?}",
        pools.marked
    );
    let stay_away = (0..20).map(|number| format!("a-{number}"));
    assert!(stay_away.into_iter().all(|name| marked.contains(&name)), "{:?}", pools.marked);
    assert!(marked.len() < 28, "only few of those that came back were marked: {:?}", pools.marked);
}

#[test]
fn a_new_leader_that_hears_of_few_nodes_marks_slowly_too() {
    for (n_silent, at_once) in [(30, true), (70, false)] {
        let mut pools = Pools::new(20, &[("a", 0)]);
        for number in 0..100 {
            pools.ledger.expect(NodeName::from(format!("a-{number}")), s(pools.second));
        }
        pools.sizes.insert("a", 100);
        pools.run(FRESH_START.as_secs() + 2, |_, number| number >= n_silent);
        assert_eq!(pools.n_marked() == usize::try_from(n_silent).unwrap(), at_once, "{:?}", pools.marked);
    }
}

/// What `expire` says in each second of a run, where it says something: who is marked, and who is held back.
type Marks = BTreeMap<u64, (Vec<String>, Vec<String>)>;

/// Lets the seconds of a range pass, with a proof in each; `beats` names the nodes that are heard of in one.
fn pass(
    ledger: &mut Ledger,
    seconds: std::ops::RangeInclusive<u64>,
    beats: impl Fn(u64) -> Vec<&'static str>,
) -> Marks {
    let mut marks = Marks::new();
    let names = |nodes: Vec<NodeName>| nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
    for second in seconds {
        for node in beats(second) {
            ledger.beat(node.into(), s(second));
        }
        ledger.prove_live(s(second));
        let expired = ledger.expire(|_| Some("default"));
        let held: Vec<NodeName> = expired.slowed.into_iter().flat_map(|slowed| slowed.held).collect();
        let seen = (names(expired.nodes), names(held));
        if seen != (Vec::new(), Vec::new()) {
            marks.insert(second, seen);
        }
    }
    marks
}

/// The nodes that are heard of in a second: each every 10 s, from its first second up to its last.
fn beats_of(nodes: &[(&'static str, u64, u64)], second: u64) -> Vec<&'static str> {
    let is_due = |first: u64, last: u64| (first..=last).contains(&second) && (second - first).is_multiple_of(10);
    nodes.iter().filter(|(_, first, last)| is_due(*first, *last)).map(|(node, _, _)| *node).collect()
}

fn marks(of: &[(u64, &[&str], &[&str])]) -> Marks {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    of.iter().map(|(second, marked, held)| (*second, (names(marked), names(held)))).collect()
}

const ALWAYS: u64 = 1000;

#[test]
fn exactly_55_percent_missing_is_not_most() {
    for (n_missing, n_came, wanted) in [(11, 9, false), (12, 9, true), (11, 8, true), (55, 45, false), (56, 45, true)] {
        let tally = PoolTally { n_nodes: n_missing + n_came, n_missing, n_came, first_missing: None };
        assert_eq!(tally.is_mass(), wanted, "{n_missing} of {}", n_missing + n_came);
    }
}

#[test]
fn a_change_of_what_is_allowed_holds_from_the_next_beat_on() {
    let mut ledger = ledger(10, 10, 4);
    ledger.beat("a".into(), s(0));
    ledger.beat("b".into(), s(0));
    ledger.set_allowed(Allowed { ttl: s(20), grace: s(20) });
    let seen = pass(&mut ledger, 1..=60, |second| if second == 5 { vec!["b"] } else { vec![] });
    assert_eq!(seen, marks(&[(21, &["a"], &[]), (46, &["b"], &[])]));
}

#[test]
fn a_node_that_is_gone_is_neither_marked_nor_suspected() {
    let mut ledger = ledger(10, 10, 4);
    let nodes = [("a", 0, 0), ("b", 3, 3), ("c", 4, 4), ("d", 6, 6)];
    assert_eq!(pass(&mut ledger, 0..=21, |second| beats_of(&nodes, second)), marks(&[(21, &["a"], &[])]));
    let suspects = |ledger: &mut Ledger| {
        let suspects = ledger.expire(|_| Some("default")).suspects;
        suspects.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(suspects(&mut ledger), ["b", "c", "d"]);
    ledger.forget(&"b".into());
    assert_eq!(suspects(&mut ledger), ["c", "d"]);
    ledger.forget(&"c".into());
    assert_eq!(pass(&mut ledger, 22..=60, |_| vec![]), marks(&[(27, &["d"], &[])]));
}

#[test]
fn a_mark_counts_as_missing_for_one_ttl_after_it_while_nothing_is_silent() {
    // `a` is marked at 21. Two missing ones alone never slow marking; with `a` they are three, to two that came.
    let both: &[&str] = &["b", "c"];
    let runs: [(u64, &[&str], &[&str]); 5] =
        [(9, &[], both), (10, &["b"], &["c"]), (11, &["b"], &["c"]), (12, both, &[]), (15, both, &[])];
    for (last, marked, held) in runs {
        let mut ledger = ledger(10, 10, 4);
        let first = last % 10;
        let nodes = [("a", 0, 0), ("b", first, last), ("c", first, last), ("d", 0, ALWAYS), ("e", 0, ALWAYS)];
        let at = last + 21;
        let seen = pass(&mut ledger, 0..=at, |second| beats_of(&nodes, second));
        assert_eq!(seen, marks(&[(21, &["a"], &[]), (at, marked, held)]), "silent since {last}");
    }
}

#[test]
fn of_a_silent_pool_a_node_is_marked_every_ten_seconds() {
    let mut ledger = ledger(10, 10, 4);
    let nodes = ["a", "b", "c", "d", "e"];
    let seen = pass(&mut ledger, 0..=65, |second| if second == 0 { nodes.to_vec() } else { vec![] });
    let at: Vec<(u64, Vec<String>)> =
        seen.into_iter().filter(|(_, (marked, _))| !marked.is_empty()).map(|(at, (marked, _))| (at, marked)).collect();
    let wanted: Vec<(u64, Vec<String>)> =
        (0..).zip(nodes).map(|(n, node)| (21 + 10 * n, vec![node.to_owned()])).collect();
    assert_eq!(at, wanted);
}

#[test]
fn marking_is_slow_until_30_s_after_most_were_last_missing() {
    // Three of five are silent since 0: slow from 21 on. Two of them come back at 22, so that 21 was the last time.
    // `x` and `y` are over at once in a second of their own.
    for (last, at, is_slow) in [(28, 49, true), (29, 50, true), (30, 51, false), (31, 52, false)] {
        let mut ledger = ledger(10, 10, 4);
        let back = [("b", 22, ALWAYS), ("c", 22, ALWAYS), ("d", 3, ALWAYS), ("e", 3, ALWAYS)];
        let nodes = [&[("a", 0, 0), ("b", 0, 0), ("c", 0, 0)], &back[..], &[("x", last, last), ("y", last, last)]];
        let nodes = nodes.concat();
        let seen = pass(&mut ledger, 0..=at, |second| beats_of(&nodes, second));
        let (marked, held): (&[&str], &[&str]) = if is_slow { (&["x"], &["y"]) } else { (&["x", "y"], &[]) };
        let wanted = marks(&[(21, &["a"], &["b", "c"]), (at, marked, held)]);
        assert_eq!(seen, wanted, "silent since {last}");
    }
}

#[test]
fn a_heartbeat_that_may_be_on_its_way_still_makes_no_suspect() {
    // A fifth of the grace: 2 s after it was due. At 21 those of 9 and later may be on their way.
    let mut ledger = ledger(10, 10, 4);
    let nodes = [("a", 0, 0), ("b", 7, 7), ("c", 8, 8), ("d", 9, 9), ("e", 10, 10)];
    assert_eq!(pass(&mut ledger, 0..=21, |second| beats_of(&nodes, second)), marks(&[(21, &["a"], &[])]));
    let suspects = ledger.expire(|_| Some("default")).suspects;
    assert_eq!(suspects.iter().map(ToString::to_string).collect::<Vec<_>>(), ["b", "c"]);
}

#[test]
fn a_heartbeat_that_may_be_on_its_way_still_is_not_missing() {
    // At 26 `a` and `b` are silent. With `c` three of five would be missing, and of the others only `d` came in time.
    for (last_of_c, is_slow) in [(12, true), (13, true), (14, false), (15, false)] {
        let mut ledger = ledger(10, 10, 4);
        let first = last_of_c % 10;
        let nodes = [("a", 5, 5), ("b", 5, 5), ("c", first, last_of_c), ("d", 3, ALWAYS), ("e", 5, ALWAYS)];
        let seen = pass(&mut ledger, 0..=26, |second| beats_of(&nodes, second));
        let (marked, held): (&[&str], &[&str]) = if is_slow { (&["a"], &["b"]) } else { (&["a", "b"], &[]) };
        assert_eq!(seen, marks(&[(26, marked, held)]), "last heard of at {last_of_c}");
    }
}

#[test]
fn those_count_as_heard_of_whose_heartbeats_came_since_the_first_missing_one_but_not_just_now() {
    // Three are silent since 5, due at 15, and over at 26. The three others are missing in no case.
    for (first, last, is_slow) in [(4, 14, false), (2, 22, false), (3, 23, false), (4, 24, true), (5, 25, true)] {
        let mut ledger = ledger(10, 10, 4);
        let nodes = [("a", 5, 5), ("b", 5, 5), ("c", 5, 5), ("d", first, last), ("e", first, last), ("f", first, last)];
        let seen = pass(&mut ledger, 0..=26, |second| beats_of(&nodes, second));
        let (marked, held): (&[&str], &[&str]) = if is_slow { (&["a"], &["b", "c"]) } else { (&["a", "b", "c"], &[]) };
        assert_eq!(seen, marks(&[(26, marked, held)]), "the others were heard of at {last}");
    }
}

#[test]
fn the_ttl_grows_to_a_day_at_most() {
    let day = Duration::from_hours(24);
    for (minimum, wanted) in
        [(day, day), (day / 2, day), (day / 4, day), (day * 2, day * 2), (s(0), Duration::from_millis(1 << 27))]
    {
        let got = ttl(minimum, 1_000_000_000, 1);
        assert_eq!(got, wanted, "{minimum:?}");
    }
}
