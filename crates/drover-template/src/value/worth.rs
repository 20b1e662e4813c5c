//! What a value is. Maps and lists are shared as Go's are: a change of a map is seen by all that hold it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use super::types::{ANY_MAP, ANY_SLICE, GoType, INT, IntKind, RecordType, TEXT_SLICE, UintKind};

/// Text as Go has it: bytes, mostly UTF-8.
pub(crate) type Bytes = Rc<[u8]>;

/// A value.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    /// None at all, which prints as `<no value>`.
    Missing,
    /// An `interface {}` that holds nothing.
    Nil,
    /// Nothing, of a type: a pointer, map or slice to nowhere.
    NilOf(GoType),
    Bool(bool),
    Int(IntKind, i64),
    Uint(UintKind, u64),
    /// A number of type `nanoTime`.
    Nanos(i64),
    Float(f64),
    Complex(f64, f64),
    Text(Bytes),
    List(Rc<List>),
    Map(Rc<Map>),
    Record(Rc<Record>),
    /// A pointer to a record or a map.
    Pointer(Rc<Value>),
    /// What `loop` gives: the numbers that are left.
    Channel(Rc<RefCell<std::ops::Range<i64>>>),
    /// What `scratch` gives.
    Scratch,
}

/// A slice.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) of: GoType,
    pub(crate) items: Vec<Value>,
}

/// A map.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) of: GoType,
    pub(crate) items: RefCell<BTreeMap<MapKey, Value>>,
}

/// A struct.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) of: &'static RecordType,
    pub(crate) fields: Vec<Value>,
    /// What methods of it look at: the variable of an item.
    pub(crate) parent: Option<Value>,
}

/// A key of a map, in the order in which Go prints keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum MapKey {
    Nil,
    Int(IntKind, i64),
    Uint(UintKind, u64),
    Text(Bytes),
    Bool(bool),
    /// The bits of a number, turned so that they sort as it does.
    Float(i64),
}

impl Value {
    /// Text.
    pub(crate) fn text(text: impl AsRef<[u8]>) -> Self {
        Self::Text(Rc::from(text.as_ref()))
    }

    /// A number as a literal gives it.
    pub(crate) fn int(number: i64) -> Self {
        Self::Int(IntKind::Int, number)
    }

    /// An `int64`.
    pub(crate) fn int64(number: i64) -> Self {
        Self::Int(IntKind::Int64, number)
    }

    /// A slice of a type.
    pub(crate) fn list(of: GoType, items: Vec<Self>) -> Self {
        Self::List(Rc::new(List { of, items }))
    }

    /// `[]interface {}`.
    pub(crate) fn any_list(items: Vec<Self>) -> Self {
        Self::list(ANY_SLICE, items.into_iter().map(Self::boxed).collect())
    }

    /// `[]string`.
    pub(crate) fn text_list<T: AsRef<[u8]>>(items: impl IntoIterator<Item = T>) -> Self {
        Self::list(TEXT_SLICE, items.into_iter().map(Self::text).collect())
    }

    /// A map of a type.
    pub(crate) fn map(of: GoType, items: BTreeMap<MapKey, Self>) -> Self {
        Self::Map(Rc::new(Map { of, items: RefCell::new(items) }))
    }

    /// `map[string]interface {}`.
    pub(crate) fn any_map<T: AsRef<[u8]>>(items: impl IntoIterator<Item = (T, Self)>) -> Self {
        let items = items.into_iter().map(|(key, value)| (MapKey::Text(Rc::from(key.as_ref())), value.boxed()));
        Self::map(ANY_MAP, items.collect())
    }

    /// A struct.
    pub(crate) fn record(of: &'static RecordType, fields: Vec<Self>) -> Self {
        debug_assert_eq!(of.fields.len(), fields.len(), "each field has a value");
        Self::Record(Rc::new(Record { of, fields, parent: None }))
    }

    /// A pointer to it.
    pub(crate) fn pointed(self) -> Self {
        Self::Pointer(Rc::new(self))
    }

    /// As an element of type `interface {}` has it.
    pub(crate) fn boxed(self) -> Self {
        match self {
            Self::Missing => Self::Nil,
            other => other,
        }
    }

    /// What an `interface {}` holds.
    pub(crate) fn unboxed(self) -> Self {
        match self {
            Self::Nil => Self::Missing,
            other => other,
        }
    }

