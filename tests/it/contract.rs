//! The simulator's store and a real API server answer alike: one script of calls goes to both, and each answer is
//! compared.
//!
//! What may differ is put in the same form first: uids and resourceVersions count in the order in which they appear,
//! times are only there or not, and of a refusal its reason counts, not its words. Must never know what drover does
//! with the objects.

#[expect(clippy::panic, reason = "a server that does not answer ends the test")]
mod real;
#[expect(clippy::panic, reason = "a script that names a step which is not there ends the test")]
mod script;
mod simulated;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::script::Call;

/// An API server, real or not.
trait Server {
    /// Carries out a call and says what the answer was.
    async fn call(&mut self, call: &Call) -> Result<Value, Refused>;
}

/// A refusal: the API server's reason for it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Refused(String);

/// Brings answers into a form that is the same for both servers.
#[derive(Default)]
struct Plain {
    uids: BTreeMap<String, usize>,
    versions: BTreeMap<u64, String>,
}

impl Plain {
    /// Numbers uids and versions, and hides times and what only one of the two stores.
    fn object(&mut self, object: &mut Value) {
        let meta = &mut object["metadata"];
        if let Some(uid) = meta["uid"].as_str().map(str::to_owned) {
            let number = self.uids.len();
            meta["uid"] = json!(format!("uid {}", self.uids.entry(uid).or_insert(number)));
        }
        if let Some(version) = meta["resourceVersion"].as_str().and_then(|version| version.parse().ok()) {
            meta["resourceVersion"] = json!(self.version(version));
        }
        if let Some(meta) = meta.as_object_mut() {
            meta.remove("managedFields");
            for time in ["creationTimestamp", "deletionTimestamp"] {
                if let Some(time) = meta.get_mut(time) {
                    *time = json!("a time");
                }
            }
        }
    }

    fn version(&mut self, version: u64) -> String {
        // A new version must be later than all before it: then its number says the same of both.
        let newest = self.versions.keys().next_back().copied().unwrap_or(0);
        let number = self.versions.len();
        let order = if version >= newest { "" } else { ", older than one before it" };
        self.versions.entry(version).or_insert_with(|| format!("version {number}{order}")).clone()
    }

    fn answer(&mut self, answer: Result<Value, Refused>) -> Value {
        let mut answer = match answer {
            Ok(answer) => answer,
            Err(Refused(reason)) => return json!({ "refused": reason }),
        };
        let Some(fields) = answer.as_object_mut() else { return answer };
        // Tokens and bookmarks are for the server that gave them.
        fields.remove("bookmark");
        if let Some(token) = fields.get_mut("token") {
            *token = json!(!token.is_null());
        }
        match answer.get_mut("items").and_then(Value::as_array_mut) {
            Some(items) => items.iter_mut().for_each(|item| self.object(item)),
            None => self.object(&mut answer),
        }
        if let Some(events) = answer.get_mut("events").and_then(Value::as_array_mut) {
            for event in events.iter_mut() {
                self.object(&mut event["object"]);
            }
        }
        answer
    }
}

/// Runs the script and gives every answer with the call's name.
async fn run(mut server: impl Server) -> Vec<(String, Value)> {
    let mut plain = Plain::default();
    let mut answers: Vec<(String, Value)> = Vec::new();
    let mut raw: BTreeMap<String, Value> = BTreeMap::new();
    for step in script::steps() {
        let call = step.call.filled(&raw);
        let answer = server.call(&call).await;
        if let Ok(answer) = &answer {
            raw.insert(step.name.to_owned(), answer.clone());
        }
        answers.push((step.name.to_owned(), plain.answer(answer)));
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_simulators_store_answers_as_the_api_server_does() {
    let real = run(real::ApiServer::start().await).await;
    let simulated = run(simulated::InMemory::default()).await;
    let mut wrong = Vec::new();
    for ((name, real), (_, simulated)) in real.iter().zip(&simulated) {
        if real != simulated {
            wrong.push(format!("{name}:\n  API server: {real}\n  simulator:  {simulated}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} answers differ:\n{}", wrong.len(), real.len(), wrong.join("\n"));
    // A script of which nothing happened would agree with itself too.
    let refused = real.iter().filter(|(_, answer)| answer.get("refused").is_some()).count();
    assert!(refused >= 15 && real.len() - refused >= 40, "{refused} of {} calls were refused", real.len());
}
