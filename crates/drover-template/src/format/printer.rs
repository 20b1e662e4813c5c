//! What `print`, `println` and `printf` make of values.

use super::float;
use super::quote::{can_backquote, quote, quote_to_ascii, quoted};
use crate::budget::Budget;
use crate::fault::{Outcome, failed};
use crate::runes;
use crate::value::{GoType, NANO_TIME, UintKind, VARIABLE_ITEM, VARIABLE_META, Value};

/// Widths and precisions beyond that are refused.
const MOST_WIDTH: i64 = 1_000_000;
/// Where a pointer in a value points to: a place that means nothing.
const ADDRESS: u64 = 0xc000_0000_0000;

/// What stands between `%` and the verb.
#[derive(Clone, Copy, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of its own in the format")]
struct Flags {
    sharp: bool,
    zero: bool,
    plus: bool,
    minus: bool,
    space: bool,
    sharp_v: bool,
    plus_v: bool,
    width: Option<usize>,
    precision: Option<usize>,
}

struct Printer<'a> {
    out: Vec<u8>,
    flags: Flags,
    is_wrong: bool,
    budget: &'a Budget,
}

/// `fmt.Sprint`: spaces between what is no text.
pub(crate) fn print(values: &[Value], budget: &Budget) -> Outcome<Vec<u8>> {
    let mut printer = Printer::new(budget);
    let mut was_text = true;
    for (index, value) in values.iter().enumerate() {
        let is_text = matches!(value, Value::Text(_));
        if index > 0 && !is_text && !was_text {
            printer.out.push(b' ');
        }
        printer.argument(value, 'v')?;
        was_text = is_text;
    }
    printer.done()
}

/// `fmt.Sprintln`.
pub(crate) fn println(values: &[Value], budget: &Budget) -> Outcome<Vec<u8>> {
    let mut printer = Printer::new(budget);
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            printer.out.push(b' ');
        }
        printer.argument(value, 'v')?;
    }
    printer.out.push(b'\n');
    printer.done()
}

/// The text of an action's value.
pub(crate) fn printable(value: &Value, budget: &Budget) -> Outcome<Vec<u8>> {
    match value {
        Value::Text(text) => return Ok(text.to_vec()),
        Value::Missing => return Ok(b"<no value>".to_vec()),
        Value::Channel(_) => return failed("can't print it: it is of type <-chan int64"),
        _ => {}
    }
    let value = if matches!(value, Value::Pointer(_)) { value.indirect().0 } else { value.clone() };
    print(&[value], budget)
}

/// `fmt.Sprintf`.
pub(crate) fn printf(format: &[u8], values: &[Value], budget: &Budget) -> Outcome<Vec<u8>> {
    let mut printer = Printer::new(budget);
    printer.formatted(format, values)?;
    printer.done()
}

/// Where `printf` is in its format and its arguments.
struct Place<'f, 'v> {
    format: &'f [u8],
    at: usize,
    values: &'v [Value],
    argument: usize,
    is_good: bool,
    is_reordered: bool,
    is_after_index: bool,
}

impl Place<'_, '_> {
    fn byte(&self) -> Option<u8> {
        self.format.get(self.at).copied()
    }

    /// Digits; none where there are none or too many.
    fn number(&mut self) -> Option<usize> {
        let mut number: Option<i64> = None;
        while let Some(byte @ b'0'..=b'9') = self.byte() {
            if number.unwrap_or(0) > MOST_WIDTH {
                self.at = self.format.len();
                return None;
            }
            number = Some(number.unwrap_or(0) * 10 + i64::from(byte - b'0'));
            self.at += 1;
        }
        number.and_then(|number| usize::try_from(number).ok())
    }

    /// `[n]`, the number of an argument.
    fn index(&mut self) {
        self.is_after_index = false;
        if self.byte() != Some(b'[') {
            return;
        }
        self.is_reordered = true;
        let rest = &self.format[self.at..];
        let Some(end) = rest.iter().position(|byte| *byte == b']').filter(|_| rest.len() >= 3) else {
            self.is_good = false;
            self.at += 1;
            return;
        };
        let number = std::str::from_utf8(&rest[1..end]).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
        let number = number.and_then(|text| text.parse::<usize>().ok()).filter(|number| *number <= 10_000_000);
        self.at += end + 1;
        match number {
            Some(number) if number >= 1 && number <= self.values.len() => {
                self.argument = number - 1;
                self.is_after_index = true;
            }
            Some(_) => {
                self.is_good = false;
                self.is_after_index = true;
            }
            None => self.is_good = false,
        }
    }

