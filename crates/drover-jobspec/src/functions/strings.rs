//! Functions on strings.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use regex::Regex;
use unicode_segmentation::UnicodeSegmentation as _;

use super::arguments::Arguments;
use super::context::{Context, Outcome};
use super::encoding::json;
use crate::value::{Number, Value};

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>, context: &Context<'_>) -> Option<Outcome> {
    Some(match name {
        "chomp" => one(arguments, |text| text.trim_end_matches(['\n', '\r']).to_owned()),
        "lower" => one(arguments, str::to_lowercase),
        "upper" => one(arguments, |text| text.chars().map(upper).collect()),
        "title" => one(arguments, title),
        "trimspace" => one(arguments, |text| text.trim().to_owned()),
        "strrev" | "reverse" if name == "strrev" || matches!(arguments.all(), [Value::Text(_)]) => {
            one(arguments, |text| text.graphemes(true).rev().collect())
        }
        "trim" => two(arguments, |text, set| text.trim_matches(|letter| set.contains(letter)).to_owned()),
        "trimprefix" => two(arguments, |text, prefix| text.strip_prefix(prefix).unwrap_or(text).to_owned()),
        "trimsuffix" => two(arguments, |text, suffix| text.strip_suffix(suffix).unwrap_or(text).to_owned()),
        "startswith" => test(arguments, |text, prefix| text.starts_with(prefix)),
        "endswith" => test(arguments, |text, suffix| text.ends_with(suffix)),
        "strcontains" => test(arguments, |text, part| text.contains(part)),
        "strlen" => arguments.count(1).and_then(|()| Ok(Value::whole(arguments.text(0)?.graphemes(true).count()))),
        "substr" => substr(arguments),
        "indent" => indent(arguments),
        "join" => join(arguments, context),
        "split" => split(arguments),
        "replace" => replace(arguments, context),
        "regex_replace" => regex_replace(arguments, context),
        "regex" => arguments.count(2).and_then(|()| {
            let (pattern, text) = (pattern(&arguments.text(0)?)?, arguments.text(1)?);
            let captures = pattern.captures(&text).ok_or("the pattern matches nothing")?;
            Ok(matched(&pattern, &captures))
        }),
        "regexall" => arguments.count(2).and_then(|()| {
            let (pattern, text) = (pattern(&arguments.text(0)?)?, arguments.text(1)?);
            Ok(Value::List(pattern.captures_iter(&text).map(|captures| matched(&pattern, &captures)).collect()))
        }),
        "format" => arguments.text(0).and_then(|form| format(&form, &arguments.all()[1..])).map(Value::Text),
        "formatlist" => format_list(arguments),
        _ => return None,
    })
}

fn one(arguments: &Arguments<'_>, change: impl Fn(&str) -> String) -> Outcome {
    arguments.count(1)?;
    Ok(Value::Text(change(&arguments.text(0)?)))
}

fn two(arguments: &Arguments<'_>, change: impl Fn(&str, &str) -> String) -> Outcome {
    arguments.count(2)?;
    Ok(Value::Text(change(&arguments.text(0)?, &arguments.text(1)?)))
}

fn test(arguments: &Arguments<'_>, holds: impl Fn(&str, &str) -> bool) -> Outcome {
    arguments.count(2)?;
    Ok(Value::Bool(holds(&arguments.text(0)?, &arguments.text(1)?)))
}

/// As Go maps letters: one to one.
fn upper(letter: char) -> char {
    let mut letters = letter.to_uppercase();
    match (letters.next(), letters.next()) {
        (Some(upper), None) => upper,
        _ => letter,
    }
}

fn title(text: &str) -> String {
    let mut is_start = true;
    let letters = text.chars().map(|letter| {
        let titled = if is_start { upper(letter) } else { letter };
        is_start = !letter.is_alphanumeric() && letter != '_';
        titled
    });
    letters.collect()
}

