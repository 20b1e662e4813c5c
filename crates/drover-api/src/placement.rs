//! Where allocations may and should run: constraints, affinities, spreads.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::string_enum::string_enum;

string_enum! {
    /// How the two sides of a constraint or affinity are compared.
    pub enum Operand default Equal {
        /// Equal strings.
        Equal = "=",
        /// As `=`.
        DoubleEqual = "==",
        /// As `=`.
        Is = "is",
        /// Different, also when one side is missing.
        NotEqual = "!=",
        /// As `!=`.
        Not = "not",
        /// Less: as integers, else floats, else text.
        Less = "<",
        /// Less or equal.
        LessOrEqual = "<=",
        /// Greater.
        Greater = ">",
        /// Greater or equal.
        GreaterOrEqual = ">=",
        /// The left side matches the version constraint on the right.
        Version = "version",
        /// As `version`, with the precedence rules of SemVer.
        Semver = "semver",
        /// The regular expression on the right is found in the left side.
        Regexp = "regexp",
        /// Every comma-separated item of the right side is one of the left side's.
        SetContains = "set_contains",
        /// As `set_contains`.
        SetContainsAll = "set_contains_all",
        /// At least one item of the right side is one of the left side's.
        SetContainsAny = "set_contains_any",
        /// The left side exists.
        IsSet = "is_set",
        /// The left side does not exist.
        IsNotSet = "is_not_set",
        /// No two allocations on one node.
        DistinctHosts = "distinct_hosts",
        /// At most so many allocations for each value of the left side.
        DistinctProperty = "distinct_property",
    }
}

/// A rule that a node must satisfy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Constraint {
    /// Left side: `${attr.<key>}`, `${meta.<key>}`, `${node.unique.id}`, `${node.unique.name}`, `${node.datacenter}`,
    /// `${node.class}` or `${node.pool}`; other text is taken as it stands. Not needed for distinct_hosts.
    #[serde(rename = "lTarget", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub l_target: String,
    /// Comparison; default `=`.
    pub operand: Operand,
    /// Right side: a value, a version constraint such as `>= 6.1, < 7`, a regular expression, a comma-separated set, or
    /// for distinct_property the number allowed for each value (default 1).
    #[serde(rename = "rTarget", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub r_target: String,
}

/// A preference for nodes; it moves the score, and never excludes a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Affinity {
    /// Left side, as in constraints.
    #[serde(rename = "lTarget", default)]
    #[schemars(length(max = 256))]
    pub l_target: String,
    /// Comparison; default `=`. The operands is_set, is_not_set and distinct_* are for constraints only.
    #[serde(default)]
    pub operand: Operand,
    /// Right side, as in constraints.
    #[serde(rename = "rTarget", default)]
    #[schemars(length(max = 1024))]
    pub r_target: String,
    /// Strength from -100 (avoid) to 100 (prefer), not 0; default 50.
    #[serde(default = "default_weight")]
    #[schemars(range(min = -100, max = 100))]
    pub weight: i64,
}

fn default_weight() -> i64 {
    50
}

/// A distribution of allocations over the values of an attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Spread {
    /// The attribute whose values count, such as `${node.datacenter}` or `${meta.rack}`.
    #[schemars(length(min = 1, max = 256))]
    pub attribute: String,
    /// Share of this spread among all spreads, from 1 to 100; default 50.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 1, max = 100))]
    pub weight: i64,
    /// Wanted percentages; none means evenly over all values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["value"]))]
    pub targets: Vec<SpreadTarget>,
}

/// The wanted share of one value of a spread's attribute.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SpreadTarget {
    /// The value.
    #[schemars(length(min = 1, max = 256))]
    pub value: String,
    /// Wanted share of the allocations in percent; all targets together at most 100.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100))]
    pub percent: i64,
}
