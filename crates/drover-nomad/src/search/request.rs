//! What a search asks for.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::context::{Context, NAMES};
use crate::fault::Fault;

/// The fewest characters by which names are searched.
const LEAST: usize = 2;

/// How something is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// By how ids begin.
    Prefix,
    /// By what names have in them.
    Fuzzy,
}

/// What is searched for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchRequest {
    /// How.
    pub manner: Manner,
    /// How the ids begin, or what the names have in them.
    pub text: String,
    /// Where.
    pub context: Context,
}

impl SearchRequest {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// 400 for what is no search, for an unknown context, and for a text that is too short to tell names apart.
    pub fn read(manner: Manner, body: &[u8]) -> Result<Self, Fault> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Body {
            prefix: String,
            text: String,
            context: String,
        }
        let field = if manner == Manner::Prefix { "Prefix" } else { "Text" };
        let wrong = |why: &str| {
            let example = json!({ field: "web", "Context": "jobs" });
            Fault::bad(format!("the body is no search, as {example}: {why}"))
        };
        let object: Map<String, Value> = serde_json::from_slice(body).map_err(|error| wrong(&error.to_string()))?;
        let parsed = serde_json::from_value(Value::Object(object));
        let Body { prefix, text, context } = parsed.map_err(|error| wrong(&error.to_string()))?;
        let context = match context.as_str() {
            "" | "all" => Context::All,
            name => {
                let known = NAMES.iter().find(|(known, _)| *known == name).map(|(_, context)| *context);
                let names = || NAMES.map(|(name, _)| name).join(", ");
                known.ok_or_else(|| Fault::bad(format!("Context is {name:?}: give all, {}", names())))?
            }
        };
        let text = if manner == Manner::Prefix { prefix } else { text };
        if manner == Manner::Fuzzy && text.chars().count() < LEAST {
            return Err(Fault::bad(format!("Text is {text:?}: give at least {LEAST} characters of a name")));
        }
        Ok(Self { manner, text, context })
    }

    /// The contexts that are searched.
    pub(crate) fn contexts(&self) -> Vec<Context> {
        match self.context {
            Context::All => NAMES.map(|(_, context)| context).to_vec(),
            one => vec![one],
        }
    }
}