/// Offset from the end where it is negative; all that follows where the length is -1.
fn substr(arguments: &Arguments<'_>) -> Outcome {
    arguments.count(3)?;
    let text = arguments.text(0)?;
    let letters: Vec<&str> = text.graphemes(true).collect();
    let n = i128::try_from(letters.len()).unwrap_or(i128::MAX);
    let (offset, length) = (arguments.whole(1)?, arguments.whole(2)?);
    let start = if offset < 0 { offset.saturating_add(n).max(0) } else { offset.min(n) };
    let end = if length < 0 { n } else { start.saturating_add(length).min(n) };
    let at = |index: i128| usize::try_from(index).unwrap_or(letters.len());
    Ok(Value::Text(letters[at(start)..at(end)].concat()))
}

fn indent(arguments: &Arguments<'_>) -> Outcome {
    arguments.count(2)?;
    let (n, text) = (arguments.index(0)?, arguments.text(1)?);
    if n > 1_000 {
        return Err("argument 1 must be at most 1000".to_owned());
    }
    Ok(Value::Text(text.replace('\n', &format!("\n{}", " ".repeat(n)))))
}

fn join(arguments: &Arguments<'_>, context: &Context<'_>) -> Outcome {
    arguments.between(2, usize::MAX)?;
    let separator = arguments.text(0)?;
    let mut texts = Vec::new();
    for at in 1..arguments.all().len() {
        texts.extend(arguments.texts(at)?);
    }
    let size = texts.iter().map(|text| text.len() + separator.len()).sum();
    context.budget.bytes(size)?;
    Ok(Value::Text(texts.join(&separator)))
}

fn split(arguments: &Arguments<'_>) -> Outcome {
    arguments.count(2)?;
    let (separator, text) = (arguments.text(0)?, arguments.text(1)?);
    if separator.is_empty() {
        return Ok(Value::List(text.chars().map(|letter| Value::Text(letter.to_string())).collect()));
    }
    Ok(Value::List(text.split(&separator).map(Value::from).collect()))
}

fn replace(arguments: &Arguments<'_>, context: &Context<'_>) -> Outcome {
    arguments.count(3)?;
    let (text, wanted, replacement) = (arguments.text(0)?, arguments.text(1)?, arguments.text(2)?);
    context.budget.bytes(text.len().saturating_add(text.matches(&wanted).count().saturating_mul(replacement.len())))?;
    Ok(Value::Text(text.replace(&wanted, &replacement)))
}

fn regex_replace(arguments: &Arguments<'_>, context: &Context<'_>) -> Outcome {
    arguments.count(3)?;
    let (text, pattern, replacement) = (arguments.text(0)?, pattern(&arguments.text(1)?)?, arguments.text(2)?);
    let n = pattern.find_iter(&text).count();
    // A replacement may name all of what was found.
    let names = replacement.matches('$').count();
    context.budget.bytes(text.len().saturating_add(n.saturating_mul(replacement.len() + names * text.len())))?;
    Ok(Value::Text(pattern.replace_all(&text, replacement).into_owned()))
}

fn pattern(text: &str) -> Result<Regex, String> {
    regex::RegexBuilder::new(text).size_limit(1 << 20).build().map_err(|error| format!("the pattern is wrong: {error}"))
}

/// The whole match without groups, else a list of the groups, or a map where they have names.
fn matched(pattern: &Regex, captures: &regex::Captures<'_>) -> Value {
    let text = |group: Option<regex::Match<'_>>| group.map_or(Value::Null, |found| Value::from(found.as_str()));
    if pattern.captures_len() == 1 {
        return text(captures.get(0));
    }
    let named: BTreeMap<String, Value> =
        pattern.capture_names().flatten().map(|name| (name.to_owned(), text(captures.name(name)))).collect();
    if named.is_empty() {
        return Value::List((1..captures.len()).map(|at| text(captures.get(at))).collect());
    }
    Value::Map(named)
}