    /// Its type; none where there is no value.
    pub(crate) fn go_type(&self) -> Option<GoType> {
        Some(match self {
            Self::Missing => return None,
            Self::Nil => GoType::Any,
            Self::NilOf(of) => *of,
            Self::Bool(_) => GoType::Bool,
            Self::Int(kind, _) => GoType::Int(*kind),
            Self::Uint(kind, _) => GoType::Uint(*kind),
            Self::Nanos(_) => super::records::NANO_TIME,
            Self::Float(_) => GoType::Float64,
            Self::Complex(..) => GoType::Complex128,
            Self::Text(_) => GoType::Text,
            Self::List(list) => list.of,
            Self::Map(map) => map.of,
            Self::Record(record) => GoType::Record(record.of),
            Self::Pointer(to) => pointer_type(to),
            Self::Channel(_) => GoType::Channel,
            Self::Scratch => SCRATCH_POINTER,
        })
    }

    /// The name of its type, as an error has it.
    pub(crate) fn type_name(&self) -> String {
        self.go_type().map_or_else(|| "<nil>".to_owned(), |of| of.to_string())
    }

    /// The value of a type that nothing has been put into.
    pub(crate) fn zero(of: GoType) -> Self {
        match of.underlying() {
            GoType::Reflect => Self::Missing,
            GoType::Bool => Self::Bool(false),
            GoType::Int(kind) if of == GoType::Int(kind) => Self::Int(kind, 0),
            GoType::Int(_) => Self::Nanos(0),
            GoType::Uint(kind) => Self::Uint(kind, 0),
            GoType::Float64 => Self::Float(0.0),
            GoType::Complex128 => Self::Complex(0.0, 0.0),
            GoType::Text => Self::text(""),
            GoType::Slice(_) | GoType::Map(..) | GoType::Pointer(_) | GoType::Channel => Self::NilOf(of),
            GoType::Record(record) => {
                Self::record(record, record.fields.iter().map(|(_, of)| Self::zero(*of)).collect())
            }
            // A name for a name: there is none.
            GoType::Any | GoType::Named(_) => Self::Nil,
        }
    }

    /// Behind all pointers; and whether there is nothing.
    pub(crate) fn indirect(&self) -> (Self, bool) {
        match self {
            Self::Pointer(to) => to.indirect(),
            Self::Nil => (Self::Nil, true),
            Self::NilOf(of) => (self.clone(), matches!(of.underlying(), GoType::Pointer(_))),
            other => (other.clone(), false),
        }
    }

    /// Whether `if` takes it for true.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Missing | Self::Nil | Self::NilOf(_) => false,
            Self::Bool(is) => *is,
            Self::Int(_, number) | Self::Nanos(number) => *number != 0,
            Self::Uint(_, number) => *number != 0,
            Self::Float(number) => !is_zero(*number),
            Self::Complex(real, imaginary) => !is_zero(*real) || !is_zero(*imaginary),
            Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Map(map) => !map.items.borrow().is_empty(),
            Self::Record(_) | Self::Pointer(_) | Self::Channel(_) | Self::Scratch => true,
        }
    }

    /// Whether it is nil of any kind.
    pub(crate) fn is_nil(&self) -> bool {
        matches!(self, Self::Missing | Self::Nil | Self::NilOf(_))
    }

    /// Elements of a slice.
    pub(crate) fn items(&self) -> Option<&[Self]> {
        match self {
            Self::List(list) => Some(&list.items),
            Self::NilOf(of) if matches!(of.underlying(), GoType::Slice(_)) => Some(&[]),
            _ => None,
        }
    }

    /// Entries of a map, in order.
    pub(crate) fn entries(&self) -> Option<Vec<(MapKey, Self)>> {
        match self {
            Self::Map(map) => {
                Some(map.items.borrow().iter().map(|(key, value)| (key.clone(), value.clone())).collect())
            }
            Self::NilOf(of) if matches!(of.underlying(), GoType::Map(..)) => Some(Vec::new()),
            _ => None,
        }
    }

    /// An entry of a map under a text.
    pub(crate) fn entry(&self, key: &[u8]) -> Option<Self> {
        match self {
            Self::Map(map) => map.items.borrow().get(&MapKey::Text(Rc::from(key))).cloned(),
            _ => None,
        }
    }

    /// Its bytes, if it is text.
    pub(crate) fn as_text(&self) -> Option<&Bytes> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// As a key of a map.
    pub(crate) fn as_key(&self) -> Option<MapKey> {
        Some(match self {
            Self::Missing | Self::Nil => MapKey::Nil,
            Self::Bool(is) => MapKey::Bool(*is),
            Self::Int(kind, number) => MapKey::Int(*kind, *number),
            Self::Uint(kind, number) => MapKey::Uint(*kind, *number),
            Self::Text(text) => MapKey::Text(Rc::clone(text)),
            Self::Float(number) => MapKey::Float(sortable(number.to_bits())),
            _ => return None,
        })
    }
}

