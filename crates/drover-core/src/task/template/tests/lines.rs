//! Files of variables, letter by letter, against a slow reading of their rules; and what a change leads to.

use fastrand::Rng;

use super::*;

/// What a value means, as a machine of one state a letter. It is written from the description of [`variables`].
fn slow_value(text: &str) -> Option<String> {
    #[derive(Clone, Copy, PartialEq)]
    enum QuoteState {
        Plain,
        Single,
        Double,
        Escape,
    }
    let (mut at, mut out, mut is_behind_blank) = (QuoteState::Plain, Vec::new(), true);
    // Each letter is kept with whether it was in quotes: blanks at the end go only where they were not.
    for letter in text.chars() {
        match (at, letter) {
            (QuoteState::Plain, '#') if is_behind_blank => break,
            (QuoteState::Plain, '\'') => at = QuoteState::Single,
            (QuoteState::Plain, '"') => at = QuoteState::Double,
            (QuoteState::Single, '\'') | (QuoteState::Double, '"') => {
                at = QuoteState::Plain;
                out.push(None);
            }
            (QuoteState::Double, '\\') => at = QuoteState::Escape,
            (QuoteState::Escape, _) => {
                at = QuoteState::Double;
                match letter {
                    'n' => out.push(Some(('\n', true))),
                    'r' => out.push(Some(('\r', true))),
                    't' => out.push(Some(('\t', true))),
                    '"' | '\\' | '$' => out.push(Some((letter, true))),
                    _ => out.extend([Some(('\\', true)), Some((letter, true))]),
                }
            }
            (QuoteState::Plain, _) => out.push(Some((letter, false))),
            (QuoteState::Single | QuoteState::Double, _) => out.push(Some((letter, true))),
        }
        is_behind_blank = at == QuoteState::Plain && letter == ' ';
    }
    if at != QuoteState::Plain {
        return None;
    }
    while out.last().is_some_and(|last| *last == Some((' ', false))) {
        out.pop();
    }
    Some(out.into_iter().flatten().map(|(letter, _)| letter).collect())
}

#[test]
fn a_value_has_the_meaning_of_its_quotes_escapes_and_comments() {
    let mut rng = Rng::with_seed(82);
    let letters = ['a', ' ', '#', '\'', '"', '\\', 'n', '$', 'é', '='];
    let (mut n_open, mut n_closed) = (0, 0);
    for _ in 0..20_000 {
        let text: String = (0..rng.usize(..9)).map(|_| letters[rng.usize(..letters.len())]).collect();
        let found = variables(format!("A={text}").as_bytes()).map(|all| all["A"].clone());
        let wanted = slow_value(text.trim()).ok_or(VariablesError::Quote(1));
        n_open += i32::from(wanted.is_err());
        n_closed += i32::from(wanted.is_ok());
        assert_eq!(found, wanted, "{text:?}");
    }
    assert!(n_open > 1000 && n_closed > 1000, "{n_open} {n_closed}");
}