/// Go's verbs, as cty's `format` takes them: `%v %#v %t %b %o %d %x %X %f %e %g %s %q %%`, with flags, width, precision
/// and `[n]`.
fn format(form: &str, values: &[Value]) -> Result<String, String> {
    let mut text = String::new();
    let mut letters = form.chars().peekable();
    let (mut next, mut n_used) = (0, 0);
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        if letters.next_if_eq(&'%').is_some() {
            text.push('%');
            continue;
        }
        let mut flags = String::new();
        while let Some(flag) = letters.next_if(|letter| "-+# 0".contains(*letter)) {
            flags.push(flag);
        }
        let width = digits(&mut letters);
        let precision = letters.next_if_eq(&'.').map(|_| digits(&mut letters).unwrap_or(0));
        if letters.next_if_eq(&'[').is_some() {
            let at = digits(&mut letters).filter(|at| *at > 0).ok_or("`%[` needs the number of an argument")?;
            letters.next_if_eq(&']').ok_or("`%[` lacks its `]`")?;
            next = at - 1;
        }
        let verb = letters.next().ok_or("ends in the middle of a verb")?;
        let value = values.get(next).ok_or_else(|| format!("has no argument for `%{verb}` number {}", next + 1))?;
        next += 1;
        n_used = n_used.max(next);
        let plain = formatted(verb, &flags, precision, value)?;
        let width = if verb == 't' { 0 } else { width.unwrap_or(0).min(1_000) };
        let missing = width.saturating_sub(plain.chars().count());
        match (flags.contains('-'), flags.contains('0') && verb != 's' && verb != 'q') {
            (true, _) => write!(text, "{plain}{}", " ".repeat(missing)),
            (false, false) => write!(text, "{}{plain}", " ".repeat(missing)),
            (false, true) => {
                let (sign, rest) = plain.split_at(usize::from(plain.starts_with(['-', '+'])));
                write!(text, "{sign}{}{rest}", "0".repeat(missing))
            }
        }
        .map_err(|error| error.to_string())?;
    }
    if n_used < values.len() {
        return Err(format!("uses {n_used} of {} arguments", values.len()));
    }
    Ok(text)
}

