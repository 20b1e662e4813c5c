//! The types that values of a template have in Go, as far as a template can tell them apart.

use std::fmt;

/// A type of Go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GoType {
    /// `interface {}`: anything, nothing too.
    Any,
    /// What Go's own functions take: a value as it is, also none.
    Reflect,
    Bool,
    Int(IntKind),
    Uint(UintKind),
    Float64,
    Complex128,
    Text,
    Slice(&'static GoType),
    Map(&'static GoType, &'static GoType),
    Pointer(&'static GoType),
    /// A channel of `int64`, which `loop` gives.
    Channel,
    /// A struct.
    Record(&'static RecordType),
    /// A name for another type.
    Named(&'static NamedType),
}

/// Signed integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum IntKind {
    Int,
    Int64,
}

/// Unsigned integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum UintKind {
    Uint8,
    Uint64,
}

/// A struct: its name and its fields in order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RecordType {
    pub(crate) name: &'static str,
    pub(crate) fields: &'static [(&'static str, GoType)],
}

/// A type with a name of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NamedType {
    pub(crate) name: &'static str,
    pub(crate) underlying: GoType,
}

pub(crate) const INT: GoType = GoType::Int(IntKind::Int);
pub(crate) const INT64: GoType = GoType::Int(IntKind::Int64);
pub(crate) const UINT64: GoType = GoType::Uint(UintKind::Uint64);
pub(crate) const ANY_SLICE: GoType = GoType::Slice(&GoType::Any);
pub(crate) const TEXT_SLICE: GoType = GoType::Slice(&GoType::Text);
pub(crate) const ANY_MAP: GoType = GoType::Map(&GoType::Text, &GoType::Any);
pub(crate) const TEXT_MAP: GoType = GoType::Map(&GoType::Text, &GoType::Text);
/// What YAML's maps are.
pub(crate) const YAML_MAP: GoType = GoType::Map(&GoType::Any, &GoType::Any);

impl GoType {
    /// The type behind a name.
    pub(crate) fn underlying(self) -> Self {
        match self {
            Self::Named(named) => named.underlying,
            other => other,
        }
    }

    /// Whether a value of the type can be nil.
    pub(crate) fn can_be_nil(self) -> bool {
        matches!(
            self.underlying(),
            Self::Any | Self::Reflect | Self::Slice(_) | Self::Map(..) | Self::Pointer(_) | Self::Channel
        )
    }

    /// Whether a value of this type is one of another type too.
    pub(crate) fn is_assignable_to(self, to: Self) -> bool {
        if self == to || to == Self::Any {
            return true;
        }
        // One of the two has no name of its own.
        let (is_named, to_named) = (self.has_name(), to.has_name());
        !(is_named && to_named) && self.underlying() == to.underlying()
    }

    fn has_name(self) -> bool {
        !matches!(self, Self::Slice(_) | Self::Map(..) | Self::Pointer(_) | Self::Channel | Self::Any)
    }

    /// Whether `==` works on values of the type.
    pub(crate) fn is_comparable(self) -> bool {
        match self.underlying() {
            Self::Slice(_) | Self::Map(..) => false,
            Self::Record(record) => record.fields.iter().all(|(_, field)| field.is_comparable()),
            _ => true,
        }
    }
}

impl fmt::Display for GoType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("interface {}"),
            Self::Reflect => f.write_str("reflect.Value"),
            Self::Bool => f.write_str("bool"),
            Self::Int(IntKind::Int) => f.write_str("int"),
            Self::Int(IntKind::Int64) => f.write_str("int64"),
            Self::Uint(UintKind::Uint8) => f.write_str("uint8"),
            Self::Uint(UintKind::Uint64) => f.write_str("uint64"),
            Self::Float64 => f.write_str("float64"),
            Self::Complex128 => f.write_str("complex128"),
            Self::Text => f.write_str("string"),
            Self::Slice(of) => write!(f, "[]{of}"),
            Self::Map(key, value) => write!(f, "map[{key}]{value}"),
            Self::Pointer(to) => write!(f, "*{to}"),
            Self::Channel => f.write_str("<-chan int64"),
            Self::Record(record) => f.write_str(record.name),
            Self::Named(named) => f.write_str(named.name),
        }
    }
}