    /// An argument that is a width or a precision.
    fn integer(&mut self) -> Option<i64> {
        let value = self.values.get(self.argument)?;
        self.argument += 1;
        let number = match value {
            Value::Int(_, number) => *number,
            Value::Uint(_, number) => i64::try_from(*number).ok()?,
            _ => return None,
        };
        (-MOST_WIDTH..=MOST_WIDTH).contains(&number).then_some(number)
    }
}

impl<'a> Printer<'a> {
    fn new(budget: &'a Budget) -> Self {
        Self { out: Vec::new(), flags: Flags::default(), is_wrong: false, budget }
    }

    fn done(self) -> Outcome<Vec<u8>> {
        self.budget.make(self.out.len())?;
        Ok(self.out)
    }

    fn write(&mut self, text: impl AsRef<[u8]>) {
        self.out.extend_from_slice(text.as_ref());
    }

    fn formatted(&mut self, format: &[u8], values: &[Value]) -> Outcome<()> {
        let mut place =
            Place { format, at: 0, values, argument: 0, is_good: true, is_reordered: false, is_after_index: false };
        while place.at < format.len() {
            self.budget.step()?;
            self.budget.may_make(self.out.len())?;
            let text = format[place.at..].iter().take_while(|byte| **byte != b'%').count();
            self.write(&format[place.at..place.at + text]);
            place.at += text;
            if place.at < format.len() {
                place.at += 1;
                if !self.directive(&mut place)? {
                    break;
                }
            }
        }
        if !place.is_reordered && place.argument < values.len() {
            self.flags = Flags::default();
            self.write("%!(EXTRA ");
            for (index, value) in values[place.argument..].iter().enumerate() {
                self.write(if index > 0 { ", " } else { "" });
                if value.is_nil() && value.go_type().is_none_or(|of| of == GoType::Any) {
                    self.write("<nil>");
                } else {
                    self.write(value.type_name());
                    self.write("=");
                    self.argument(value, 'v')?;
                }
            }
            self.write(")");
        }
        Ok(())
    }

    /// One `%…`; whether the format goes on.
    fn directive(&mut self, place: &mut Place<'_, '_>) -> Outcome<bool> {
        self.flags = Flags::default();
        place.is_good = true;
        while let Some(byte) = place.byte() {
            match byte {
                b'#' => self.flags.sharp = true,
                b'0' => self.flags.zero = true,
                b'+' => self.flags.plus = true,
                b'-' => self.flags.minus = true,
                b' ' => self.flags.space = true,
                _ => break,
            }
            place.at += 1;
        }
        // A plain verb directly behind the flags needs no more.
        if !place.byte().is_some_and(|byte| byte.is_ascii_lowercase() && place.argument < place.values.len()) {
            self.widths(place);
        }
        if place.at >= place.format.len() {
            self.write("%!(NOVERB)");
            return Ok(false);
        }
        let (verb, width) = runes::first(&place.format[place.at..]);
        place.at += width;
        if verb == '%' {
            self.write("%");
        } else if !place.is_good {
            self.write(format!("%!{verb}(BADINDEX)"));
        } else if let Some(value) = place.values.get(place.argument) {
            if verb == 'v' {
                self.flags.sharp_v = std::mem::take(&mut self.flags.sharp);
                self.flags.plus_v = std::mem::take(&mut self.flags.plus);
            }
            self.argument(value, verb)?;
            place.argument += 1;
        } else {
            self.write(format!("%!{verb}(MISSING)"));
        }
        Ok(true)
    }