fn digits(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<usize> {
    let mut text = String::new();
    while let Some(digit) = letters.next_if(char::is_ascii_digit) {
        text.push(digit);
    }
    text.parse().ok()
}

fn formatted(verb: char, flags: &str, precision: Option<usize>, value: &Value) -> Result<String, String> {
    let wrong = |wanted: &str| format!("`%{verb}` needs {wanted}, and this is {}", value.kind());
    let number = || value.to_number().ok_or_else(|| wrong("a number"));
    let whole = || number().and_then(|number| number.whole().ok_or_else(|| wrong("a whole number")));
    let signed = |text: String, is_negative: bool| match () {
        () if is_negative => text,
        () if flags.contains('+') => format!("+{text}"),
        () if flags.contains(' ') => format!(" {text}"),
        () => text,
    };
    let in_base = |digits: String, prefix: &str, is_negative: bool| {
        let prefix = if flags.contains('#') { prefix } else { "" };
        signed(format!("{}{prefix}{digits}", if is_negative { "-" } else { "" }), is_negative)
    };
    let precise = precision.unwrap_or(6).min(100);
    Ok(match verb {
        'v' if flags.contains('#') => json(value),
        'v' => match value {
            Value::List(_) | Value::Set(_) | Value::Map(_) => json(value),
            Value::Null => "null".to_owned(),
            Value::Number(number) => general(*number, precision),
            other => other.to_text().unwrap_or_default(),
        },
        't' => value.to_bool().ok_or_else(|| wrong("a bool"))?.to_string(),
        'd' => whole().map(|whole| signed(whole.to_string(), whole < 0))?,
        'b' => whole().map(|whole| in_base(format!("{:b}", whole.unsigned_abs()), "0b", whole < 0))?,
        'o' => whole().map(|whole| in_base(format!("{:o}", whole.unsigned_abs()), "0", whole < 0))?,
        'x' => whole().map(|whole| in_base(format!("{:x}", whole.unsigned_abs()), "0x", whole < 0))?,
        'X' => whole().map(|whole| in_base(format!("{:X}", whole.unsigned_abs()), "0X", whole < 0))?,
        'f' => number().map(|number| signed(format!("{:.precise$}", number.as_f64()), number.as_f64() < 0.0))?,
        'e' => number().map(|number| exponent(number.as_f64(), precise))?,
        'g' => number().map(|number| signed(general(number, precision), number.as_f64() < 0.0))?,
        's' => {
            let text = value.to_text().ok_or_else(|| wrong("a string"))?;
            precision.map_or(text.clone(), |n| text.chars().take(n).collect())
        }
        'q' => json(&Value::Text(value.to_text().ok_or_else(|| wrong("a string"))?)),
        other => return Err(format!("there is no verb `%{other}`")),
    })
}

/// Go's `%g`: with an exponent where the plain digits would be long or begin with many zeros. Without a precision all
/// digits are written that the number has, and six are what is long.
fn general(number: Number, precision: Option<usize>) -> String {
    let whole = number.whole().map(|whole| whole.to_string());
    let digits = match precision {
        Some(n) => format!("{:.*e}", n.clamp(1, 100) - 1, number.as_f64()),
        None => match &whole {
            // A fraction has not as many digits.
            Some(text) => {
                let (sign, digits) = text.split_at(usize::from(text.starts_with('-')));
                let (first, rest) = digits.split_at(1);
                format!("{sign}{first}.{rest}e{}", rest.len())
            }
            None => format!("{:e}", number.as_f64()),
        },
    };
    let Some((mantissa, power)) = digits.split_once('e') else { return digits };
    let mantissa = if mantissa.contains('.') { mantissa.trim_end_matches('0').trim_end_matches('.') } else { mantissa };
    let power: i32 = power.parse().unwrap_or(0);
    let n_digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let long = precision.map_or(6, |n| {
        if n > n_digits && i32::try_from(n_digits).is_ok_and(|n| n > power) { n_digits } else { n.max(1) }
    });
    if power < -4 || power >= i32::try_from(long).unwrap_or(i32::MAX) {
        return with_exponent(mantissa, power);
    }
    match whole {
        Some(whole) => whole,
        None => format!("{mantissa}e{power}").parse::<f64>().map_or(digits.clone(), |plain| plain.to_string()),
    }
}

/// Go writes at least two digits of the exponent, with its sign.
fn exponent(number: f64, precision: usize) -> String {
    let text = format!("{number:.precision$e}");
    match text.split_once('e').map(|(mantissa, power)| (mantissa, power.parse())) {
        Some((mantissa, Ok(power))) => with_exponent(mantissa, power),
        Some((_, Err(_))) | None => text,
    }
}

fn with_exponent(mantissa: &str, power: i32) -> String {
    format!("{mantissa}e{}{:02}", if power < 0 { '-' } else { '+' }, power.unsigned_abs())
}

/// Lists of one length go side by side; other values are repeated.
fn format_list(arguments: &Arguments<'_>) -> Outcome {
    let form = arguments.text(0)?;
    let values = &arguments.all()[1..];
    let lengths = values.iter().filter_map(|value| match value {
        Value::List(values) | Value::Set(values) => Some(values.len()),
        _ => None,
    });
    let n = lengths.clone().max().unwrap_or(1);
    if lengths.clone().any(|length| length != n) {
        return Err("the lists must have one length".to_owned());
    }
    let row = |at: usize| -> Vec<Value> {
        let cell = |value: &Value| match value {
            Value::List(values) | Value::Set(values) => values[at].clone(),
            other => other.clone(),
        };
        values.iter().map(cell).collect()
    };
    (0..n).map(|at| format(&form, &row(at)).map(Value::Text)).collect::<Result<_, _>>().map(Value::List)
}

/// `parseint`: digits of a base.
pub(super) fn parse_int(text: &str, base: i128) -> Outcome {
    let base = u32::try_from(base).ok().filter(|base| (2..=62).contains(base)).ok_or("the base must be 2 to 62")?;
    let wrong = || format!("`{text}` is no number of base {base}, or too large");
    let (is_negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    if digits.is_empty() {
        return Err(wrong());
    }
    let mut whole: i128 = 0;
    for letter in digits.chars() {
        // Above 36, capitals stand behind the small letters.
        let digit = match letter {
            'A'..='Z' if base > 36 => Some(u32::from(letter) - u32::from('A') + 36),
            _ => letter.to_digit(36),
        };
        let digit = digit.filter(|digit| *digit < base).ok_or_else(wrong)?;
        whole = whole.checked_mul(base.into()).and_then(|whole| whole.checked_add(digit.into())).ok_or_else(wrong)?;
    }
    Ok(Value::Number(Number::Whole(if is_negative { -whole } else { whole })))
}