#[test]
fn escapes_mean_something_between_double_quotes_alone() {
    for (written, value) in [
        (r"a\nb", r"a\nb"),
        (r"'a\nb'", r"a\nb"),
        (r#""a\nb""#, "a\nb"),
        (r#""\t\r""#, "\t\r"),
        (r#""\\n""#, r"\n"),
        (r#""\$HOME""#, "$HOME"),
        (r#""\'""#, r"\'"),
        (r#""'" '"'"#, "' \""),
        (r#""a"'b'c"#, "abc"),
        (r#"" a ""#, " a "),
        ("a # b", "a"),
        ("# b", ""),
        ("a\t# b", "a"),
        ("''#b", "#b"),
        ("'a' # b", "a"),
        ("\u{a0}a\u{a0}", "a"),
        ("a=b", "a=b"),
    ] {
        let found = variables(format!("A={written}\n").as_bytes()).map(|mut all| all.remove("A"));
        assert_eq!(found, Ok(Some(value.to_owned())), "{written}");
    }
}

#[test]
fn names_may_have_dots_and_dashes_and_export_is_a_word_of_its_own() {
    for (line, name) in [
        ("a.b-c_1=x", "a.b-c_1"),
        ("9=x", "9"),
        ("  A  =x", "A"),
        ("export\tA=x", "A"),
        ("export   A=x", "A"),
        ("export=x", "export"),
        ("exportA=x", "exportA"),
        ("export export=x", "export"),
    ] {
        let found = variables(line.as_bytes()).map(|all| all.into_iter().collect::<Vec<_>>());
        assert_eq!(found, Ok(vec![(name.to_owned(), "x".to_owned())]), "{line:?}");
    }
    for (line, wrong) in [
        ("é=x", VariablesError::Name(1)),
        ("a/b=x", VariablesError::Name(1)),
        ("export A B=x", VariablesError::Name(1)),
        ("export =x", VariablesError::Name(1)),
        ("export A", VariablesError::NoPair(1)),
        ("=", VariablesError::Name(1)),
        ("A\0=x", VariablesError::Name(1)),
    ] {
        assert_eq!(variables(line.as_bytes()), Err(wrong), "{line:?}");
    }
}

#[test]
fn the_first_wrong_line_is_named_by_its_number_in_the_file() {
    for (text, wrong) in [
        ("\r\n# x\r\nA=1\r\nB\r\n", VariablesError::NoPair(4)),
        ("A=1\n\n\n'B'=2\nC", VariablesError::Name(4)),
        ("A='\n'", VariablesError::Quote(1)),
        ("A=\"\\", VariablesError::Quote(1)),
        ("# A='\nB=\"a\\\"", VariablesError::Quote(2)),
    ] {
        assert_eq!(variables(text.as_bytes()), Err(wrong), "{text:?}");
    }
    assert_eq!(variables(b"A=1\r\nB=2\r\n").map(|all| all["A"].clone()), Ok("1".to_owned()));
    assert_eq!(variables(b""), Ok(BTreeMap::new()));
    assert_eq!(variables(b"A=1\n\xff=2\n"), Err(VariablesError::NoText));
}

fn mode(rng: &mut Rng) -> Value {
    let splay = ["0s", "3s", "7s"][rng.usize(..3)];
    match rng.u8(..5) {
        0 => json!({ "changeMode": "noop", "splay": splay }),
        1 => json!({ "changeMode": "restart", "splay": splay }),
        2 => {
            let signal = ["SIGHUP", "SIGUSR1"][rng.usize(..2)];
            json!({ "changeMode": "signal", "changeSignal": signal, "splay": splay })
        }
        3 => json!({ "changeMode": "script", "changeScript": { "command": "x" }, "splay": splay }),
        _ => json!({}),
    }
}

#[test]
fn what_follows_on_several_changes_is_the_table_of_the_specification() {
    let mut rng = Rng::with_seed(152);
    for _ in 0..2000 {
        let written: Vec<Value> = (0..rng.usize(..5)).map(|_| mode(&mut rng)).collect();
        let templates: Vec<Template> = written.iter().map(template).collect();
        let found = reaction((10..).zip(&templates));
        let of = |at: usize| written[at]["changeMode"].as_str().unwrap_or("restart").to_owned();
        let places: Vec<usize> = (0..written.len()).collect();
        let has_restart = places.iter().any(|at| of(*at) == "restart");
        let with = |mode: &str| places.iter().copied().filter(|at| of(*at) == mode && !has_restart).collect::<Vec<_>>();
        let signals = with("signal").into_iter().map(|at| written[at]["changeSignal"].as_str().unwrap().to_owned());
        let splay = |at: &usize| match written[*at]["splay"].as_str().unwrap_or("5s") {
            "0s" => 0,
            "3s" => 3,
            "5s" => 5,
            _ => 7,
        };
        let longest = places.iter().filter(|at| of(**at) != "noop").map(splay).max().unwrap_or(0);
        let wanted = ChangeReaction {
            restart: has_restart,
            signals: signals.collect(),
            scripts: with("script").into_iter().map(|at| at + 10).collect(),
            splay: Duration::from_secs(longest),
        };
        assert_eq!(found, wanted, "{written:?}");
        assert_eq!(found.is_nothing(), places.iter().all(|at| of(*at) == "noop"), "{written:?}");
    }
}

#[test]
fn a_wait_is_that_of_the_template_or_the_usual_one_and_never_shorter_than_the_shortest() {
    for (wait, min, max) in [
        (json!({}), 5_000, 240_000),
        (json!({ "wait": {} }), 5_000, 240_000),
        (json!({ "wait": { "min": "10s" } }), 10_000, 240_000),
        (json!({ "wait": { "min": "4m" } }), 240_000, 240_000),
        (json!({ "wait": { "min": "241s" } }), 241_000, 241_000),
        (json!({ "wait": { "max": "10s" } }), 5_000, 10_000),
        (json!({ "wait": { "min": "249ms", "max": "250ms" } }), 250, 250),
        (json!({ "wait": { "min": "251ms", "max": "251ms" } }), 251, 251),
    ] {
        let found = ChangeWait::of(&template(&wait));
        let wanted = ChangeWait { min: Duration::from_millis(min), max: Duration::from_millis(max) };
        assert_eq!(found, wanted, "{wait}");
    }
}