    fn widths(&mut self, place: &mut Place<'_, '_>) {
        place.index();
        if place.byte() == Some(b'*') {
            place.at += 1;
            let width = place.integer();
            if width.is_none() {
                self.write("%!(BADWIDTH)");
            }
            if width.is_some_and(|width| width < 0) {
                self.flags.minus = true;
                self.flags.zero = false;
            }
            self.flags.width = width.and_then(|width| usize::try_from(width.unsigned_abs()).ok());
            place.is_after_index = false;
        } else {
            self.flags.width = place.number();
            if place.is_after_index && self.flags.width.is_some() {
                place.is_good = false;
            }
        }
        if place.byte() == Some(b'.') && place.at + 1 < place.format.len() {
            place.at += 1;
            if place.is_after_index {
                place.is_good = false;
            }
            place.index();
            if place.byte() == Some(b'*') {
                place.at += 1;
                self.flags.precision = place.integer().and_then(|number| usize::try_from(number).ok());
                if self.flags.precision.is_none() {
                    self.write("%!(BADPREC)");
                }
                place.is_after_index = false;
            } else {
                self.flags.precision = Some(place.number().unwrap_or(0));
            }
        }
        if !place.is_after_index {
            place.index();
        }
    }

    fn argument(&mut self, value: &Value, verb: char) -> Outcome<()> {
        if matches!(value, Value::Missing | Value::Nil) {
            match verb {
                'T' | 'v' => self.pad("<nil>"),
                _ => self.bad_verb(value, verb)?,
            }
            return Ok(());
        }
        match verb {
            'T' => {
                let name = value.type_name();
                self.text(name.as_bytes(), 's');
                Ok(())
            }
            'p' => {
                match value {
                    Value::Pointer(_) | Value::Map(_) | Value::List(_) | Value::Channel(_) | Value::NilOf(_) => {
                        self.integer((ADDRESS, false), 16, 'x', true);
                    }
                    _ => self.bad_verb(value, verb)?,
                }
                Ok(())
            }
            _ => self.value(value, verb, 0),
        }
    }

    fn bad_verb(&mut self, value: &Value, verb: char) -> Outcome<()> {
        self.is_wrong = true;
        self.write(format!("%!{verb}("));
        if matches!(value, Value::Missing | Value::Nil) {
            self.write("<nil>");
        } else {
            self.write(value.type_name());
            self.write("=");
            self.value(value, 'v', 0)?;
        }
        self.write(")");
        self.is_wrong = false;
        Ok(())
    }

    fn value(&mut self, value: &Value, verb: char, depth: usize) -> Outcome<()> {
        self.budget.deeper()?;
        self.budget.may_make(self.out.len())?;
        if !self.is_wrong
            && !self.flags.sharp_v
            && matches!(verb, 'v' | 's' | 'x' | 'X' | 'q')
            && let Some(text) = shown_by_method(value)
        {
            self.text(&text, verb);
            return Ok(());
        }
        match value {
            Value::Missing | Value::Nil if verb == 'v' => {
                self.write(if self.flags.sharp_v { "interface {}(nil)" } else { "<nil>" });
            }
            Value::Missing | Value::Nil => self.write("<nil>"),
            Value::Bool(is) if matches!(verb, 't' | 'v') => self.pad(if *is { "true" } else { "false" }),
            Value::Int(_, number) | Value::Nanos(number) if is_integer_verb(verb) => {
                self.integer_by_verb(number.cast_unsigned(), true, verb);
            }
            Value::Uint(_, number) if is_integer_verb(verb) => self.integer_by_verb(*number, false, verb),
            Value::Float(number) if is_float_verb(verb) => self.float(*number, verb),
            Value::Complex(real, imaginary) if is_float_verb(verb) => {
                self.write("(");
                self.float(*real, verb);
                let plus = std::mem::replace(&mut self.flags.plus, true);
                self.float(*imaginary, verb);
                self.flags.plus = plus;
                self.write("i)");
            }
            Value::Text(text) if matches!(verb, 'v' | 's' | 'x' | 'X' | 'q') => self.text(text, verb),
            Value::List(list) => return self.list(&list.items, list.of, verb, depth),
            Value::Map(_) | Value::Record(_) => return self.composite(value, verb, depth),
            Value::Pointer(to) if depth == 0 => {
                self.write("&");
                return self.value(to, verb, 1);
            }
            Value::NilOf(of) if matches!(of.underlying(), GoType::Slice(_) | GoType::Map(..)) => {
                let is_map = matches!(of.underlying(), GoType::Map(..));
                if self.flags.sharp_v {
                    self.write(format!("{of}(nil)"));
                } else if is_map {
                    self.write("map[]");
                } else {
                    return self.list(&[], *of, verb, depth);
                }
            }
            Value::NilOf(of) if verb == 'v' && self.flags.sharp_v => self.write(format!("({of})(nil)")),
            Value::NilOf(_) if verb == 'v' => self.pad("<nil>"),
            Value::Pointer(_) | Value::Channel(_) | Value::Scratch if matches!(verb, 'b' | 'o' | 'd' | 'x' | 'X') => {
                self.integer_by_verb(ADDRESS, false, verb);
            }
            Value::Pointer(_) | Value::Channel(_) | Value::Scratch if verb != 'v' => return self.bad_verb(value, verb),
            Value::Pointer(_) | Value::Channel(_) | Value::Scratch | Value::NilOf(_) => {
                self.integer((ADDRESS, false), 16, 'x', true);
            }
            _ => return self.bad_verb(value, verb),
        }
        Ok(())
    }

