//! Which functions there are, and what each takes.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::data::Host;
use super::{builtin, data, encode, maths, texts};
use crate::fault::{Outcome, failed};
use crate::value::{ANY_MAP, ANY_SLICE, GoType, INT, POINTERS_TO_PAIRS, TEXT_SLICE, Value};

/// A function.
#[derive(Clone, Copy)]
pub(crate) struct Function {
    /// Types of the arguments that it must have.
    pub(crate) parameters: &'static [GoType],
    /// The type of any further ones.
    pub(crate) rest: Option<GoType>,
    pub(crate) call: fn(&Host<'_>, &[Value]) -> Outcome<Value>,
}

/// The function of a name.
pub(crate) fn find(name: &str) -> Option<&'static Function> {
    TABLE.get(name)
}

/// Whether a template may name it; of those that are refused, a call says why.
pub(crate) fn is_known(name: &str) -> bool {
    TABLE.contains_key(name)
}

static TABLE: LazyLock<BTreeMap<&'static str, Function>> = LazyLock::new(|| {
    let mut table = BTreeMap::new();
    for (name, parameters, rest, call) in FUNCTIONS {
        table.insert(*name, Function { parameters, rest: *rest, call: *call });
    }
    for name in REFUSED {
        table.insert(*name, Function { parameters: &[], rest: Some(ANY), call: refused });
    }
    table
});

