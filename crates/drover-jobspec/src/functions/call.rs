//! Finds a function by its name.

use super::arguments::Arguments;
use super::context::{Context, Outcome};
use super::{addresses, collections, encoding, files, numbers, sets, strings, times};
use crate::value::Value;

/// Calls a function by its name.
pub(crate) fn call(name: &str, values: &[Value], context: &Context<'_>) -> Outcome {
    if matches!(name, "bcrypt" | "rsadecrypt") {
        return Err("is not offered: its result would be a secret in a job; put it into a Secret".to_owned());
    }
    let arguments = Arguments::new(values);
    let found = strings::call(name, &arguments, context)
        .or_else(|| numbers::call(name, &arguments))
        .or_else(|| collections::call(name, &arguments, context))
        .or_else(|| sets::call(name, &arguments))
        .or_else(|| encoding::call(name, &arguments))
        .or_else(|| times::call(name, &arguments))
        .or_else(|| addresses::call(name, &arguments))
        .or_else(|| files::call(name, &arguments, context));
    found.unwrap_or_else(|| Err("there is no such function".to_owned()))
}