    fn list(&mut self, items: &[Value], of: GoType, verb: char, depth: usize) -> Outcome<()> {
        if of.underlying() == GoType::Slice(&GoType::Uint(UintKind::Uint8)) && matches!(verb, 's' | 'q' | 'x' | 'X') {
            let bytes: Vec<u8> = items
                .iter()
                .filter_map(|item| match item {
                    Value::Uint(_, byte) => u8::try_from(*byte).ok(),
                    _ => None,
                })
                .collect();
            self.text(&bytes, verb);
            return Ok(());
        }
        let (open, between, close) =
            if self.flags.sharp_v { (format!("{of}{{"), ", ", "}") } else { ("[".to_owned(), " ", "]") };
        self.write(open);
        for (index, item) in items.iter().enumerate() {
            self.write(if index > 0 { between } else { "" });
            self.value(item, verb, depth + 1)?;
        }
        self.write(close);
        Ok(())
    }

    fn composite(&mut self, value: &Value, verb: char, depth: usize) -> Outcome<()> {
        let sharp = self.flags.sharp_v;
        let between = if sharp { ", " } else { " " };
        if sharp {
            self.write(value.type_name());
        }
        if let Value::Record(record) = value {
            self.write("{");
            for (index, (field, (name, _))) in record.fields.iter().zip(record.of.fields).enumerate() {
                self.write(if index > 0 { between } else { "" });
                if sharp || self.flags.plus_v {
                    self.write(name);
                    self.write(":");
                }
                self.value(field, verb, depth + 1)?;
            }
            self.write("}");
            return Ok(());
        }
        self.write(if sharp { "{" } else { "map[" });
        for (index, (key, item)) in value.entries().unwrap_or_default().into_iter().enumerate() {
            self.write(if index > 0 { between } else { "" });
            self.value(&key.value(), verb, depth + 1)?;
            self.write(":");
            self.value(&item, verb, depth + 1)?;
        }
        self.write(if sharp { "}" } else { "]" });
        Ok(())
    }

    fn text(&mut self, text: &[u8], verb: char) {
        let text = if matches!(verb, 'x' | 'X') { text } else { self.truncated(text) };
        match verb {
            'x' | 'X' => self.hexadecimal(text, verb == 'X'),
            'q' => self.quoted(text),
            'v' if self.flags.sharp_v => self.quoted(text),
            _ => self.pad(text),
        }
    }

