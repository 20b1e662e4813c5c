//! The functions of job files, with the names and results of HCL's and cty's libraries as Nomad offers them.

mod addresses;
mod arguments;
mod collections;
mod encoding;
mod files;
mod numbers;
mod sets;
mod strings;
mod times;

use arguments::Arguments;

use crate::evaluate::Budget;
use crate::inputs::Files;
use crate::value::Value;

/// What functions may use beside their arguments.
pub(crate) struct Context<'a> {
    pub(crate) files: Option<&'a dyn Files>,
    pub(crate) budget: &'a Budget,
}

/// Why there is no value; the caller adds the function's name and place.
type Outcome = Result<Value, String>;

/// Calls a function by its name.
pub(crate) fn call(name: &str, values: &[Value], context: &Context<'_>) -> Outcome {
    if matches!(name, "bcrypt" | "rsadecrypt") {
        return Err("is not offered: its result would be a secret in a job; put it into a Secret".to_owned());
    }
    let arguments = Arguments::new(values);
    let found = strings::call(name, &arguments, context)
        .or_else(|| numbers::call(name, &arguments))
        .or_else(|| collections::call(name, &arguments, context))
        .or_else(|| sets::call(name, &arguments, context))
        .or_else(|| encoding::call(name, &arguments))
        .or_else(|| times::call(name, &arguments))
        .or_else(|| addresses::call(name, &arguments))
        .or_else(|| files::call(name, &arguments, context));
    found.unwrap_or_else(|| Err("there is no such function".to_owned()))
}