impl MapKey {
    /// As a value.
    pub(crate) fn value(&self) -> Value {
        match self {
            Self::Nil => Value::Nil,
            Self::Bool(is) => Value::Bool(*is),
            Self::Int(kind, number) => Value::Int(*kind, *number),
            Self::Uint(kind, number) => Value::Uint(*kind, *number),
            Self::Text(text) => Value::Text(Rc::clone(text)),
            Self::Float(bits) => Value::Float(f64::from_bits(sortable(bits.cast_unsigned()).cast_unsigned())),
        }
    }

    /// As text, if it is.
    pub(crate) fn as_text(&self) -> Option<&Bytes> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

const SCRATCH_POINTER: GoType = GoType::Pointer(&GoType::Record(&SCRATCH));
static SCRATCH: RecordType = RecordType { name: "template.Scratch", fields: &[] };

fn pointer_type(to: &Value) -> GoType {
    use super::records as known;
    const TYPES: &[(&RecordType, GoType)] = &[
        (&known::KEY_PAIR, GoType::Pointer(&GoType::Record(&known::KEY_PAIR))),
        (&known::SECRET, GoType::Pointer(&GoType::Record(&known::SECRET))),
        (&known::NOMAD_SERVICE, GoType::Pointer(&GoType::Record(&known::NOMAD_SERVICE))),
        (&known::NOMAD_SNIPPET, GoType::Pointer(&GoType::Record(&known::NOMAD_SNIPPET))),
        (&known::CATALOG_SNIPPET, GoType::Pointer(&GoType::Record(&known::CATALOG_SNIPPET))),
        (&known::HEALTH_SERVICE, GoType::Pointer(&GoType::Record(&known::HEALTH_SERVICE))),
        (&known::VARIABLE, GoType::Pointer(&GoType::Record(&known::VARIABLE))),
        (&known::VARIABLE_META, GoType::Pointer(&GoType::Record(&known::VARIABLE_META))),
    ];
    match to {
        Value::Record(record) => TYPES
            .iter()
            .find(|(of, _)| std::ptr::eq(*of, record.of))
            .map_or(GoType::Pointer(&GoType::Any), |(_, of)| *of),
        Value::Map(_) => GoType::Pointer(&known::VARIABLE_ITEMS),
        _ => GoType::Pointer(&INT),
    }
}

fn is_zero(number: f64) -> bool {
    number.to_bits().wrapping_shl(1) == 0
}

/// Bits of a float that sort as it does; twice is once back.
fn sortable(bits: u64) -> i64 {
    let signed = bits.cast_signed();
    if signed < 0 { signed ^ i64::MAX } else { signed }
}

/// Whatever lies in each other is dropped one after the other: no depth of it can use the stack up.
fn drop_all(mut pending: Vec<Value>) {
    while let Some(value) = pending.pop() {
        match value {
            Value::List(list) => {
                if let Some(mut list) = Rc::into_inner(list) {
                    pending.append(&mut list.items);
                }
            }
            Value::Map(map) => {
                if let Some(map) = Rc::into_inner(map) {
                    pending.extend(map.items.take().into_values());
                }
            }
            Value::Record(record) => {
                if let Some(mut record) = Rc::into_inner(record) {
                    pending.append(&mut record.fields);
                    pending.extend(record.parent.take());
                }
            }
            Value::Pointer(to) => pending.extend(Rc::into_inner(to)),
            _ => {}
        }
    }
}

impl Drop for List {
    fn drop(&mut self) {
        if !self.items.is_empty() {
            drop_all(std::mem::take(&mut self.items));
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let items = self.items.take();
        if !items.is_empty() {
            drop_all(items.into_values().collect());
        }
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        if !self.fields.is_empty() || self.parent.is_some() {
            let mut pending = std::mem::take(&mut self.fields);
            pending.extend(self.parent.take());
            drop_all(pending);
        }
    }
}