    fn truncated<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let Some(precision) = self.flags.precision else { return text };
        let end = runes::runes(text).nth(precision).map_or(text.len(), |(at, ..)| at);
        &text[..end]
    }

    fn quoted(&mut self, text: &[u8]) {
        if self.flags.sharp && can_backquote(text) {
            self.pad([b"`", text, b"`"].concat());
        } else if self.flags.plus {
            self.pad(quote_to_ascii(text));
        } else {
            self.pad(quote(text));
        }
    }

    fn hexadecimal(&mut self, text: &[u8], is_upper: bool) {
        let text = &text[..self.flags.precision.unwrap_or(text.len()).min(text.len())];
        let prefix = match (self.flags.sharp, is_upper) {
            (false, _) => "",
            (true, false) => "0x",
            (true, true) => "0X",
        };
        let mut out = String::new();
        for (index, byte) in text.iter().enumerate() {
            if index > 0 && self.flags.space {
                out.push(' ');
            }
            if index == 0 || self.flags.space {
                out.push_str(prefix);
            }
            let digits = format!("{byte:02x}");
            out.push_str(&if is_upper { digits.to_uppercase() } else { digits });
        }
        self.pad(out);
    }

    fn pad(&mut self, text: impl AsRef<[u8]>) {
        let text = text.as_ref();
        let width = self.flags.width.unwrap_or(0).saturating_sub(runes::count(text));
        let fill = if self.flags.zero && !self.flags.minus { b'0' } else { b' ' };
        if !self.flags.minus {
            self.out.extend(std::iter::repeat_n(fill, width));
        }
        self.write(text);
        if self.flags.minus {
            self.out.extend(std::iter::repeat_n(fill, width));
        }
    }

    fn integer_by_verb(&mut self, number: u64, is_signed: bool, verb: char) {
        let char = u32::try_from(number).ok().and_then(char::from_u32).unwrap_or(runes::REPLACEMENT);
        match verb {
            'c' => self.pad(char.to_string()),
            'q' => self.pad(quoted(char.to_string().as_bytes(), b'\'', self.flags.plus)),
            'U' => {
                let digits = self.flags.precision.unwrap_or(0).max(4);
                let mut text = format!("U+{number:0digits$X}");
                if self.flags.sharp && number <= 0x10_ffff && runes::is_print(char) {
                    text = format!("{text} '{char}'");
                }
                let zero = std::mem::take(&mut self.flags.zero);
                self.pad(text);
                self.flags.zero = zero;
            }
            'b' => self.integer((number, is_signed), 2, verb, self.flags.sharp),
            'o' | 'O' => self.integer((number, is_signed), 8, verb, self.flags.sharp),
            'x' | 'X' => self.integer((number, is_signed), 16, verb, self.flags.sharp),
            'v' if self.flags.sharp_v && !is_signed => self.integer((number, false), 16, 'x', true),
            _ => self.integer((number, is_signed), 10, verb, false),
        }
    }

    fn integer(&mut self, (number, is_signed): (u64, bool), base: u32, verb: char, sharp: bool) {
        let is_negative = is_signed && number.cast_signed() < 0;
        let number = if is_negative { number.wrapping_neg() } else { number };
        let zero = std::mem::take(&mut self.flags.zero);
        let mut digits = match (base, verb) {
            (2, _) => format!("{number:b}"),
            (8, _) => format!("{number:o}"),
            (16, 'X') => format!("{number:X}"),
            (16, _) => format!("{number:x}"),
            _ => number.to_string(),
        };
        let has_sign = is_negative || self.flags.plus || self.flags.space;
        let least = match (self.flags.precision, self.flags.width) {
            (Some(0), _) if number == 0 => {
                let width = self.flags.width.unwrap_or(0);
                self.out.extend(std::iter::repeat_n(b' ', width));
                self.flags.zero = zero;
                return;
            }
            (Some(precision), _) => precision,
            (None, Some(width)) if zero && !self.flags.minus => width.saturating_sub(usize::from(has_sign)),
            _ => 0,
        };
        digits = format!("{digits:0>least$}");
        let prefix = match (base, verb) {
            (8, 'O') if sharp && !digits.starts_with('0') => "0o0",
            (8, 'O') => "0o",
            (2, _) if sharp => "0b",
            (8, _) if sharp && !digits.starts_with('0') => "0",
            (16, 'X') if sharp => "0X",
            (16, _) if sharp => "0x",
            _ => "",
        };
        let sign = match () {
            () if is_negative => "-",
            () if self.flags.plus => "+",
            () if self.flags.space => " ",
            () => "",
        };
        self.pad(format!("{sign}{prefix}{digits}"));
        self.flags.zero = zero;
    }

    fn float(&mut self, number: f64, verb: char) {
        let (kind, precision) = match verb {
            'e' => (b'e', Some(6)),
            'E' => (b'E', Some(6)),
            'f' | 'F' => (b'f', Some(6)),
            'G' => (b'G', None),
            'b' => (b'b', None),
            'x' => (b'x', None),
            'X' => (b'X', None),
            _ => (b'g', None),
        };
        let text = match self.flags.precision.or(precision) {
            Some(precision) => float::fixed(number, kind, precision),
            None => float::shortest(number, kind),
        };
        let (sign, digits) = match text.as_bytes().first() {
            Some(b'-') => ("-", &text[1..]),
            Some(b'+') => ("+", &text[1..]),
            _ => ("+", text.as_str()),
        };
        let is_number = digits.as_bytes().first().is_some_and(u8::is_ascii_digit);
        let shown = match sign {
            "-" => "-",
            _ if self.flags.plus => "+",
            _ if self.flags.space => " ",
            // Infinity keeps its sign.
            _ if digits.starts_with('I') => "+",
            _ => "",
        };
        let digits = if self.flags.sharp && is_number && kind != b'b' {
            with_point(digits, kind, self.flags.precision)
        } else {
            digits.to_owned()
        };
        let zero = self.flags.zero;
        let width = self.flags.width.unwrap_or(0);
        let length = shown.len() + digits.len();
        if is_number && zero && !self.flags.minus && !shown.is_empty() && width > length {
            self.write(shown);
            self.out.extend(std::iter::repeat_n(b'0', width - length));
            self.write(digits);
            return;
        }
        self.flags.zero = zero && is_number;
        self.pad(format!("{shown}{digits}"));
        self.flags.zero = zero;
    }
}

