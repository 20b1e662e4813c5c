//! Random templates, rendered by both.

use super::oracle::answers;
use super::{order, rendered};

/// A value of any kind.
const TERMS: &[&str] = &[
    "1",
    "0",
    "-7",
    "2.5",
    "1e3",
    "\"\"",
    "\"abc\"",
    "\"a,b\"",
    "true",
    "false",
    ".",
    "$",
    "'x'",
    "`r`",
    "0x10",
    "(parseJSON \"{\\\"a\\\":[1,\\\"x\\\"],\\\"b\\\":null}\")",
    "(split \",\" \"c,a\")",
    "(splitToMap \",\" \"=\" \"k=v\")",
    "(parseInt \"3\")",
    "(parseUint \"4\")",
    "(env \"A\")",
    "(key \"app/x\")",
    "nil",
    "(index (nomadService \"api\") 0).Tags",
];
const CALLS: &[(&str, usize)] = &[
    ("print", 2),
    ("println", 1),
    ("printf \"%v|%d|%s\"", 3),
    ("printf \"%5.1f|%q|%x\"", 3),
    ("printf \"%T\"", 1),
    ("len", 1),
    ("index", 2),
    ("slice", 2),
    ("eq", 2),
    ("ne", 2),
    ("lt", 2),
    ("le", 2),
    ("gt", 2),
    ("ge", 2),
    ("and", 2),
    ("or", 2),
    ("not", 1),
    ("html", 1),
    ("js", 1),
    ("urlquery", 1),
    ("add", 2),
    ("subtract", 2),
    ("multiply", 2),
    ("minimum", 2),
    ("maximum", 2),
    ("modulo", 2),
    ("divide", 2),
    ("toJSON", 1),
    ("toUpper", 1),
    ("toTitle", 1),
    ("trimSpace", 1),
    ("join \"-\"", 1),
    ("contains", 2),
    ("in", 2),
    ("replaceAll \"a\"", 2),
    ("md5sum", 1),
    ("indent 2", 1),
    ("base64Encode", 1),
    ("parseInt", 1),
    ("parseBool", 1),
    ("split \",\"", 1),
];

fn term(rng: &mut fastrand::Rng, depth: usize) -> String {
    if depth == 0 || rng.u8(0..3) == 0 {
        return TERMS[rng.usize(0..TERMS.len())].to_owned();
    }
    format!("({})", call(rng, depth - 1))
}

fn call(rng: &mut fastrand::Rng, depth: usize) -> String {
    let (name, n) = CALLS[rng.usize(0..CALLS.len())];
    let is_piped = rng.u8(0..4) == 0;
    let terms: Vec<String> = (0..n - usize::from(is_piped)).map(|_| term(rng, depth)).collect();
    let call = format!("{name} {}", terms.join(" "));
    if is_piped { format!("{} | {call}", term(rng, depth).replace("nil", "1")) } else { call }
}

fn template(rng: &mut fastrand::Rng, depth: usize) -> String {
    let mut out = String::new();
    for _ in 0..rng.usize(1..3) {
        let inner = |rng: &mut fastrand::Rng| if depth == 0 { "x".to_owned() } else { template(rng, depth - 1) };
        let part = match rng.u8(0..8) {
            0 => format!("{{{{ if {} }}}}{}{{{{ else }}}}{}{{{{ end }}}}", call(rng, 1), inner(rng), inner(rng)),
            1 => format!("{{{{ range {} }}}}{}{{{{ else }}}}none{{{{ end }}}}", term(rng, 1), inner(rng)),
            2 => format!("{{{{ with {} }}}}{}{{{{ else }}}}{{{{ . }}}}{{{{ end }}}}", term(rng, 1), inner(rng)),
            3 => format!("{{{{ $v := {} }}}}{{{{ $v }}}}", term(rng, 1)),
            4 => " text ".to_owned(),
            5 => format!("{{{{- {} -}}}}", call(rng, 1)),
            _ => format!("{{{{ {} }}}}", call(rng, 2)),
        };
        out += &part;
    }
    out
}

/// Where a pointer points to is chance.
fn without_addresses(text: &str) -> String {
    let address = regex::Regex::new("(0[xX])?[0-9a-fA-F]{9,}").expect("an expression");
    address.replace_all(text, "address").into_owned()
}

/// B-059: 10,000 with `--long`.
#[test]
fn b_059_random_templates_give_the_bytes_of_consul_template() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    // A long run tries others each time; CI the same ones, so that what it finds is of the change.
    let usual = if number("DROVER_TEMPLATES").is_some() { fastrand::u64(..) } else { 1 };
    let seed = number("DROVER_SEED").unwrap_or(usual);
    let n = number("DROVER_TEMPLATES").unwrap_or(500);
    let mut rng = fastrand::Rng::with_seed(seed);
    let orders: Vec<_> = (0..n).map(|_| order(&template(&mut rng, 2))).collect();
    let mut differing = Vec::new();
    for (order, expected) in orders.iter().zip(answers(&orders)) {
        let ours = rendered(order);
        let is_same = match (&ours, &expected) {
            (Ok(ours), Ok(expected)) => {
                without_addresses(ours) == without_addresses(&String::from_utf8_lossy(expected))
            }
            (Err(_), Err(_)) => true,
            _ => false,
        };
        if !is_same {
            let expected = expected.map(|text| String::from_utf8_lossy(&text).into_owned());
            differing.push(format!(
                "{}\n  ours  {ours:?}\n  Go's  {expected:?}",
                String::from_utf8_lossy(&order.template.0)
            ));
        }
    }
    assert!(
        differing.is_empty(),
        "DROVER_SEED={seed}: {} of {n} differ:\n{}",
        differing.len(),
        differing[..differing.len().min(12)].join("\n")
    );
}