type Row = (&'static str, &'static [GoType], Option<GoType>, fn(&Host<'_>, &[Value]) -> Outcome<Value>);

const ANY: GoType = GoType::Any;
const ONE: GoType = GoType::Reflect;
const TEXT: GoType = GoType::Text;

/// What leads out of the template, or asks a server that drover has not.
const REFUSED: &[&str] = &[
    "plugin",
    "writeToFile",
    "executeTemplate",
    "sockaddr",
    "spew_dump",
    "spew_printf",
    "spew_sdump",
    "spew_sprintf",
    "datacenters",
    "exportedServices",
    "node",
    "nodes",
    "partitions",
    "peerings",
    "connect",
    "caRoots",
    "caLeaf",
    "pkiCert",
    "byMeta",
    "toTOML",
];

const FUNCTIONS: &[Row] = &[
    ("and", &[ONE], Some(ONE), |_, given| Ok(given[0].clone())),
    ("or", &[ONE], Some(ONE), |_, given| Ok(given[0].clone())),
    ("not", &[ONE], None, |_, given| Ok(Value::Bool(!given[0].is_true()))),
    ("len", &[ONE], None, builtin::len),
    ("index", &[ONE], Some(ONE), builtin::index),
    ("slice", &[ONE], Some(ONE), builtin::slice),
    ("print", &[], Some(ANY), builtin::print),
    ("println", &[], Some(ANY), builtin::println),
    ("printf", &[TEXT], Some(ANY), builtin::printf),
    ("html", &[], Some(ANY), builtin::html),
    ("js", &[], Some(ANY), builtin::js),
    ("urlquery", &[], Some(ANY), builtin::urlquery),
    ("call", &[ONE], Some(ONE), |_, given| failed(format!("non-function of type {}", given[0].type_name()))),
    ("eq", &[ONE], Some(ONE), builtin::eq),
    ("ne", &[ONE, ONE], None, builtin::ne),
    ("lt", &[ONE, ONE], None, builtin::lt),
    ("le", &[ONE, ONE], None, builtin::le),
    ("gt", &[ONE, ONE], None, builtin::gt),
    ("ge", &[ONE, ONE], None, builtin::ge),
    ("env", &[TEXT], None, data::env),
    ("mustEnv", &[TEXT], None, data::must_env),
    ("envOrDefault", &[TEXT, TEXT], None, data::env_or_default),
    ("key", &[TEXT], None, data::key),
    ("keyExists", &[TEXT], None, data::key_exists),
    ("keyOrDefault", &[TEXT, TEXT], None, data::key_or_default),
    ("ls", &[TEXT], None, data::ls),
    ("tree", &[TEXT], None, data::ls),
    ("safeLs", &[TEXT], None, data::safe_ls),
    ("safeTree", &[TEXT], None, data::safe_ls),
    ("secret", &[], Some(TEXT), data::secret),
    ("secrets", &[TEXT], None, data::secrets),
    ("nomadVar", &[TEXT], None, data::variable),
    ("nomadVarExists", &[TEXT], None, data::variable_exists),
    ("nomadVarList", &[], Some(TEXT), data::variables),
    ("nomadVarListSafe", &[], Some(TEXT), data::variables_safe),
    ("nomadService", &[], Some(ANY), data::nomad_service),
    ("nomadServices", &[], Some(TEXT), data::nomad_services),
    ("service", &[], Some(TEXT), data::service),
    ("services", &[], Some(TEXT), data::services),
    ("file", &[TEXT], None, data::file),
    ("scratch", &[], None, |_, _| Ok(Value::Scratch)),
    ("timestamp", &[], Some(TEXT), data::timestamp),
    ("byKey", &[POINTERS_TO_PAIRS], None, data::by_key),
    ("byTag", &[ANY], None, data::by_tag),
    ("byPort", &[ANY], None, data::by_port),
    ("explode", &[POINTERS_TO_PAIRS], None, data::explode),
    ("explodeMap", &[ANY_MAP], None, data::explode_map),
    ("mergeMap", &[ANY_MAP, ANY_MAP], None, data::merge_map),
    ("mergeMapWithOverride", &[ANY_MAP, ANY_MAP], None, data::merge_map_with_override),
    ("in", &[ANY, ANY], None, |_, given| texts::is_in(&given[0], &given[1]).map(Value::Bool)),
    ("contains", &[ANY, ANY], None, |_, given| texts::is_in(&given[1], &given[0]).map(Value::Bool)),
    ("containsAll", &[ANY_SLICE, ANY], None, |_, given| texts::contains_some(given, true, true)),
    ("containsAny", &[ANY_SLICE, ANY], None, |_, given| texts::contains_some(given, false, false)),
    ("containsNone", &[ANY_SLICE, ANY], None, |_, given| texts::contains_some(given, true, false)),
    ("containsNotAll", &[ANY_SLICE, ANY], None, |_, given| texts::contains_some(given, false, true)),
    ("loop", &[], Some(ANY), maths::loop_over),
    ("add", &[ANY, ANY], None, maths::add),
    ("subtract", &[ANY, ANY], None, maths::subtract),
    ("multiply", &[ANY, ANY], None, maths::multiply),
    ("divide", &[ANY, ANY], None, maths::divide),
    ("modulo", &[ANY, ANY], None, maths::modulo),
    ("minimum", &[ANY, ANY], None, maths::minimum),
    ("maximum", &[ANY, ANY], None, maths::maximum),
    ("parseBool", &[TEXT], None, maths::parse_bool),
    ("parseFloat", &[TEXT], None, maths::parse_float_text),
    ("parseInt", &[TEXT], None, maths::parse_int_text),
    ("parseUint", &[TEXT], None, maths::parse_uint_text),
    ("parseJSON", &[TEXT], None, encode::parse_json),
    ("parseYAML", &[TEXT], None, encode::parse_yaml),
    ("toJSON", &[ANY], None, |host, given| encode::to_json(host, &given[0], (false, true))),
    ("toJSONPretty", &[ANY], None, |host, given| encode::to_json(host, &given[0], (true, true))),
    ("toUnescapedJSON", &[ANY], None, |host, given| encode::to_json(host, &given[0], (false, false))),
    ("toUnescapedJSONPretty", &[ANY], None, |host, given| encode::to_json(host, &given[0], (true, false))),
    ("toYAML", &[ANY], None, encode::to_yaml),
    ("base64Encode", &[TEXT], None, encode::base64_encode),
    ("base64Decode", &[TEXT], None, encode::base64_decode),
    ("base64URLEncode", &[TEXT], None, encode::base64_url_encode),
    ("base64URLDecode", &[TEXT], None, encode::base64_url_decode),
    ("md5sum", &[TEXT], None, encode::md5sum),
    ("sha256Hex", &[TEXT], None, encode::sha256_hex),
    ("hmacSHA256Hex", &[TEXT, TEXT], None, encode::hmac_sha256_hex),
    ("indent", &[INT, TEXT], None, texts::indent),
    ("join", &[TEXT, TEXT_SLICE], None, texts::join),
    ("split", &[TEXT, TEXT], None, texts::split),
    ("splitToMap", &[TEXT, TEXT, TEXT], None, texts::split_to_map),
    ("trim", &[TEXT, TEXT], None, texts::trim),
    ("trimPrefix", &[TEXT, TEXT], None, texts::trim_prefix),
    ("trimSuffix", &[TEXT, TEXT], None, texts::trim_suffix),
    ("trimSpace", &[TEXT], None, texts::trim_space),
    ("toLower", &[TEXT], None, texts::to_lower),
    ("toUpper", &[TEXT], None, texts::to_upper),
    ("toTitle", &[TEXT], None, texts::to_title),
    ("replaceAll", &[TEXT, TEXT, TEXT], None, texts::replace_all),
    ("regexMatch", &[TEXT, TEXT], None, texts::regex_match),
    ("regexReplaceAll", &[TEXT, TEXT, TEXT], None, texts::regex_replace_all),
    ("sprig_upper", &[TEXT], None, texts::to_upper),
    ("sprig_lower", &[TEXT], None, texts::to_lower),
    ("sprig_trim", &[TEXT], None, texts::trim_space),
    ("sprig_trimAll", &[TEXT, TEXT], None, texts::trim),
    ("sprig_trimPrefix", &[TEXT, TEXT], None, texts::trim_prefix),
    ("sprig_trimSuffix", &[TEXT, TEXT], None, texts::trim_suffix),
    ("sprig_replace", &[TEXT, TEXT, TEXT], None, texts::replace_all),
    ("sprig_list", &[], Some(ANY), |_, given| Ok(Value::any_list(given.to_vec()))),
    ("sprig_default", &[ANY], Some(ANY), |_, given| {
        Ok(given.get(1).filter(|value| value.is_true()).unwrap_or(&given[0]).clone())
    }),
    ("sprig_empty", &[ANY], None, |_, given| Ok(Value::Bool(!given[0].is_true()))),
    ("sprig_ternary", &[ANY, ANY, GoType::Bool], None, |_, given| Ok(given[usize::from(!given[2].is_true())].clone())),
];

fn refused(_: &Host<'_>, _: &[Value]) -> Outcome<Value> {
    failed("function is disabled: drover has not what it asks for, or does not allow it")
}