/// With a point and the zeros that `#` asks for.
fn with_point(text: &str, kind: u8, precision: Option<usize>) -> String {
    let end = if matches!(kind, b'x' | b'X') { text.find(['p', 'P']) } else { text.find(['e', 'E']) };
    let (number, tail) = text.split_at(end.unwrap_or(text.len()));
    let mut wanted = if matches!(kind, b'g' | b'G' | b'x') { precision.unwrap_or(6) } else { 0 };
    let significant = number.trim_start_matches(['0', '.', 'x']).bytes().filter(|byte| *byte != b'.').count();
    wanted = wanted.saturating_sub(significant);
    if number == "0" {
        wanted = wanted.saturating_sub(1);
    }
    let point = if number.contains('.') { "" } else { "." };
    format!("{number}{point}{}{tail}", "0".repeat(wanted))
}

fn is_integer_verb(verb: char) -> bool {
    matches!(verb, 'v' | 'd' | 'b' | 'o' | 'O' | 'x' | 'X' | 'c' | 'q' | 'U')
}

fn is_float_verb(verb: char) -> bool {
    matches!(verb, 'v' | 'b' | 'g' | 'G' | 'x' | 'X' | 'f' | 'F' | 'e' | 'E')
}

/// The text of values that have a method `String`.
fn shown_by_method(value: &Value) -> Option<Vec<u8>> {
    let record = match value {
        Value::Record(record) => record,
        Value::Pointer(to) => match &**to {
            Value::Record(record) if std::ptr::eq(record.of, &raw const VARIABLE_META) => record,
            _ => return None,
        },
        Value::Nanos(nanos) => return Some(time(*nanos)),
        _ => return None,
    };
    let is = |of| std::ptr::eq(record.of, of);
    let field = if is(&raw const VARIABLE_ITEM) || is(&raw const VARIABLE_META) { record.fields.get(1) } else { None };
    field.and_then(Value::as_text).map(|text| text.to_vec())
}

/// A time in UTC, as Go prints it.
fn time(nanos: i64) -> Vec<u8> {
    debug_assert!(NANO_TIME.underlying() != NANO_TIME, "a name for a number");
    let at = jiff::Timestamp::from_nanosecond(i128::from(nanos)).unwrap_or_default();
    at.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC").to_string().into_bytes()
}
