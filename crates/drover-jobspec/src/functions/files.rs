//! Functions that read files, and those on their paths.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::arguments::Arguments;
use super::context::{Context, Outcome};
use crate::inputs::Files;
use crate::value::Value;

/// Calls one of them; nothing where the name is none of theirs.
pub(super) fn call(name: &str, arguments: &Arguments<'_>, context: &Context<'_>) -> Option<Outcome> {
    Some(match name {
        "file" => read(arguments, context)
            .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "does not hold text in UTF-8".to_owned()))
            .map(Value::Text),
        "filebase64" => read(arguments, context).map(|bytes| Value::Text(STANDARD.encode(bytes))),
        "fileexists" => arguments.count(1).and_then(|()| {
            let path = arguments.text(0)?;
            Ok(Value::Bool(files(context)?.read(&path).is_ok()))
        }),
        "fileset" => arguments.count(2).and_then(|()| {
            let found = files(context)?.matching(&arguments.text(0)?, &arguments.text(1)?)?;
            Ok(Value::List(found.into_iter().map(Value::Text).collect()))
        }),
        "basename" => arguments.count(1).and_then(|()| {
            let path = arguments.text(0)?;
            let trimmed = path.trim_end_matches('/');
            Ok(Value::from(match trimmed.rsplit_once('/') {
                Some((_, name)) => name,
                None if trimmed.is_empty() => {
                    if path.is_empty() {
                        "."
                    } else {
                        "/"
                    }
                }
                None => trimmed,
            }))
        }),
        "dirname" => arguments.count(1).and_then(|()| {
            let path = arguments.text(0)?;
            Ok(Value::from(match path.rsplit_once('/') {
                Some(("", _)) => "/",
                Some((folder, _)) => folder,
                None => ".",
            }))
        }),
        "abspath" | "pathexpand" => {
            Err("is not offered: it would make a job of this machine; write the path that the task sees".to_owned())
        }
        _ => return None,
    })
}

fn read(arguments: &Arguments<'_>, context: &Context<'_>) -> Result<Vec<u8>, String> {
    arguments.count(1)?;
    files(context)?.read(&arguments.text(0)?)
}

fn files<'a>(context: &Context<'a>) -> Result<&'a dyn Files, String> {
    context.files.ok_or_else(|| "reads no files here; run it where the files are, with `drover job import`".to_owned())
}
