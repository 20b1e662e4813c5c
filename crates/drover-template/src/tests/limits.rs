//! What a template has too much of is an error that says so (B-060).

use proptest::prelude::*;

use super::{RenderAnswer, RenderLimit, RenderLimits, order, render};

fn limit_of(template: &str) -> Option<RenderLimit> {
    match render(&order(template)) {
        RenderAnswer::Failed(error) => error.limit,
        other => panic!("it was rendered: {other:?}"),
    }
}

/// B-060: recursion without an end is an error.
#[test]
fn b_060_endless_recursion_is_an_error() {
    assert_eq!(limit_of(r#"{{define "a"}}{{template "a" .}}{{end}}{{template "a"}}"#), Some(RenderLimit::Depth));
}

/// B-060: as are templates that call each other as deep as may be, with all that a template can nest.
#[test]
fn b_060_the_stack_is_enough_for_the_depth_that_is_allowed() {
    let mut order = order(
        r#"{{define "a"}}{{if true}}{{with 1}}{{range loop 1}}{{template "a" (print (print 1))}}{{end}}{{end}}{{end}}{{end}}{{template "a"}}"#,
    );
    order.limits.depth = u64::MAX;
    let RenderAnswer::Failed(error) = render(&order) else { panic!("it ends") };
    assert_eq!(error.limit, Some(RenderLimit::Depth));
}

/// B-060: 1 GB of text is an error.
#[test]
fn b_060_a_gigabyte_of_text_is_an_error() {
    let text = "x".repeat(1000);
    assert_eq!(limit_of(&format!("{{{{range loop 1000000}}}}{text}{{{{end}}}}")), Some(RenderLimit::Output));
    let doubling = r#"{{$x := "xxxxxxxx"}}{{range loop 40}}{{$x = print $x $x}}{{end}}{{$x}}"#;
    assert_eq!(limit_of(doubling), Some(RenderLimit::Memory));
    assert_eq!(limit_of(r#"{{range loop 2000}}{{printf "%999999d" 1}}{{end}}"#), Some(RenderLimit::Output));
}

#[test]
fn a_loop_without_an_end_is_an_error() {
    let mut order = order("{{range loop 9000000000000}}{{end}}");
    order.limits = RenderLimits::USUAL;
    let RenderAnswer::Failed(error) = render(&order) else { panic!("it ends") };
    assert!(matches!(error.limit, Some(RenderLimit::Steps | RenderLimit::Time)));
}

#[test]
fn parentheses_and_values_in_each_other_end_no_process() {
    let deep = format!("{{{{{}1{}}}}}", "(".repeat(9000), ")".repeat(9000));
    drop(render(&order(&deep)));
    let list = "{{$x := sprig_list}}{{range loop 200000}}{{$x = sprig_list $x}}{{end}}{{$x | toJSON}}";
    drop(render(&order(list)));
    let ifs = format!("{}{}", "{{if 1}}".repeat(100_000), "{{end}}".repeat(100_000));
    drop(render(&order(&ifs)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever bytes there are: an answer, and no panic.
    #[test]
    fn no_bytes_break_the_engine(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut order = order("");
        order.template.0 = bytes;
        drop(render(&order));
    }

    /// The same for words of templates in any order.
    #[test]
    fn no_words_break_the_engine(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..40)) {
        let RenderAnswer::Failed(error) = render(&order(&words.concat())) else { return Ok(()) };
        prop_assert!(!error.message.contains("broke off"), "{}: {}", words.concat(), error);
    }
}

const WORDS: &[&str] = &[
    "{{",
    "}}",
    "{{- ",
    " -}}",
    "if ",
    "else ",
    "end",
    "range ",
    "with ",
    "$x",
    " := ",
    " = ",
    ", ",
    ".",
    ".a",
    "(",
    ")",
    " | ",
    "printf ",
    "\"%*d %[2]v%s\"",
    "print ",
    "index ",
    "slice ",
    "len ",
    "1",
    "-1",
    "0x1p3",
    "1i",
    "'a'",
    "`x`",
    " ",
    "nil",
    "true",
    "break",
    "continue",
    "define \"a\"",
    "template \"a\"",
    "block \"b\" .",
    "/* c */",
    "scratch",
    ".Set ",
    "\"x\"",
    "eq ",
    "loop ",
    "parseJSON ",
    "toJSON ",
    "nomadVar ",
    "\"nomad/jobs/web\"",
    ".Keys",
    "\n",
    "key ",
    "toYAML ",
];
