//! Output of probes at the bound of its bytes.

use fastrand::Rng;

use super::*;

/// As many whole letters as fit, one after the other.
fn slow_cut(text: &str, bytes: usize) -> String {
    let mut out = String::new();
    for letter in text.chars() {
        if out.len() + letter.len_utf8() > bytes {
            break;
        }
        out.push(letter);
    }
    out
}

#[test]
fn as_many_whole_letters_are_kept_as_fit() {
    let mut rng = Rng::with_seed(137);
    let letters = ['a', 'é', '€', '😀'];
    for _ in 0..5000 {
        let text: String = (0..rng.usize(..10)).map(|_| letters[rng.usize(..4)]).collect();
        let bytes = rng.usize(..20);
        assert_eq!(cut(&text, bytes), slow_cut(&text, bytes), "{text} to {bytes}");
    }
}

#[test]
fn output_of_each_kind_of_probe_has_at_most_3072_bytes() {
    let at_most = "x".repeat(MAX_BODY_BYTES);
    let longer = "x".repeat(MAX_BODY_BYTES + 1);
    assert_eq!(http_answer(500, longer.as_bytes()).output, at_most);
    assert_eq!(http_answer(201, at_most.as_bytes()).output, at_most);
    assert_eq!(CheckAnswer::failure(longer.clone()).output, at_most);
    assert_eq!(script_answer(0, longer.as_bytes()).output, at_most);
    let failed = script_answer(2, longer.as_bytes()).output;
    assert_eq!(failed, format!("exit code 2: {}", &at_most["exit code 2: ".len()..]));
    // What is no text becomes three bytes each.
    let replaced = http_answer(500, &[0xff; MAX_BODY_BYTES]).output;
    assert_eq!(replaced, "\u{fffd}".repeat(MAX_BODY_BYTES / 3));
}

#[test]
fn each_status_is_a_success_below_400_and_a_failure_from_there() {
    for status in 100..600 {
        let answer = http_answer(status, b"body");
        let state = if status >= 400 { CheckState::Failure } else { CheckState::Success };
        let output = if status == 200 { "http ok" } else { "body" };
        assert_eq!((answer.state, answer.output.as_str(), answer.status_code), (state, output, Some(status)));
    }
}

#[test]
fn blanks_around_what_a_script_wrote_are_no_output() {
    for (code, output, shown) in [
        (0, " \n\t", "script ok"),
        (0, "\n a b \n", "a b"),
        (2, " \n", "exit code 2"),
        (1, "\n x\n", "exit code 1: x"),
        (0, "\u{0}", "\u{0}"),
        (i32::MIN, "", "exit code -2147483648"),
    ] {
        assert_eq!(script_answer(code, output.as_bytes()).output, shown, "{code} {output:?}");
    }
}
